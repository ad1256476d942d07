"""One HTTP exchange with an API server: a deadline, a size cap, one clock."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp

from fipop.boundary import ApiRequest, ApiResponse, ApiServer
from fipop.errors import ApiAnswerError, ApiError, ApiUnreachableError
from fipop.kube.answers import Answer, error_of
from fipop.kube.calls import Call, call_fields
from fipop.kube.clock import ServerClock
from fipop.kube.connector import TOO_LARGE, CutError, asked, unreachable_reason
from fipop.kube.limits import ByteBudget, ByteShare


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

    At most `max_connections` are in use at once.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        max_connections: int,
        on_request: Callable[[RequestRecord], None] | None,
        user_agent: str | None,
        budget: ByteBudget | None = None,
    ) -> None:
        self._server = server
        self._turns = asyncio.Semaphore(max_connections)
        self._budget = budget or ByteBudget(sys.maxsize)
        self._on_request = on_request
        self._user_agent = user_agent or "fipop"
        self.clock = ServerClock()

    async def close(self) -> None:
        """Give the connections back; what is under way is cut."""
        await self._server.close()

    def check_authority(self) -> None:
        """Raise AuthorityReplacedError if the server's certificate is of an authority that is new to this process."""
        self._server.check_authority()

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
                    chunks=_chunks(response),
                )

    async def _open(
        self, call: Call, stack: AsyncExitStack, deadline: float, max_answer_bytes: int
    ) -> ApiResponse:
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
    async def _send(self, call: Call) -> AsyncIterator[ApiResponse]:
        headers = {"Accept": call.accept, "User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if call.if_none_match:
            headers["If-None-Match"] = call.if_none_match
        request = ApiRequest(
            method=call.method, path=call.path, query=call.query, headers=headers, body=call.body
        )
        now = asyncio.get_running_loop().time
        async with self._turns:
            sent_at = now()
            async with self._server.send(request) as response:
                self.clock.observe(response.headers.get("Date"), sent_at=sent_at, received_at=now())
                yield response

    @contextmanager
    def _recorded(self, call: Call) -> Iterator[_Outcome]:
        """Translate errors and tell `on_request` how the call ended, whichever way it did."""
        now = asyncio.get_running_loop().time
        started = now()
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
                        duration_seconds=now() - started,
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
    call: Call, response: ApiResponse, max_answer_bytes: int, share: ByteShare | None = None
) -> bytes:
    _require_plain(call, response)
    length = response.headers.get("Content-Length", "")
    most = int(length) if length.isascii() and length.isdigit() else max_answer_bytes
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


async def _chunks(response: ApiResponse) -> AsyncIterator[bytes]:
    while chunk := await response.content.readany():
        yield chunk


def _require_plain(call: Call, response: ApiResponse) -> None:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ApiAnswerError(**call_fields(call, status=response.status, reason="Compressed"))
