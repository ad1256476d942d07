"""One HTTP exchange with an API server: deadline, size cap, no redirects, no proxy but the connection's, one clock.

aiohttp is used directly, not through the kubernetes package: its clients follow redirects, take proxies from the
environment, allow 300 s, keep 333 KiB per open connection and turn every object into pydantic models; 500 objects
with four writes each take 1.9 s this way, which is what the API server itself needs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from yarl import URL

from fipop.errors import ApiAnswerError, ApiError, ApiUnreachableError, KubeAccessError
from fipop.kube.answers import Answer, error_of
from fipop.kube.calls import Call, call_fields
from fipop.kube.clock import ServerClock
from fipop.kube.connection import Connection, build_ssl_context
from fipop.kube.connector import (
    TOO_LARGE,
    CutError,
    asked,
    body_of,
    send_once,
    unreachable_reason,
)
from fipop.kube.limits import ByteBudget, ByteShare
from fipop.kube.sessions import SharedSession, open_session

_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """What one request was and how it ended, for logs and metrics; never a body, never a query.

    `status` is 0 when no answer came, and then `reason` is the word of ApiUnreachableError.
    """

    method: str
    verb: str
    kind: str
    path: str
    status: int
    reason: str
    duration_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStream:
    """An answer whose body has not been read: its status, its headers, and its bytes as they come."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport:
    """Sends calls to one API server; opened by its first call, given back by `close`.

    At most `max_connections` are in use at once. With `shared` they are taken from there and go back there, where it
    may serve this connection.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        max_connections: int,
        on_request: Callable[[RequestRecord], None] | None,
        user_agent: str | None,
        budget: ByteBudget | None = None,
        shared: SharedSession | None = None,
    ) -> None:
        if not connection.server.startswith("https://"):
            raise KubeAccessError(server=connection.server, problem="the server must be an https URL")
        self._connection = connection
        self._base = connection.server.rstrip("/")
        self._ssl_context = build_ssl_context(connection)
        self._turns = asyncio.Semaphore(max_connections)
        self._shared = shared if shared is not None and shared.serves(connection) else None
        self._budget = budget or ByteBudget(sys.maxsize)
        self._on_request = on_request
        self._user_agent = user_agent or "fipop"
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self.clock = ServerClock()

    async def close(self) -> None:
        """Give the connections back; what is under way is cut; where they are shared, who asked ends that."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None and self._shared is None:
            await session.close()

    async def exchange(
        self,
        call: Call,
        *,
        deadline: float,
        max_answer_bytes: int,
        before_send: Callable[[], None] | None = None,
    ) -> Answer:
        """Send a call and return its whole answer, of whatever status, before `deadline` (the loop's time).

        `before_send` may raise when there is a connection and nothing was sent: to wait for one takes its time.
        """
        with self._recorded(call) as outcome, asked(before_send):
            async with (
                asyncio.timeout_at(deadline),
                self._send(call) as response,
                # Given back with the answer: whoever asked for it parses it before the loop turns again.
                self._budget.share() as share,
            ):
                outcome.status = response.status
                body = await _read_body(call, response, max_answer_bytes, share)
            return Answer(status=response.status, body=body, retry_after=response.headers.get("Retry-After"))

    async def lines(
        self, call: Call, *, headers_deadline: float, deadline: float, max_line_bytes: int
    ) -> AsyncGenerator[bytes, None]:
        """Send a call and yield the lines of its answer as they come, until its end.

        An answer that is no 200 raises its typed error; silence beyond `deadline` and a line longer than the cap
        raise too. The connection is given up when the generator is closed.
        """
        async with AsyncExitStack() as stack:
            response = await self._open(call, stack, headers_deadline, max_line_bytes)
            pending = b""
            while True:
                with self._translated(call):
                    async with asyncio.timeout_at(deadline):
                        chunk = await response.content.readany()
                if not chunk:
                    break
                *whole, pending = (pending + chunk).split(b"\n")
                if len(pending) > max_line_bytes:
                    raise ApiAnswerError(**call_fields(call, status=response.status, reason=TOO_LARGE))
                for line in whole:
                    yield line
            if pending:
                raise ApiUnreachableError(**call_fields(call, status=response.status, reason="ConnectionCut"))

    @asynccontextmanager
    async def stream(self, call: Call, *, deadline: float) -> AsyncIterator[AnswerStream]:
        """Send a call and lend its answer, of whatever status, until `deadline` (the loop's time), to pass it on.

        Errors of the way are translated, also while the body comes; whoever takes the bytes counts them.
        """
        with self._recorded(call) as outcome:
            async with asyncio.timeout_at(deadline), self._send(call) as response:
                outcome.status = response.status
                yield AnswerStream(
                    status=response.status,
                    headers=response.headers,
                    chunks=response.content.iter_chunked(_CHUNK_BYTES),
                )

    async def _open(
        self, call: Call, stack: AsyncExitStack, deadline: float, max_answer_bytes: int
    ) -> aiohttp.ClientResponse:
        with self._recorded(call) as outcome:
            async with asyncio.timeout_at(deadline):
                response = await stack.enter_async_context(self._send(call))
                outcome.status = response.status
                if response.status == HTTPStatus.OK:
                    _require_plain(call, response)
                    return response
                body = await _read_body(call, response, max_answer_bytes)
                retry_after = response.headers.get("Retry-After")
                raise error_of(call, Answer(status=response.status, body=body, retry_after=retry_after))

    @asynccontextmanager
    async def _send(self, call: Call) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": call.accept, "User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        authorization = self._connection.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if call.if_none_match:
            headers["If-None-Match"] = call.if_none_match
        query = f"?{call.query}" if call.query else ""
        async with self._turns:
            sent_at = time.monotonic()
            async with self._open_session().request(
                call.method,
                URL(f"{self._base}{call.path}{query}", encoded=True),
                data=body_of(call),
                headers=headers,
                allow_redirects=False,
                ssl=self._ssl_context,
                server_hostname=self._connection.tls_server_name,
                middlewares=() if call.method == "GET" else (send_once,),
            ) as response:
                received_at = time.monotonic()
                self.clock.observe(response.headers.get("Date"), sent_at=sent_at, received_at=received_at)
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

    @contextmanager
    def _recorded(self, call: Call) -> Iterator[_Outcome]:
        """Translate errors and tell `on_request` how the call ended, whichever way it did."""
        started = time.monotonic()
        outcome = _Outcome()
        try:
            with self._translated(call):
                yield outcome
        except ApiError as error:
            outcome.reason = error.reason
            raise
        finally:
            if self._on_request is not None:
                self._on_request(
                    RequestRecord(
                        method=call.method,
                        verb=call.verb,
                        kind=call.kind,
                        path=call.path,
                        status=outcome.status,
                        reason=outcome.reason,
                        duration_seconds=time.monotonic() - started,
                    )
                )

    @contextmanager
    def _translated(self, call: Call) -> Iterator[None]:
        try:
            yield
        except (aiohttp.ClientError, CutError, OSError) as error:
            # Before a connection stood, nothing was sent: the outcome of a write is known then.
            unsent = isinstance(error, aiohttp.ClientConnectorError)
            raise ApiUnreachableError(
                outcome_unknown=not unsent, **call_fields(call, reason=unreachable_reason(error))
            ) from error
        except UnicodeError:
            # A host name that no resolver takes; the error would quote it.
            raise ApiUnreachableError(
                outcome_unknown=False, **call_fields(call, reason="NameResolution")
            ) from None


@dataclass(slots=True)
class _Outcome:
    status: int = 0
    reason: str = ""


async def _read_body(
    call: Call, response: aiohttp.ClientResponse, max_answer_bytes: int, share: ByteShare | None = None
) -> bytes:
    _require_plain(call, response)
    most = max_answer_bytes if response.content_length is None else response.content_length
    if most > max_answer_bytes:
        raise ApiAnswerError(**call_fields(call, status=response.status, reason=TOO_LARGE))
    parts: list[bytes] = []
    size = 0
    while chunk := await response.content.readany():
        size += len(chunk)
        if size > max_answer_bytes:
            raise ApiAnswerError(**call_fields(call, status=response.status, reason=TOO_LARGE))
        if share is not None:
            await share.cover(size, most=most)
        parts.append(chunk)
    return b"".join(parts)


def _require_plain(call: Call, response: aiohttp.ClientResponse) -> None:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ApiAnswerError(**call_fields(call, status=response.status, reason="Compressed"))
