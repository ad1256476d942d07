"""aiohttp made safe: nothing is sent twice, to addresses that are not allowed, or when it may not be sent any more."""

from __future__ import annotations

import asyncio
import functools
import io
import socket
from asyncio import sslproto
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from fipop.kube.framing import FramingGuard
from fipop.kube.limits import MIB
from fipop.local_addresses import is_local_address

# asyncio keeps a buffer of 256 KiB for each TLS connection, which is most of what a guest cluster costs. There is no
# parameter for it. A record of TLS has at most 16 KiB (RFC 8446, section 5.1).
sslproto.SSLProtocol.max_size = 32 * 1024

TOO_LARGE = "TooLarge"
"""The reason of an ApiAnswerError where more came than is taken."""


class AddressRefusedError(OSError):
    """The server's name leads to an address that this connection must not touch."""


_before_send: ContextVar[Callable[[], None] | None] = ContextVar("before_send", default=None)


@contextmanager
def asked(before_send: Callable[[], None] | None) -> Iterator[None]:
    """Have `before_send` asked before anything of a request is sent; what it raises ends the request."""
    token = _before_send.set(before_send)
    try:
        yield
    finally:
        _before_send.reset(token)


class GuardedConnector(aiohttp.TCPConnector):
    """Asks, when a request has its connection, whether it may still be sent.

    A connection on which something came that nobody asked for serves no one else: aiohttp would take it for the answer
    of whoever comes next.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory: Any = functools.partial(FramingGuard, loop=asyncio.get_running_loop())

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """Give a connection for a request, a new one or one from the pool."""
        while True:
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is None or not connection.protocol.should_close:
                break
            connection.close()
        check = _before_send.get()
        if check is not None:
            try:
                check()
            except BaseException:
                connection.release()
                raise
        return connection


class _AskedBody(aiohttp.BytesPayload):
    """The body of a write, which asks once more when it goes out: a task may have slept since it had its connection.

    What it raises cuts the connection; without its body the server does nothing.
    """

    def __init__(self, value: bytes, *, content_type: str, check: Callable[[], None]) -> None:
        super().__init__(value, content_type=content_type)
        self._check = check

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write at most so many bytes."""
        self._check()
        await super().write_with_length(writer, content_length)


class CutError(Exception):
    """Carries a cut out of aiohttp's reach, which would send a PUT or DELETE a second time without telling."""


def body_of(body: bytes | None, content_type: str) -> bytes | io.BytesIO | _AskedBody | None:
    """Return the body of a request as aiohttp takes it."""
    check = _before_send.get()
    if body is None:
        return None
    if check is None:
        # aiohttp warns of more than 1 MiB in one piece.
        return body if len(body) <= MIB else io.BytesIO(body)
    return _AskedBody(body, content_type=content_type, check=check)


async def send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a write a second time: whoever asked for it is told instead."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise CutError from error


def guarded_socket(address_info: aiohttp.AddrInfoType) -> socket.socket:
    """Make a socket, but for addresses of this machine and its link: AddressRefusedError."""
    family, kind, protocol, _, address = address_info
    if is_local_address(ip_address(str(address[0]).partition("%")[0])):
        raise AddressRefusedError
    return socket.socket(family=family, type=kind, proto=protocol)


def unreachable_reason(error: BaseException) -> str:
    """Give the word of ApiUnreachableError for what went wrong."""
    match error:
        case TimeoutError():
            return "Timeout"
        case aiohttp.ClientConnectorCertificateError():
            return "CertificateInvalid"
        case aiohttp.ClientConnectorSSLError():
            return "TlsHandshake"
        case aiohttp.ClientConnectorDNSError():
            return "NameResolution"
        case aiohttp.ClientConnectorError(os_error=AddressRefusedError()):
            return "AddressRefused"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return "ConnectionRefused"
        case aiohttp.ClientConnectorError():
            return "ConnectionFailed"
        case aiohttp.ClientHttpProxyError():
            return "ProxyRefused"
    return "ConnectionCut"
