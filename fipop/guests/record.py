"""All that a leader remembers of one guest cluster. All of it can be found out again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fipop.addresses.guests import AddressRecord, FloatingIPName
from fipop.api.conditions import ConditionContent
from fipop.api.objects import FloatingIP
from fipop.backoff import Backoff
from fipop.errors import FipopError
from fipop.guests.announced import AnnouncedState, LeaseReading, restore_state
from fipop.guests.observed import Observed
from fipop.guests.takers import Taker, find_taker
from fipop.helm.charts import Target
from fipop.helm.releases import Release, ReleaseOwner
from fipop.helm.workloads import KubeVipMode, Workload
from fipop.interfaces import loop_time
from fipop.rancher.links import Discovery
from fipop.rancher.objects import ProvisioningCluster

FRESH_SECONDS = 10.0
"""How old what a visit saw is at most when helm goes by it."""
HELM_BACKOFF = Backoff(first_seconds=30.0, limit_seconds=1800.0)
_OFTEN = 2
"""After so many changes in a row, labels count as restless. One alone is a person's."""
_RESTLESS = (
    "Labels of the provisioning Cluster change again and again what this guest cluster gets, and helm rests up to 30 "
    "min before it follows. Stop the program that changes them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelmBackoff:
    """helm failed in a guest cluster, repaired what it had made, or followed its labels: it rests, longer each time."""

    target: str
    failures: int
    """How often in a row, each time before half an hour had passed since the rest before."""
    until: float
    errors: Mapping[str, FipopError] = field(default_factory=dict)
    """Why it failed, by release; empty after anything else."""
    is_restless: bool = False
    """Whether labels of the guest cluster had changed its target in the same rollout: they can change it again."""
    may_go_on: bool = False
    """Whether helm may bring the guest cluster to this target meanwhile; never to another one that labels choose."""

    def is_about(self, target: str) -> bool:
        """Return whether a target is the one that it is about, or another one that labels chose instead."""
        return self.target == target or (self.is_restless and _is_moved(self.target, target))

    def holds_up(self, target: str) -> bool:
        """Return whether helm rests with a target."""
        return self.is_about(target) and not (self.may_go_on and self.target == target)


@dataclass(slots=True, kw_only=True)
class GuestRecord(AddressRecord):
    """The record of one guest cluster. Times are those of the loop's clock."""

    # Discovery

    announced: Discovery | None = None
    """What was found when its floating IPs and a visit were enqueued for it last."""
    failed_lookups: int = 0
    resolved_at: float = -math.inf
    """When its links were read last."""
    unresolved_since: float | None = None
    """Since when a link of it cannot be read; None if all could be."""

    # Visits

    visited_at: float | None = None
    """When the last visit ended, whether the guest cluster answered or not; None before the first one."""
    failures: int = 0
    """How many visits failed in a row."""
    finished_at: float | None = None
    """The Unix time of the last whole visit; None before it."""
    machines_read_at: float = -math.inf
    """When nodes and Deployments were read last."""
    bare_since: float | None = None
    """Since when the guest cluster has no floating IP; None if it has one."""
    foreign_pools: frozenset[str] = frozenset()
    """The namespaces whose pool is none of fipop's; "global" stands for all others."""
    pool_namespaces: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The namespaces whose Services may choose a pool, by pool, of those with such a key."""
    ignores_pools: bool = False
    """Whether a cloud provider runs there that does not know which pool a Service chooses."""
    interfaces: Mapping[str, str] = field(default_factory=dict)
    """Those of Harvester's networks, as its cloud provider listed them when nodes were read last."""

    # What kube-vip announces

    announced_states: dict[FloatingIPName, AnnouncedState] = field(default_factory=dict)
    """By floating IP."""
    mode: KubeVipMode | None = None
    """How fipop's kube-vip announces there, as the last visit found it; None if it does not, or is not known."""
    lease_reading: LeaseReading | None = None
    """The reading of kube-vip's Leases that the next one is compared with."""

    # Floating IPs for Services

    idle_since: dict[str, float] = field(default_factory=dict)
    """Since when no Service uses a floating IP, by its uid."""
    demand: ConditionContent | None = None
    """Whether all Services that wait get a floating IP; None before the first list."""
    services_reported_at: float = -math.inf
    """When a status was written last that says it."""

    # Releases

    releases: tuple[Release, ...] = ()
    """The releases as the last visit found them; empty if they were not seen."""
    observed: Observed | None = None
    """What the last visit saw, if helm has to change something; None else."""
    observed_at: float = -math.inf
    """When that visit began to read it."""
    turn_ended_at: float = -math.inf
    """When helm was last done with the guest cluster."""
    other_providers: tuple[Workload, ...] | None = None
    """The Deployments that matter to the cloud provider, as they were read last."""
    has_service_lb: bool = False
    """Whether ServiceLB of K3s runs, as its DaemonSets were read last."""
    foreign: set[str] = field(default_factory=set)
    """The uids of Secrets of releases that kube-fip-operator did not make, so that helm is asked once."""
    began_at: float | None = None
    """When helm took the guest cluster up for the target that it was brought to last."""
    began_target: str = ""
    backoff: HelmBackoff | None = None
    chosen_at: float = -math.inf
    """When its labels chose its target instead of another one of the same rollout."""
    _chosen: tuple[object, tuple[Target, Target | None]] | None = None
    """The targets of this guest cluster, and what they were chosen from."""

    @property
    def taker(self) -> Taker | None:
        """Another controller that takes every Service, as far as that is known."""
        return find_taker(self.other_providers, has_service_lb=self.has_service_lb)

    def find_announced(self, floating_ips: Iterable[FloatingIP]) -> dict[FloatingIPName, AnnouncedState]:
        """Return what floating IPs show of announced addresses; of one that was not read yet, what its status says."""
        states = {}
        for each in floating_ips:
            state = self.announced_states.get(each.key)
            if state is None or state.addresses != each.status.addresses:
                state = restore_state(each.status)
            states[each.key] = state
        return states

    def choose_targets(
        self, cluster: ProvisioningCluster, target: Target, stable: Target | None
    ) -> tuple[Target, Target | None]:
        """Return two targets as they are for this guest cluster: chosen again only if it changed, or one of them."""
        chosen_from = (cluster, target, stable)
        if self._chosen is None or self._chosen[0] != chosen_from:
            own = target.for_guest(cluster)
            if self._chosen is not None and _is_moved(self._chosen[1][0].name, own.name):
                self.chosen_at = loop_time()
            self._chosen = chosen_from, (own, stable.for_guest(cluster) if stable is not None else None)
        return self._chosen[1]

    def backoff_seconds(self, target: str) -> float:
        """Return how long helm rests; nothing that failed with the target of another rollout counts."""
        found = self.backoff
        return max(found.until - loop_time(), 0.0) if found is not None and found.holds_up(target) else 0.0

    def describe_rest(self, target: str = "") -> str:
        """Return that helm rests because labels change again and again, as sentences; "" if it does not.

        With a `target`: whether that keeps helm from it.
        """
        found = self.backoff
        if found is None or not found.is_restless or found.until <= loop_time():
            return ""
        is_told = found.holds_up(target) if target else found.failures >= _OFTEN
        return _RESTLESS if is_told else ""

    def record_rest(self, target: str, errors: Mapping[str, FipopError], *, is_moved: bool = False) -> None:
        """Let helm rest after a turn in which it failed, repaired what it had made, or followed labels (`is_moved`)."""
        before, now = self.backoff, loop_time()
        is_again = (
            before is not None and before.is_about(target) and now - before.until < HELM_BACKOFF.limit_seconds
        )
        failures = (before.failures if before is not None and is_again else 0) + 1
        for error in errors.values():
            error.with_traceback(None)  # it would keep alive all that the run had in hand
        self.backoff = HelmBackoff(
            target=target,
            failures=failures,
            until=now + HELM_BACKOFF.step_seconds(failures),
            errors=errors,
            is_restless=is_moved or (before is not None and is_again and before.is_restless),
            may_go_on=is_moved and not errors,
        )

    def record_success(self, target: str) -> None:
        """Let helm go on after a change; what labels changed is remembered."""
        before = self.backoff
        is_restless = before is not None and before.is_restless and before.is_about(target)
        self.backoff = (
            replace(before, errors={}, may_go_on=True) if before is not None and is_restless else None
        )

    def record_turn(self, target: str) -> bool:
        """Record that helm takes the guest cluster up for a target; return whether its labels have changed it."""
        is_moved = _is_moved(self.began_target, target)
        if self.began_target != target:
            self.began_target, self.began_at = target, loop_time()
        return is_moved

    def end_turn(self) -> None:
        """Record that helm is done with the guest cluster, for now: what was seen before it is so no more."""
        self.observed, self.turn_ended_at = None, loop_time()

    def keep_observed(self, observed: Observed, began: float) -> None:
        """Keep what a visit saw for the turn of helm, unless helm changed it since the visit `began` to read."""
        if began >= self.turn_ended_at:
            self.observed, self.observed_at = observed, began

    def take_observed(self, places: Sequence[Release]) -> Observed | None:
        """Return what the last visit saw at these places, once, if helm can still go by it."""
        observed, self.observed = self.observed, None
        if observed is None or loop_time() - self.observed_at > FRESH_SECONDS:
            return None
        is_there = [str(each) for each in observed.releases] == [str(each) for each in places]
        return observed if is_there else None

    def find_error(self, release: Release) -> FipopError | None:
        """Return why helm failed for a release when it ran last."""
        return self.backoff.errors.get(str(release)) if self.backoff is not None else None

    def describe_failure(self, target: str) -> str:
        """Return why helm failed with a target when it ran last, as a clause; "" if it did not."""
        if self.backoff is None or self.backoff.target != target:
            return ""
        return "; ".join(map(str, self.backoff.errors.values()))

    def mark_foreign(self, releases: Iterable[Release]) -> tuple[Release, ...]:
        """Return releases with what helm said of them before."""
        return tuple(
            replace(each, owner=ReleaseOwner.OTHER)
            if each.record and each.record.uid in self.foreign
            else each
            for each in releases
        )


def _is_moved(before: str, target: str) -> bool:
    """Return whether two targets of a guest cluster differ by its overrides alone."""
    return before != target and bool(before) and before.partition(".")[0] == target.partition(".")[0]
