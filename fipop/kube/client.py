"""The only door to the Kubernetes API: every call has a deadline and ends in a value or a typed error."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Self, TypeVar, overload

from fipop.deadlines import LONGEST_WATCH_SECONDS, REQUEST_SECONDS, WATCH_GRACE_SECONDS
from fipop.errors import ApiUnreachableError, NotLeadingError
from fipop.jsons import Json
from fipop.kube.access import connection_from_kubeconfig, connection_in_cluster
from fipop.kube.answers import (
    Answer,
    error_of_event,
    is_object_missing,
    parse_json,
    require_metadata,
    require_object,
    require_success,
)
from fipop.kube.calls import (
    FIELD_MANAGER,
    METADATA,
    METADATA_LIST,
    OBJECT,
    Call,
    build_call,
    build_selectors,
    with_query,
)
from fipop.kube.connection import Connection
from fipop.kube.limits import Allowance, ByteBudget, ReadLimits
from fipop.kube.listing import Listing, PageReader
from fipop.kube.resources import Resource
from fipop.kube.sessions import SharedSession
from fipop.kube.transport import RequestRecord, Transport

T = TypeVar("T")

__all__ = [
    "Connection",
    "KubeClient",
    "Listing",
    "RequestRecord",
    "WatchEvent",
    "connection_from_kubeconfig",
    "connection_in_cluster",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: Json


class KubeClient:
    """Talks to one API server. Use it as a context manager or call `close`.

    No method retries: that belongs to the work queue. A timeout is for the whole call, all pages of a list
    included. After an error whose `outcome_unknown` is true a write may have been committed: look first.
    `limits` bound each answer and list, `allowance` all answers together, `budget` those of several clients at once.
    Connections are taken from `shared` where it serves this one.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_seconds: float = REQUEST_SECONDS,
        limits: ReadLimits | None = None,
        allowance: Allowance | None = None,
        budget: ByteBudget | None = None,
        max_connections: int = 32,
        on_request: Callable[[RequestRecord], None] | None = None,
        user_agent: str | None = None,
        shared: SharedSession | None = None,
    ) -> None:
        self.connection = connection
        self._timeout_seconds = timeout_seconds
        self._limits = limits or ReadLimits()
        self._allowance = allowance
        self._transport = Transport(
            connection,
            max_connections=max_connections,
            on_request=on_request,
            user_agent=user_agent,
            budget=budget,
            shared=shared,
        )
        self._may_write: Callable[[], bool] = lambda: True

    def for_leader(self, leads: Callable[[], bool]) -> Self:
        """Return a client over the same connections whose writes raise NotLeadingError while `leads` says no.

        It is asked again when the request has its connection: a process that was stopped past its lease finds out in
        the middle of its work.
        """
        guarded = copy.copy(self)
        guarded._may_write = leads  # noqa: SLF001 - of our own class
        return guarded

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give the connections back; what is under way is cut. Safe to call twice."""
        await self._transport.close()

    @property
    def last_good_answer_at(self) -> float | None:
        """The monotonic time of the last answer below 500; None before the first."""
        return self._transport.last_good_answer_at

    def server_now(self) -> datetime:
        """Return the API server's time (aware, UTC), at most a second and a round trip behind it, never ahead.

        It is told by the Date headers of the answers so far and our monotonic clock; this machine's own time
        plays no part. Before the first answer it is unknown: ApiUnreachableError.
        """
        now = self._transport.clock.now(time.monotonic())
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
        answer = await self._exchange(call, timeout_seconds)
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

    async def create(self, resource: Resource, body: Json, *, namespace: str | None = None) -> Json:
        """Create an object and return it as stored; the namespace is the given one, else the body's."""
        metadata = body["metadata"]
        call = build_call(
            "create",
            "POST",
            resource,
            namespace=namespace or metadata.get("namespace"),
            query=FIELD_MANAGER,
            body=body,
        )
        call = replace(call, name=metadata.get("name"))
        return require_object(call, await self._exchange(call))

    async def replace(self, resource: Resource, body: Json, *, subresource: str | None = None) -> Json:
        """Replace an object by one that was read before; name, namespace and resourceVersion are the body's."""
        metadata = body["metadata"]
        call = build_call(
            "replace",
            "PUT",
            resource,
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            subresource=subresource,
            query=FIELD_MANAGER,
            body=body,
        )
        return require_object(call, await self._exchange(call))

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Json:
        """Merge a patch into an object and return it; with `metadata.resourceVersion` in it a stale one is a 409."""
        call = build_call(
            "patch",
            "PATCH",
            resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            query=FIELD_MANAGER,
            body=patch,
            content_type="application/merge-patch+json",
        )
        return require_object(call, await self._exchange(call))

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | int | None = None,
        propagation: str | None = None,
    ) -> bool:
        """Delete an object; False where it was gone already. A precondition that fails is ApiConflictError."""
        preconditions = {
            "uid": uid,
            "resourceVersion": None if resource_version is None else str(resource_version),
        }
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {key: value for key, value in preconditions.items() if value is not None},
        }
        if propagation is not None:
            options["propagationPolicy"] = propagation
        call = build_call("delete", "DELETE", resource, namespace=namespace, name=name, body=options)
        answer = await self._exchange(call)
        if is_object_missing(call, answer):
            return False
        require_success(call, answer)
        return True

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
        answer = await self._exchange(call)
        require_success(call, answer)
        return parse_json(call, answer)

    async def _exchange(self, call: Call, timeout_seconds: float | None = None) -> Answer:
        def check() -> None:
            if not self._may_write():
                raise NotLeadingError(verb=call.verb, kind=call.kind)

        writes = call.method != "GET"
        if writes:
            check()
        return await self._receive(
            call,
            self._deadline(timeout_seconds),
            self._limits.answer_bytes,
            before_send=check if writes else None,
        )

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
