"""The door to the Kubernetes API for those who read: every call has a deadline and ends in a value or a typed error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Self, TypeVar, overload

from fipop.boundary import ApiServer
from fipop.deadlines import LONGEST_WATCH_SECONDS, REQUEST_SECONDS, WATCH_GRACE_SECONDS
from fipop.errors import ApiUnreachableError
from fipop.jsons import Json
from fipop.kube.answers import (
    Answer,
    error_of_event,
    is_object_missing,
    parse_json,
    require_metadata,
    require_object,
    require_success,
)
from fipop.kube.calls import METADATA, METADATA_LIST, OBJECT, Call, build_call, build_selectors, with_query
from fipop.kube.connection import Connection
from fipop.kube.http_server import HttpServer
from fipop.kube.limits import Allowance, ByteBudget, ReadLimits
from fipop.kube.listing import Listing, PageReader
from fipop.kube.resources import Resource
from fipop.kube.transport import RequestRecord, Transport

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: Json


class KubeReader:
    """Reads from one API server. Use it as a context manager or call `close`.

    No method retries: that belongs to the work queue. A timeout is for the whole call, all pages of a list included.
    `limits` bound each answer and list, `allowance` all answers together, `budget` those of several clients at once.
    Requests go to `server`; a Connection is reached over HTTPS.
    """

    def __init__(
        self,
        server: Connection | ApiServer,
        *,
        timeout_seconds: float = REQUEST_SECONDS,
        limits: ReadLimits | None = None,
        allowance: Allowance | None = None,
        budget: ByteBudget | None = None,
        max_connections: int = 32,
        on_request: Callable[[RequestRecord], None] | None = None,
        user_agent: str | None = None,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._limits = limits or ReadLimits()
        self._allowance = allowance
        self._transport = Transport(
            HttpServer(server) if isinstance(server, Connection) else server,
            max_connections=max_connections,
            on_request=on_request,
            user_agent=user_agent,
            budget=budget,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give the connections back; what is under way is cut. Safe to call twice."""
        await self._transport.close()

    def check_authority(self) -> None:
        """Raise AuthorityReplacedError if the server's certificate is of an authority that is new to this process."""
        self._transport.check_authority()

    def server_now(self) -> datetime:
        """Return the API server's time (aware, UTC), at most a second and a round trip behind it, never ahead.

        It is told by the Date headers of the answers so far and our monotonic clock; this machine's own time
        plays no part. Before the first answer it is unknown: ApiUnreachableError.
        """
        now = self._transport.clock.now(asyncio.get_running_loop().time())
        if now is None:
            raise ApiUnreachableError(
                verb="read the clock of", kind="the API server", reason="NoAnswerYet", outcome_unknown=False
            )
        return now

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        metadata_only: bool = False,
        timeout_seconds: float | None = None,
    ) -> Json | None:
        """Return one object, None where the API server says that it does not exist."""
        call = build_call(
            "get",
            "GET",
            resource,
            namespace=namespace,
            name=name,
            accept=METADATA if metadata_only else OBJECT,
        )
        answer = await self._read(call, timeout_seconds)
        if is_object_missing(call, answer):
            return None
        return require_object(call, answer)

    @overload
    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = ...,
        label_selector: str | None = ...,
        field_selector: str | None = ...,
        metadata_only: bool = ...,
        timeout_seconds: float | None = ...,
    ) -> Listing[Json]: ...

    @overload
    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = ...,
        label_selector: str | None = ...,
        field_selector: str | None = ...,
        metadata_only: bool = ...,
        timeout_seconds: float | None = ...,
        project: Callable[[Json], T],
    ) -> Listing[T]: ...

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        timeout_seconds: float | None = None,
        project: Callable[[Json], Any] | None = None,
    ) -> Listing[Any]:
        """Return all objects, every page of them, or raise; a 404 raises, for a missing CRD says nothing.

        Without a namespace, those of all namespaces. `project` cuts each object down as its page arrives, so that
        a list of large objects never stands in memory whole; what it cannot read raises ApiAnswerError (Malformed).
        """
        call = build_call(
            "list", "GET", resource, namespace=namespace, accept=METADATA_LIST if metadata_only else OBJECT
        )
        deadline = self._deadline(timeout_seconds)
        pages = PageReader(
            limits=self._limits,
            receive=lambda page, most_bytes: self._receive(page, deadline, most_bytes),
            most=self._most,
        )
        return await pages.read(call, build_selectors(label_selector, field_selector), project)

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
        resource_version: str | int | None = None,
        timeout_seconds: int = LONGEST_WATCH_SECONDS,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield events from `resource_version` on until the server ends the watch, after `timeout_seconds` at most.

        A version that is too old raises ApiGoneError: list again. A stream that is cut, or neither ended nor
        fed by the server in its time, raises ApiUnreachableError. Close the generator (`aclosing`) to stop early.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_seconds)}
        if resource_version is not None:
            query["resourceVersion"] = str(resource_version)
        call = build_call("watch", "GET", resource, namespace=namespace)
        call = with_query(call, query | build_selectors(label_selector, field_selector))
        now = asyncio.get_running_loop().time()
        lines = self._transport.lines(
            call,
            headers_deadline=now + self._timeout_seconds,
            deadline=now + timeout_seconds + WATCH_GRACE_SECONDS,
            max_line_bytes=self._limits.answer_bytes,
        )
        async with aclosing(lines):
            async for line in lines:
                event = parse_json(call, Answer(status=HTTPStatus.OK, body=line))
                if event.get("type") == "ERROR":
                    raise error_of_event(call, event.get("object"))
                item = require_metadata(call, HTTPStatus.OK, event.get("object"))
                yield WatchEvent(type=str(event.get("type")), object=item)

    async def version(self) -> Json:
        """Return what the API server says of its version: `major`, `minor`, `gitVersion` and more."""
        call = Call(verb="get", kind="version", method="GET", path="/version")
        answer = await self._read(call)
        require_success(call, answer)
        return parse_json(call, answer)

    async def _read(self, call: Call, timeout_seconds: float | None = None) -> Answer:
        return await self._receive(call, self._deadline(timeout_seconds), self._limits.answer_bytes)

    async def _receive(
        self, call: Call, deadline: float, most_bytes: int, before_send: Callable[[], None] | None = None
    ) -> Answer:
        answer = await self._transport.exchange(
            call, deadline=deadline, max_answer_bytes=self._most(most_bytes), before_send=before_send
        )
        if self._allowance is not None:
            self._allowance.bytes_left -= len(answer.body)
        return answer

    def _most(self, wanted_bytes: int) -> int:
        left = self._allowance.bytes_left if self._allowance is not None else wanted_bytes
        return min(wanted_bytes, self._limits.answer_bytes, left)

    def _deadline(self, timeout_seconds: float | None) -> float:
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        return asyncio.get_running_loop().time() + seconds
