"""Where a source of charts would have its credential go: asked before helm, which follows redirects and realms."""

from __future__ import annotations

import re
import ssl
from http import HTTPStatus

import aiohttp
from yarl import URL

from fipop.errors import HelmFailure
from fipop.guest.helm.chart_access import ChartAccess
from fipop.guest.helm.command import helm_error

_REALM = re.compile(r'bearer [^\n]{0,1024}?\brealm="([^"]{1,2048})"', re.IGNORECASE)
_TIMEOUT = aiohttp.ClientTimeout(total=15.0)


async def find_detour(url: URL, access: ChartAccess, subject: str) -> str:
    """Ask a source with its credential, and say why that may not go where it is sent on to; "" where it may.

    A repository may redirect to another host, a registry may name one for tokens: nothing is followed. Raises
    HelmError.
    """
    try:
        # As helm has it: an authority of its own stands in the place of all others.
        tls = ssl.create_default_context(cadata=access.authority or None)
        headers = {"Authorization": access.authorization()}
        async with (
            aiohttp.ClientSession(trust_env=True, timeout=_TIMEOUT) as session,
            session.get(url, headers=headers, allow_redirects=False, ssl=tls) as answer,
        ):
            is_redirect = HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST
            realm = _REALM.search(answer.headers.get("WWW-Authenticate", ""))
            where = answer.headers.get("Location", "") if is_redirect else realm[1] if realm else ""
            return access.problem_with(url.join(URL(where))) if where else ""
    except (ssl.SSLError, aiohttp.ClientConnectorCertificateError) as error:
        raise helm_error("fetch", subject, HelmFailure.CERTIFICATE) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise helm_error("fetch", subject, HelmFailure.UNREACHABLE) from error
