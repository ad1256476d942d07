"""An API server that is reached over HTTPS: no redirects, no proxy but the connection's.

aiohttp is used directly, not through the kubernetes package: its clients follow redirects, take proxies from the
environment, allow 300 s, keep 333 KiB per open connection and turn every object into pydantic models; 500 objects
with four writes each take 1.9 s this way, which is what the API server itself needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from fipop.boundary import ApiRequest
from fipop.errors import KubeAccessError
from fipop.kube.connection import Connection, build_ssl_context
from fipop.kube.connector import body_of, send_once
from fipop.kube.sessions import SharedSession, open_session


class HttpServer:
    """One API server; its connections are opened by the first request, and given back by `close`.

    With `shared` they are taken from there and go back there, where it may serve this connection.
    """

    def __init__(self, connection: Connection, *, shared: SharedSession | None = None) -> None:
        if not connection.server.startswith("https://"):
            raise KubeAccessError(server=connection.server, problem="the server must be an https URL")
        self._connection = connection
        self._base = connection.server.rstrip("/")
        self._ssl_context = build_ssl_context(connection)
        self._shared = shared if shared is not None and shared.serves(connection) else None
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        """Give the connections back; what is under way is cut; where they are shared, who asked ends that."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None and self._shared is None:
            await session.close()

    def check_authority(self) -> None:
        """Raise AuthorityReplacedError if the file of the authority has changed."""
        self._connection.check_authority()

    @asynccontextmanager
    async def send(self, request: ApiRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with the credential of the moment, and return its answer until the context ends."""
        headers = dict(request.headers)
        authorization = self._connection.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        query = f"?{request.query}" if request.query else ""
        async with self._open_session().request(
            request.method,
            URL(f"{self._base}{request.path}{query}", encoded=True),
            data=body_of(request.body, request.headers.get("Content-Type", "")),
            headers=headers,
            allow_redirects=False,
            ssl=self._ssl_context,
            server_hostname=self._connection.tls_server_name,
            middlewares=() if request.method == "GET" else (send_once,),
        ) as response:
            yield response

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._session is None and self._shared is not None:
            self._session = self._shared.lend()
        elif self._session is None:
            allowed, proxy = self._connection.local_addresses_allowed, self._connection.proxy
            self._session = open_session(local_addresses_allowed=allowed, proxy=proxy)
        return self._session
