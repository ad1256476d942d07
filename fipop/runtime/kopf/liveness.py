"""When each watch showed life last."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from fipop.kube.resources import Resource

logger = logging.getLogger(__name__)

_OUTAGE_SECONDS = 2.0
"""A failure that lasted so long may have been a restart of the API server, with another store behind it."""


class Liveness:
    """When each watched resource last showed that its stream works; written and read from different threads.

    `on_recovery` is called, in the thread that writes, when a stream works again after an outage.
    """

    def __init__(
        self,
        resources: Collection[Resource],
        *,
        clock: Callable[[], float],
        on_recovery: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._on_recovery = on_recovery
        self._last = dict.fromkeys(resources, clock())
        self._failing: dict[Resource, float] = {}

    def now(self) -> float:
        """Give the time that all this is counted in."""
        return self._clock()

    def silences(self) -> dict[Resource, float]:
        """For how many seconds each resource's stream has shown no sign of life."""
        now = self._clock()
        return {resource: max(0.0, now - last) for resource, last in self._last.items()}

    def show(self, resource: Resource) -> None:
        """Note a sign of life."""
        self._last[resource] = self._clock()

    def forgive(self) -> None:
        """Start all silences anew: there was nothing to hear."""
        self._last.update(dict.fromkeys(self._last, self._clock()))

    def fail(self, resource: Resource, why: str) -> None:
        """Note that a request failed; said once until one succeeds."""
        if resource not in self._failing:
            self._failing[resource] = self._clock()
            logger.warning("Watch failed, retrying", extra={"resource": resource.plural, "why": why})

    def succeed(self, resource: Resource) -> None:
        """Note that a request was answered well."""
        since = self._failing.pop(resource, None)
        if since is None:
            return
        away = self._clock() - since
        logger.info("Watch works again", extra={"resource": resource.plural, "after_seconds": round(away, 1)})
        if away >= _OUTAGE_SECONDS:
            self._on_recovery()
