"""A watch of one object by its name: for the one ConfigMap that kopf would watch among all others."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fipop.backoff import Backoff
from fipop.deadlines import LONGEST_WATCH_SECONDS
from fipop.errors import ApiGoneError, ApiThrottledError, FipopError
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import Resource

_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 10.0
_SHORTEST_ROUND_SECONDS = 2.0

_logger = logging.getLogger(__name__)


class ObjectWatch:
    """Follows one object for ever: iterate `versions`; `last_heard_at` says whether the stream lives.

    Every round begins with a list of that one name, so what happened while blind (a cut, a version that is too
    old, a restored store) is seen at the latest when the server ends the watch, after `server_timeout_seconds`.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        server_timeout_seconds: int = LONGEST_WATCH_SECONDS - 10,
        longest_backoff_seconds: float = _LONGEST_BACKOFF_SECONDS,
        chance: random.Random | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._name = name
        self._namespace = namespace
        self._server_timeout_seconds = min(server_timeout_seconds, LONGEST_WATCH_SECONDS)
        self._longest_backoff_seconds = longest_backoff_seconds
        self._chance = chance or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._field_selector = f"metadata.name={name}"
        self.last_heard_at: float | None = None
        """The monotonic time of the last list, event or bookmark; None before the first."""

    async def versions(self) -> AsyncGenerator[Json | None, None]:
        """Yield the object as it is, then every change; None while it does not exist. Ends only when closed."""
        seen: object = _NOTHING_SEEN
        failures = 0
        while True:
            began = time.monotonic()
            failure: FipopError | None = None
            try:
                async with aclosing(self._round()) as states:
                    async for state in states:
                        identity = _identity(state)
                        if identity != seen:
                            seen = identity
                            yield state
            except FipopError as error:
                failure = error
            # A server that ends every watch at once, politely or with 410, must not be asked in a tight loop.
            failures = failures + 1 if time.monotonic() - began < _SHORTEST_ROUND_SECONDS else 0
            if failure is not None or failures:
                await self._back_off(max(failures, 1), failure)

    async def _round(self) -> AsyncGenerator[Json | None, None]:
        listing = await self._client.list(
            self._resource, namespace=self._namespace, field_selector=self._field_selector
        )
        self.last_heard_at = time.monotonic()
        yield listing.items[0] if listing.items else None
        events = self._client.watch(
            self._resource,
            namespace=self._namespace,
            field_selector=self._field_selector,
            resource_version=listing.resource_version,
            timeout_seconds=self._server_timeout_seconds,
        )
        async with aclosing(events):
            async for event in events:
                self.last_heard_at = time.monotonic()
                if event.type in ("ADDED", "MODIFIED"):
                    yield event.object
                elif event.type == "DELETED":
                    yield None

    async def _back_off(self, failures: int, failure: FipopError | None) -> None:
        longest = self._longest_backoff_seconds
        backoff = Backoff(first_seconds=_FIRST_BACKOFF_SECONDS, limit_seconds=longest)
        delay = backoff.delay_seconds(failures, self._chance)
        if isinstance(failure, ApiThrottledError):
            delay = max(delay, min(failure.retry_after_seconds, longest))
        level = logging.DEBUG if failure is None or isinstance(failure, ApiGoneError) else logging.WARNING
        _logger.log(
            level,
            "watch of an object ended early, trying again",
            extra={
                "kind": self._resource.kind,
                "object": self._name,
                "error": str(failure or "ended by the server"),
                "failures": failures,
                "delay_seconds": round(delay, 1),
            },
        )
        await asyncio.sleep(delay)


_NOTHING_SEEN = object()


def _identity(state: Json | None) -> object:
    """Return what tells one version of the object from another; None where it does not exist."""
    if state is None:
        return None
    metadata = state["metadata"]
    return metadata.get("uid"), metadata.get("resourceVersion")
