"""An API server that the kubernetes package reaches: its configuration, credentials, TLS, proxies and connections.

No models of the package are used: they cost 33 MiB and know nothing of the kinds of fipop.
"""

from __future__ import annotations

from asyncio import sslproto
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from fipop.errors import StartError
from fipop.interfaces import ApiRequest
from fipop.kube.client import CutError, RedirectError

sslproto.SSLProtocol.max_size = 32 * 1024
"""asyncio's buffer of 256 KiB for each TLS connection is most of what one costs. A TLS record has at most 16 KiB."""

_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
"""The client has a deadline for each request."""
_BUFFER_BYTES = 64 * 1024
"""What arrives before it is read. The package keeps 4 MiB for each answer, for those who read whole lines."""
_USER_AGENT = "fipop"
_REDIRECTS = (301, 302, 303, 307, 308)


class HttpServer:
    """One API server, as `fipop.interfaces.ApiServer` describes it; the first request opens its connections."""

    def __init__(self, configuration: Configuration) -> None:
        if not configuration.host.startswith("https://"):
            raise StartError(what=f"server {configuration.host}", problem="must be an https URL")
        # Certificate authorities of k3s and RKE2 lack extensions that Python 3.13 asks for.
        configuration.disable_strict_ssl_verification = True
        session = {
            "cookie_jar": aiohttp.DummyCookieJar(),
            "middlewares": (send_once,),
            "read_bufsize": _BUFFER_BYTES,
        }
        configuration.client_session_kwargs = {**session, **(configuration.client_session_kwargs or {})}
        self._configuration = configuration
        self._authority = _read_text(configuration.ssl_ca_cert)
        try:
            self._api = ApiClient(configuration)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise StartError(
                what=f"certificate for {configuration.host}", problem="cannot be used"
            ) from error
        self._api.default_headers.clear()

    async def close(self) -> None:
        """Close the connections; requests under way fail."""
        await self._api.close()  # type: ignore[no-untyped-call]

    def check_authority(self) -> None:
        """Raise StartError if the file of the certificate authority has changed since this process started."""
        now = _read_text(self._configuration.ssl_ca_cert)
        if now and now != self._authority:
            raise StartError(
                what=f"certificate authority of {self._configuration.host}",
                problem=f"was replaced in {self._configuration.ssl_ca_cert}: the process must restart",
            )

    @asynccontextmanager
    async def send(
        self, request: ApiRequest, to: tuple[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with the credential of the moment, and return its answer until the context ends.

        `to` is another URL that these connections lead to, and the token for it.
        """
        # It gets neither headers nor body: it would copy both, in search of models.
        method, url, credential, *_ = await self._api.param_serialize(
            request.method,
            request.path,
            query_params=list(request.query.items()),
            auth_settings=None if to else ["BearerToken"],
            _host=to and to[0],
        )
        if to:
            credential = {"authorization": f"Bearer {to[1]}"}
        headers = {"User-Agent": _USER_AGENT, **request.headers, **credential}
        response = (
            await self._api.call_api(method, url, headers, request.body, _request_timeout=_NO_TIMEOUT)
        ).response
        try:
            yield response
        finally:
            response.close()


def open_session(configuration: Configuration) -> aiohttp.ClientSession:
    """Open a session for a library that sends its own requests. Each request gets the current credential."""

    async def authorize(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        authorization = await configuration.get_api_key_with_prefix("BearerToken")
        if authorization:
            request.headers["Authorization"] = authorization
        request.server_hostname = configuration.tls_server_name
        return await send_once(request, send)

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=RESTClientObject(configuration).ssl_context),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"},
        middlewares=(authorize,),
        trust_env=False,
        proxy=configuration.proxy,
    )


async def send_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request to this server alone, and a write once.

    Raises RedirectError for a redirect that aiohttp would follow, and CutError for a PUT or DELETE that it would send
    again after its connection ended: the first can have been committed.
    """
    try:
        response = await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method == "GET":
            raise
        raise CutError from error
    if response.status in _REDIRECTS:
        response.close()
        raise RedirectError
    return response


def _read_text(path: Any) -> str:
    """Return a file's text; "" if there is none, or if it cannot be read: it can be half replaced."""
    try:
        return Path(path).read_text(encoding="utf-8") if path else ""
    except (OSError, UnicodeDecodeError):
        return ""
