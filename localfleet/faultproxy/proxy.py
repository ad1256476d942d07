"""The proxy itself: one TLS port in front of one API server, for one client whose process it may stop or kill."""

import asyncio
import json
import signal
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

from aiohttp import (
    ClientConnectionError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    web,
)
from multidict import CIMultiDict
from yarl import URL

from localfleet.certificates import KeyPair, build_server_tls
from localfleet.faultproxy.rules import Do, On, Rule, Schedule, Seen, classify

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "content-length"}
)
_NOT_UPSTREAM = _HOP_BY_HOP | {"host"}
_LINE_BYTES = 8 * 1024 * 1024
_ALWAYS_HELD = frozenset({Do.KILL_BEFORE, Do.CUT_BEFORE, Do.CUT_LATE, Do.STATUS, Do.HANG})

Signal = Callable[[signal.Signals], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A request that came by: what it was, when it came (monotonic), what its client was told, what was done to it.

    `status` is 0 where the client was told nothing. `holder` is who holds the Lease that was written, by the API
    server's answer; empty for everything else.
    """

    seen: Seen
    at: float
    status: int
    struck: Do | None
    holder: str = ""


class FaultProxy:
    """Passes requests on with the client's own credentials, and does what `schedule` says.

    `upstream` is the API server's URL, `trust` the CA that it is checked with, `pair` what the proxy shows itself
    with. `send_signal` reaches the client's process. `passed` remembers every request but watches.
    """

    def __init__(self, upstream: str, *, trust: bytes, pair: KeyPair, send_signal: Signal) -> None:
        self.schedule = Schedule()
        self.passed: list[Passed] = []
        self.last_write_at = time.monotonic()
        self._upstream = upstream
        self._trust = ssl.create_default_context(cadata=trust.decode())
        self._tls = build_server_tls(pair)
        self._send_signal = send_signal
        self._first_states: dict[tuple[str, str], bytes] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._session: ClientSession | None = None
        self._port = 0
        self._runner = web.ServerRunner(
            web.Server(self._handle, access_log=None, handler_cancellation=True),
            handle_signals=False,
            shutdown_timeout=0.1,
        )

    async def __aenter__(self) -> Self:
        """Listen on loopback."""
        self._session = ClientSession(
            connector=TCPConnector(limit=0, ssl=self._trust),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_LINE_BYTES,
            timeout=ClientTimeout(total=None, connect=10),
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls, backlog=1024)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop listening and cut what is under way."""
        for task in self._late:
            task.cancel()
        await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    @property
    def url(self) -> str:
        """Where the client is to connect."""
        return f"https://127.0.0.1:{self._port}"

    def begin(self, schedule: Schedule) -> None:
        """Forget what was and follow another schedule."""
        self.schedule = schedule
        self.passed = []
        self._first_states.clear()

    async def settle(self) -> None:
        """Wait until the requests that were to come late have come."""
        if self._late:
            await asyncio.wait(tuple(self._late))

    def writes(self) -> list[Passed]:
        """The writes that count, in their order."""
        return [each for each in self.passed if each.seen.verb is On.WRITE and each.seen.is_work]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        seen, arrived = classify(request.method, request.path, request.query_string), time.monotonic()
        if seen.verb is On.WRITE and seen.is_work:
            self.last_write_at = arrived
        body = await request.read() if request.can_read_body else b""
        rule = self.schedule.decide(seen, body)
        if seen.verb is On.WATCH:
            return await self._watch(request, seen, rule)
        status, holder = 0, ""
        try:
            if rule is not None and rule.do in _ALWAYS_HELD:
                response = await self._refuse(request, body, rule)
            else:
                response = await self._pass(request, body, rule)
            status = response.status if response.status != _CUT else 0
            if seen.verb is On.WRITE and seen.plural == "leases" and isinstance(response, web.Response):
                holder = _holder(response)
            return response
        finally:
            struck = rule.do if rule is not None else None
            self.passed.append(Passed(seen=seen, at=arrived, status=status, struck=struck, holder=holder))

    async def _refuse(self, request: web.BaseRequest, body: bytes, rule: Rule) -> web.StreamResponse:
        """Do what is done instead of passing the request on."""
        if rule.do is Do.STATUS:
            return _refusal(rule)
        if rule.do is Do.KILL_BEFORE:
            self._send_signal(signal.SIGKILL)
        elif rule.do is Do.HANG:
            await asyncio.sleep(rule.seconds)
        elif rule.do is Do.CUT_LATE:
            task = asyncio.create_task(self._deliver_late(request, body, rule.seconds))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        return _cut(request)

    async def _deliver_late(self, request: web.BaseRequest, body: bytes, seconds: float) -> None:
        method, url, headers = request.method, self._url(request), self._headers(request)
        await asyncio.sleep(seconds)
        assert self._session is not None
        async with self._session.request(method, url, headers=headers, data=body or None) as answer:
            await answer.read()
        self.last_write_at = time.monotonic()

    async def _pass(self, request: web.BaseRequest, body: bytes, rule: Rule | None) -> web.StreamResponse:
        do = rule.do if rule is not None else None
        seconds = rule.seconds if rule is not None else 0.0
        if do is Do.DELAY:
            await asyncio.sleep(seconds)
        if do is Do.FREEZE_BEFORE:
            self._freeze(seconds)
        # What the client began is finished, also where it hangs up meanwhile.
        try:
            status, reason, headers, payload = await asyncio.shield(self._exchange(request, body))
        except (ClientConnectionError, ClientPayloadError):
            return _cut(request)
        if rule is not None and do in {Do.KILL_AFTER, Do.CUT_AFTER}:
            if do is Do.KILL_AFTER:
                self._send_signal(signal.SIGKILL)
            return _cut(request)
        if rule is not None and do is Do.STATUS_AFTER:
            return _refusal(rule)
        if do is Do.FREEZE_AFTER:
            self._freeze(seconds)
        return web.Response(status=status, reason=reason, headers=headers, body=payload)

    async def _exchange(
        self, request: web.BaseRequest, body: bytes
    ) -> tuple[int, str | None, CIMultiDict[str], bytes]:
        assert self._session is not None
        async with self._session.request(
            request.method, self._url(request), headers=self._headers(request), data=body or None
        ) as answer:
            payload = await answer.read()
            return answer.status, answer.reason, _downstream(answer), payload

    async def _watch(self, request: web.BaseRequest, seen: Seen, rule: Rule | None) -> web.StreamResponse:
        if rule is not None:
            if rule.do is Do.STATUS:
                return _refusal(rule)
            if rule.do in {Do.DELAY, Do.HANG}:
                await asyncio.sleep(rule.seconds)
            if rule.do is not Do.DELAY:
                return _cut(request)
        headers = self._headers(request)
        headers.popall("Accept-Encoding", None)
        assert self._session is not None
        try:
            async with self._session.get(self._url(request), headers=headers) as answer:
                response = web.StreamResponse(
                    status=answer.status, reason=answer.reason, headers=_downstream(answer)
                )
                await response.prepare(request)
                await self._stream(answer, response, seen)
                await response.write_eof()
                return response
        except (ClientConnectionError, ClientPayloadError):
            return _cut(request)

    async def _stream(self, answer: ClientResponse, response: web.StreamResponse, seen: Seen) -> None:
        if not self.schedule.parses_events:
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return
        async for line in answer.content:
            if not await self._pass_event(line, response, seen.plural):
                return

    async def _pass_event(self, line: bytes, response: web.StreamResponse, plural: str) -> bool:
        """Pass an event on as the schedule says; False where the stream ends with it."""
        event: dict[str, Any] = json.loads(line)
        kind = event.get("type", "")
        if kind in {"BOOKMARK", "ERROR"}:
            await response.write(line)
            return True
        key = (plural, event["object"]["metadata"].get("uid", ""))
        first = self._first_states.setdefault(key, line)
        rule = self.schedule.decide_event(plural, kind)
        do = rule.do if rule is not None else None
        if rule is not None and do in {Do.GONE, Do.ERROR}:
            await response.write(_error_event(410 if do is Do.GONE else 500))
            return False
        if rule is not None and do in {Do.HOLD, Do.DELAY}:
            await asyncio.sleep(rule.seconds)
        if do is not Do.WITHHOLD:
            await response.write(line)
        if do is Do.REPLAY and first != line:
            await response.write(first)
        return True

    def _freeze(self, seconds: float) -> None:
        # Who is stopped is not at rest: silence begins when it may go on.
        self.last_write_at = time.monotonic() + seconds
        self._send_signal(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(seconds, self._send_signal, signal.SIGCONT)

    def _url(self, request: web.BaseRequest) -> URL:
        return URL(f"{self._upstream}{request.raw_path}", encoded=True)

    @staticmethod
    def _headers(request: web.BaseRequest) -> CIMultiDict[str]:
        return CIMultiDict((k, v) for k, v in request.headers.items() if k.lower() not in _NOT_UPSTREAM)


_CUT = 599


def _cut(request: web.BaseRequest) -> web.Response:
    """Close the connection without a word; what is returned never reaches the client."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=_CUT)


_REASONS = {
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def _refusal(rule: Rule) -> web.Response:
    headers = {"Retry-After": str(max(1, round(rule.seconds)))} if rule.status == 429 else {}
    return web.json_response(_status(rule.status), status=rule.status, headers=headers)


def _holder(answer: web.Response) -> str:
    """Who holds the Lease of an answer that shows one."""
    if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES or not isinstance(answer.body, bytes):
        return ""
    return str((json.loads(answer.body).get("spec") or {}).get("holderIdentity") or "")


def _status(code: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": _REASONS.get(code, "Unknown"),
        "message": "as the plan says",
    }


def _error_event(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": _status(code)}).encode() + b"\n"


def _downstream(answer: ClientResponse) -> CIMultiDict[str]:
    return CIMultiDict((k, v) for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP)
