"""What is reported beside the status of an object: events, log lines and counts."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from fipop.api.models import FloatingIP, FloatingIPStatus, Removal, Reservation
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import FLOATING_IPS, PROVISIONING_CLUSTERS
from fipop.metrics.exposition import Metrics
from fipop.operator.addresses.facts import bind_guest
from fipop.operator.addresses.range_selection import describe_mismatch
from fipop.operator.addresses.status import REMOVAL_PENDING, own_releases
from fipop.operator.guests.reported import MAX_CLAIMS
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReporter:
    """Reports by events of objects, by log lines and by counts."""

    guests: GuestDirectory
    events: EventRecorder
    metrics: Metrics

    def report_allocated(self, floating_ip: FloatingIP, reservation: Reservation) -> None:
        """Count an allocation, and report one from a range of another network than the guest's."""
        self.metrics.count_allocation("allocated")
        is_bound = bind_guest(self.guests.cache, floating_ip).blocker is None
        guest = self.guests.known(floating_ip.namespace) if is_bound else None
        message = describe_mismatch(self.guests.cache, guest, reservation.range)
        if message is None:
            return
        about = reference_to(FLOATING_IPS, floating_ip.meta)
        self.events.record(about, EventType.WARNING, "NetworkMismatch", message)

    def report_removal(self, floating_ip: FloatingIP, written: FloatingIPStatus) -> None:
        """Report by an event that releases of a guest are to be removed, or are gone: when the status records it."""
        before, after = floating_ip.status.guest, written.guest
        releases, about = own_releases(before), reference_to(FLOATING_IPS, floating_ip.meta)
        if before is None or after is None or before.removal is after.removal or not releases:
            return
        cluster = f'from guest cluster "{after.cluster}", which was opted out while kubevipGuestRemove is on'
        if after.removal is Removal.PENDING:
            message = f"Uninstalling {releases} {cluster}. To keep them, opt the cluster in again."
            self.events.record(about, EventType.WARNING, REMOVAL_PENDING, message)
        elif after.removal is Removal.DONE:
            message = f"Uninstalled {releases} {cluster}."
            self.events.record(about, EventType.NORMAL, "ReleasesRemoved", message)

    def report_blocked(self, reason: str) -> None:
        """Count a floating IP that did not get all that it asks for."""
        self.metrics.count_allocation(reason)

    def report_over_limit(self, guest_id: str, count: int) -> None:
        """Report a guest that uses `count` unowned addresses beyond those that are protected."""
        guest = self.guests.known(guest_id)
        if guest is None:
            return
        message = (
            f"Guest cluster {guest_id} uses {count} addresses of the ranges without a FloatingIP: fipop protects at "
            f"most {MAX_CLAIMS} of a guest cluster. Remove them there, or create FloatingIPs."
        )
        logger.warning(
            "Guest cluster uses too many unowned addresses", extra={"guest": guest_id, "ignored": count}
        )
        about = reference_to(PROVISIONING_CLUSTERS, guest.cluster.meta)
        self.events.record(about, EventType.WARNING, "TooManyClaims", message)
