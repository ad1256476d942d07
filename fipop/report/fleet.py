"""Floating IPs and guest clusters as lists."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from fipop.api.conditions import Condition, ConditionType, Verdict
from fipop.api.objects import FloatingIP, ReleaseStatus
from fipop.guest.findings import IN_TRANSIT
from fipop.report.snapshot import ClusterSnapshot

_NO_STATUS = Condition(
    type=ConditionType.READY,
    status=Verdict.UNKNOWN,
    reason="NoStatus",
    message="The operator has not reconciled the FloatingIP yet.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPReport:
    """One floating IP with the name of its cluster and its condition Ready.

    `reachable` is None if nothing is known of the guest. `is_in_transit`: the operator says that Rancher makes it.
    """

    floating_ip: FloatingIP
    cluster: str
    ready: Condition
    reachable: bool | None
    is_in_transit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSummary:
    """One guest with what is known of it; `reachable` None: no floating IP of it says."""

    id: str
    cluster: str
    reachable: bool | None
    floating_ips: tuple[FloatingIPReport, ...]

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that its floating IPs have."""
        return tuple(text for each in self.floating_ips for text in each.floating_ip.status.addresses)

    @property
    def releases(self) -> tuple[ReleaseStatus, ...]:
        """The releases of fipop in it, as the first status that has any shows them."""
        told = (each.floating_ip.status.guest for each in self.floating_ips)
        return next((each.releases for each in told if each is not None and each.releases), ())

    @property
    def worst(self) -> FloatingIPReport | None:
        """The first floating IP that is not ready, else the first."""
        return min(self.floating_ips, key=lambda each: each.ready.is_true, default=None)


def report_floating_ips(snapshot: ClusterSnapshot) -> tuple[FloatingIPReport, ...]:
    """Report all floating IPs, by namespace and name."""
    return tuple(_report(snapshot, each) for each in snapshot.cache.floating_ips.all())


def report_guests(
    snapshot: ClusterSnapshot, floating_ips: tuple[FloatingIPReport, ...]
) -> tuple[GuestSummary, ...]:
    """Report all guests that have floating IPs or are opted in, by cluster and id."""
    by_namespace: dict[str, list[FloatingIPReport]] = defaultdict(list)
    for each in floating_ips:
        by_namespace[each.floating_ip.namespace].append(each)
    opted_in = {each.cluster_name for each in snapshot.cache.clusters.all() if each.opted_in} - {""}
    reports = []
    for guest in opted_in | by_namespace.keys():
        own = tuple(by_namespace.get(guest, ()))
        told = [each.reachable for each in own if each.reachable is not None]
        reports.append(
            GuestSummary(
                id=guest,
                cluster=snapshot.cluster_of(guest),
                reachable=all(told) if told else None,
                floating_ips=own,
            )
        )
    return tuple(sorted(reports, key=lambda each: (each.cluster, each.id)))


def _report(snapshot: ClusterSnapshot, found: FloatingIP) -> FloatingIPReport:
    guest = found.status.guest
    return FloatingIPReport(
        floating_ip=found,
        cluster=snapshot.cluster_of(found.namespace, found.cluster or ""),
        ready=next(
            (each for each in found.status.conditions if each.type == ConditionType.READY), _NO_STATUS
        ),
        reachable=guest.reachable if guest is not None else None,
        is_in_transit=any(each.reason in IN_TRANSIT for each in found.status.conditions),
    )
