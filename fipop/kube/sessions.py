"""HTTP sessions, which hold the connections to servers: each client has its own, or many share one."""

from __future__ import annotations

import aiohttp
from yarl import URL

from fipop.kube.connection import Connection, build_ssl_context
from fipop.kube.connector import GuardedConnector, guarded_socket

_KEEPALIVE_SECONDS = 30.0
"""Shorter than the 60 s and more after which servers and load balancers drop an idle connection."""


def open_session(*, local_addresses_allowed: bool, proxy: str | None = None) -> aiohttp.ClientSession:
    """Open a session in the running loop. Who sends by it bounds connections and time, and names the TLS settings."""
    return aiohttp.ClientSession(
        connector=GuardedConnector(
            limit=0,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            socket_factory=None if local_addresses_allowed else guarded_socket,
        ),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # each call has its own deadline
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        proxy=proxy,
        # Compressed answers are neither asked for nor unpacked, so that no small answer becomes a large one.
        auto_decompress=False,
    )


def open_authorized_session(connection: Connection, *, trace: aiohttp.TraceConfig) -> aiohttp.ClientSession:
    """Open a session for a library that sends requests to one API server by itself; `trace` hears of each.

    Each request has the token of its moment, as it is renewed. No other server gets it, wherever a redirect leads.
    """
    origin = URL(connection.server).origin()

    async def authorize(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if request.url.origin() != origin:
            raise aiohttp.ClientConnectionError("redirect to another server")
        authorization = connection.authorization()
        if authorization is not None:
            request.headers["Authorization"] = authorization
        request.server_hostname = connection.tls_server_name
        return await send(request)

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=build_ssl_context(connection)),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "fipop", "Accept-Encoding": "identity"},
        middlewares=(authorize,),
        trace_configs=[trace],
        trust_env=False,
        proxy=connection.proxy,
    )


class SharedSession:
    """A session for the clients of many guests: those behind one Rancher share its connections and TLS sessions.

    A handshake costs more than a request. A connection is kept for its host, port, server name and trusted
    authority, and serves whoever names the same; each request carries its own token, which the server judges. Who
    shows a client certificate is known by the connection itself: such clients share nothing.
    """

    def __init__(self, *, local_addresses_allowed: bool) -> None:
        self._local_addresses_allowed = local_addresses_allowed
        self._session: aiohttp.ClientSession | None = None

    def serves(self, connection: Connection) -> bool:
        """Whether a client of this connection may share."""
        return (
            connection.client_certificate_pem is None
            and connection.local_addresses_allowed == self._local_addresses_allowed
        )

    def lend(self) -> aiohttp.ClientSession:
        """Return the session, opened by whoever comes first. It is not the borrower's to close."""
        if self._session is None:
            self._session = open_session(local_addresses_allowed=self._local_addresses_allowed)
        return self._session

    async def close(self) -> None:
        """Close all connections; what is under way is cut."""
        if self._session is not None:
            await self._session.close()
            self._session = None
