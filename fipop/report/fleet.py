"""Floating IPs and guest clusters as lists."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime

from fipop.addresses.status import NO_ADDRESS
from fipop.api.conditions import Condition, ConditionType, Verdict, find_condition
from fipop.api.objects import FloatingIP, ReleaseStatus
from fipop.rancher.objects import ProvisioningCluster
from fipop.report.snapshot import Snapshot

NO_STATUS = Condition(
    type=ConditionType.READY,
    status=Verdict.UNKNOWN,
    reason="NoStatus",
    message="The operator has not reconciled the FloatingIP yet.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPReport:
    """One floating IP with the name of its cluster and its condition Ready."""

    floating_ip: FloatingIP
    shown: str
    """The name of the cluster, with what people call it; "" if it is not known."""
    ready: Condition

    @property
    def wrong(self) -> tuple[Condition, ...]:
        """The conditions beside Ready that are not as they should be, or of a type that is not known, each once.

        Ready repeats the first one that it sums up. Without an address, all else of the guest cluster waits for it.
        """
        found: dict[tuple[str, str], Condition] = {}
        for each in (self.ready, *self.floating_ip.status.conditions):
            is_told = each.reason == NO_ADDRESS.reason and found
            if not each.is_good and not is_told:
                found.setdefault((each.reason, each.message or each.type), each)
        return tuple(each for each in found.values() if each.type != ConditionType.READY)

    @property
    def blocker(self) -> Condition | None:
        """Why it waits for an address, as the condition Ready; None if it does not wait."""
        status = self.floating_ip.status
        found = find_condition(status.conditions, ConditionType.ALLOCATED)
        if found is None:
            return None if status.addresses or self.ready.is_good else self.ready
        return None if found.is_good else replace(found, type=ConditionType.READY)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSummary:
    """One guest cluster that has floating IPs or is opted in."""

    id: str
    shown: str
    """The name of the cluster, else the id, with what people call it."""
    clusters: tuple[ProvisioningCluster, ...]
    floating_ips: tuple[FloatingIPReport, ...]

    @property
    def reachable(self) -> bool | None:
        """Whether the operator reached it at its last visit; None if no floating IP shows that."""
        guests = (each.floating_ip.status.guest for each in self.floating_ips)
        told = [each.reachable for each in guests if each is not None and each.reachable is not None]
        return all(told) if told else None

    @property
    def changed_at(self) -> datetime | None:
        """When a visit found last that something had changed."""
        conditions = (one for each in self.floating_ips for one in each.floating_ip.status.conditions)
        return max(
            (each.last_transition_time for each in conditions if each.last_transition_time), default=None
        )

    @property
    def releases(self) -> tuple[ReleaseStatus, ...]:
        """The releases of fipop in it, as the first status that has any shows them."""
        guests = (each.floating_ip.status.guest for each in self.floating_ips)
        return next((each.releases for each in guests if each is not None and each.releases), ())


def report_floating_ips(snapshot: Snapshot) -> tuple[FloatingIPReport, ...]:
    """Report all floating IPs, by namespace and name."""
    return tuple(
        FloatingIPReport(
            floating_ip=each,
            shown=snapshot.show_guest(each.namespace, each.cluster or ""),
            ready=find_condition(each.status.conditions, ConditionType.READY) or NO_STATUS,
        )
        for each in snapshot.inventory.floating_ips.all()
    )


def report_guests(snapshot: Snapshot, floating_ips: tuple[FloatingIPReport, ...]) -> tuple[GuestSummary, ...]:
    """Report all guest clusters that have floating IPs or are opted in, by cluster and id."""
    by_namespace: dict[str, list[FloatingIPReport]] = defaultdict(list)
    for each in floating_ips:
        by_namespace[each.floating_ip.namespace].append(each)
    opted_in = {each.cluster_name for each in snapshot.inventory.clusters.all() if each.opted_in} - {""}
    guests = sorted(opted_in | by_namespace.keys(), key=lambda each: (snapshot.cluster_of(each), each))
    return tuple(
        GuestSummary(
            id=guest,
            shown=snapshot.show_guest(guest, guest),
            clusters=tuple(snapshot.inventory.guest_clusters(guest)),
            floating_ips=tuple(by_namespace.get(guest, ())),
        )
        for guest in guests
    )
