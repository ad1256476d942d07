"""What becomes of Services, reported on them: by their condition, and by Warnings that are not repeated."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fipop.api.conditions import ConditionContent
from fipop.api.service import Service
from fipop.cloudprovider.caches import SOON, ServiceCache
from fipop.cloudprovider.needs import ASSIGNED_REASON
from fipop.errors import ConflictError, NotFoundError
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import SERVICES
from fipop.runtime.workqueue import RetryAfter
from fipop.texts import LONGEST_WORD, clean

logger = logging.getLogger(__name__)

_WAITS = "waits"
"""The Warning of a Service that waits, in what is remembered of it."""


class Reporter:
    """Remembers by Service what it warned of last, until something else is to be said, or the Service is gone."""

    def __init__(self, services: ServiceCache, events: EventRecorder) -> None:
        self._services = services
        self._events = events
        self._warned: dict[str, dict[str, str]] = {}
        """The message of the last Warning, by uid and what it is about."""

    def forget(self, service: Service) -> None:
        """Take in that a Service is gone."""
        self._warned.pop(service.uid, None)

    def report_written(self, service: Service) -> None:
        """Take in that a Service could be written: if it waits again, that is said again."""
        self.warn(service, _WAITS, "")

    def report_assigned(self, service: Service, text: str) -> None:
        """Report the new addresses of a Service."""
        self._record(service, EventType.NORMAL, "AddressAssigned", text)

    def report_problems(self, service: Service, problems: Mapping[str, str]) -> None:
        """Warn of each problem, by its reason; a text of "" says that it does not exist."""
        for reason, text in problems.items():
            self.warn(service, reason, text)

    def report_unwritable(self, service: Service, text: str) -> None:
        """Warn that a Service cannot be written."""
        self.warn(service, "SyncLoadBalancerFailed", text, about=_WAITS)

    def report_other_writer(self, service: Service, manager: str, fields: frozenset[str]) -> None:
        """Warn of a field manager, "" for an unknown one, that changes what fipop writes."""
        who = f"Field manager {clean(manager, LONGEST_WORD)}" if manager else "An unknown writer"
        text = (
            f"{who} changes {', '.join(sorted(fields))} of the Service again and again. fipop waits 10 s before "
            "it writes that again, and twice as long each time. Stop the other writer."
        )
        self.warn(service, "AnotherController", text)

    def warn(self, service: Service, reason: str, text: str, *, about: str = "") -> None:
        """Record a Warning if it says something new `about` this; about its reason if nothing is given."""
        warned = self._warned.get(service.uid, {})
        if text and text != warned.get(about or reason):
            fields = {"service": "/".join(service.key), "reason": reason, "why": text}
            logger.warning("Service has a problem", extra=fields)
            self._record(service, EventType.WARNING, reason, text)
        if text or warned:
            self._warned[service.uid] = {**warned, about or reason: text}

    async def show(
        self, client: KubeClient, service: Service, finding: ConditionContent | None
    ) -> RetryAfter | None:
        """Write the condition if it says something new, and before it a Warning if the Service waits."""
        if service.finding == finding:
            return None
        if finding is None or finding.reason == ASSIGNED_REASON:
            self.report_written(service)
        elif finding.reason in ("AddressInUse", "InvalidAddress"):
            self.warn(service, finding.reason, finding.message, about=_WAITS)
        else:
            self.report_unwritable(service, finding.message)
        try:
            await self._services.write_status(client, service, finding)
        except (ConflictError, NotFoundError):
            return SOON
        return None

    def _record(self, service: Service, kind: EventType, reason: str, text: str) -> None:
        self._events.record(reference_to(SERVICES, service), kind, reason, text)
