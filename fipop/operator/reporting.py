"""What is reported beside the status of an object: events, log lines and counts."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.api.objects import FloatingIP
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import FLOATING_IPS
from fipop.metrics.counters import ALLOCATIONS
from fipop.operator.addresses.decision import bind_guest
from fipop.operator.addresses.range_selection import describe_mismatch
from fipop.state.guests import GuestDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReporter:
    """Reports by events of objects, by log lines and by counts."""

    guests: GuestDirectory
    events: EventRecorder

    def report_allocated(self, floating_ip: FloatingIP, range_name: str) -> None:
        """Count an allocation, and report one from a range of another network than the guest's."""
        ALLOCATIONS.labels("allocated").inc()
        is_bound = bind_guest(self.guests.cache, floating_ip).blocker is None
        guest = self.guests.known(floating_ip.namespace) if is_bound else None
        message = describe_mismatch(self.guests.cache, guest, range_name)
        if message is None:
            return
        about = reference_to(FLOATING_IPS, floating_ip.metadata)
        self.events.record(about, EventType.WARNING, "NetworkMismatch", message)

    def report_conflict(self, floating_ip: FloatingIP, message: str) -> None:
        """Report that another guest cluster uses an address of it, too."""
        about = reference_to(FLOATING_IPS, floating_ip.metadata)
        self.events.record(about, EventType.WARNING, "AddressConflict", message)

    def report_blocked(self, reason: str) -> None:
        """Count a floating IP that did not get all that it asks for."""
        ALLOCATIONS.labels(reason).inc()
