"""Where a source of charts would have its credential go: asked before helm, which follows redirects and realms."""

from __future__ import annotations

import re
import ssl
from http import HTTPStatus

import aiohttp
from yarl import URL

from fipop.guest.errors import HelmFailure
from fipop.guest.helm.chart_access import ChartAccess
from fipop.guest.helm.charts import ChartSource
from fipop.guest.helm.command import helm_error

_REALM = re.compile(r'\brealm\s*=\s*(?:"([^"]*)"|([^\s",]+))', re.IGNORECASE)
_TIMEOUT = aiohttp.ClientTimeout(total=15.0)


async def find_detour(source: ChartSource, access: ChartAccess) -> str:
    """Ask a source as helm does, and say why the credential may not go where it is sent on to; "" where it may.

    A repository is told the credential at once, a registry when it has asked for it. A repository may redirect to
    another host, a registry may name one for tokens: nothing is followed. Raises HelmError.
    """
    subject = f"chart {source}"
    known = {"Authorization": access.authorization()}
    asked = ({}, known) if source.ref else (known,)
    ways = [(url, headers) for headers in asked for url in source.probe_urls]
    try:
        # As helm has it: an authority of its own stands in the place of all others.
        tls = ssl.create_default_context(cadata=access.authority or None)
        async with aiohttp.ClientSession(trust_env=True, timeout=_TIMEOUT) as session:
            for url, headers in ways:
                # Registries count what is got of manifests, and not what is asked about them.
                method = "HEAD" if "/manifests/" in url.path else "GET"
                async with session.request(
                    method, url, headers=headers, allow_redirects=False, ssl=tls
                ) as answer:
                    if problem := _problem_with(answer, access):
                        return problem
    except (ssl.SSLError, aiohttp.ClientConnectorCertificateError) as error:
        raise helm_error("fetch", subject, HelmFailure.CERTIFICATE) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise helm_error("fetch", subject, HelmFailure.UNREACHABLE) from error
    return ""


def _problem_with(answer: aiohttp.ClientResponse, access: ChartAccess) -> str:
    places = []
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        places.append(answer.url.join(URL(answer.headers.get("Location", ""))))
    for challenge in answer.headers.getall("WWW-Authenticate", ()):
        if "bearer" in challenge.lower():
            realms = [URL(quoted or bare) for quoted, bare in _REALM.findall(challenge)]
            if not (realms and all(map(URL.is_absolute, realms))):
                # helm may read it all the same.
                return "could not read the realm for tokens in its WWW-Authenticate header"
            places += realms
    return next(filter(None, map(access.problem_with, places)), "")
