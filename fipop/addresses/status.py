"""The status of a floating IP, built from what it holds, what stands in the way, and what the last visit found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fipop.addresses.decision import Decision, GuestBinding, bind_guest
from fipop.addresses.guests import LEAVING, GuestObservation
from fipop.addresses.inventory import Inventory
from fipop.addresses.range_selection import describe_mismatch
from fipop.addresses.request import Blocker
from fipop.api import names
from fipop.api.conditions import (
    Condition,
    ConditionContent,
    ConditionType,
    Verdict,
    find_condition,
    merge_conditions,
)
from fipop.api.objects import (
    FloatingIP,
    FloatingIPStatus,
    GuestStatus,
)
from fipop.errors import WRITE_REFUSED, ApiError
from fipop.helm.charts import Role
from fipop.ipam.addresses import format_address
from fipop.rancher.matching import NoRange
from fipop.rancher.objects import ProvisioningCluster

PENDING = ConditionContent(
    verdict=Verdict.UNKNOWN,
    reason="Pending",
    message="The FloatingIP waits for the reconciliation of its guest cluster.",
)
UNTOLD = ConditionContent(
    verdict=Verdict.UNKNOWN,
    reason="Pending",
    message="ConfigMap kubevip does not have the address yet.",
)
PAUSED = "Paused"
GOING = ConditionContent(
    verdict=Verdict.UNKNOWN, reason=LEAVING, message="Rancher is removing the guest cluster."
)
NO_ADDRESS = Blocker(reason="NoAddress", message="The FloatingIP has no address yet.")
CONFLICT = "AddressConflict"
RELEASE_CONDITIONS = {
    Role.KUBE_VIP: ConditionType.KUBE_VIP_READY,
    Role.CLOUD_PROVIDER: ConditionType.CLOUD_PROVIDER_READY,
}
MOST_NAMED = 3
"""How many other users of an address a message names."""
SUMMARIZED = (
    ConditionType.ALLOCATED,
    ConditionType.GUEST_CONFIGURED,
    ConditionType.KUBE_VIP_READY,
    ConditionType.CLOUD_PROVIDER_READY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusBuilder:
    """Builds statuses."""

    inventory: Inventory
    now: Callable[[], datetime]

    def build(self, floating_ip: FloatingIP, decision: Decision) -> FloatingIPStatus:
        """Build the whole status; the transition time of a condition stays where its verdict did.

        Without an observation (this process has made no visit yet) what was found earlier stays.
        """
        binding = bind_guest(self.inventory, floating_ip)
        record = self.inventory.records.get(floating_ip.namespace)
        observation = record.observation if record is not None else None
        addresses = tuple(format_address(claim.address) for claim in decision.holds)
        about_guest = _about_guest(
            floating_ip,
            binding,
            observation,
            addresses,
            rivals=self._describe_rivals(floating_ip, decision),
            mismatch=self._describe_mismatch(floating_ip, decision),
        )
        guest = _guest(floating_ip, binding, observation)
        is_leaving = self.inventory.is_leaving(floating_ip.namespace)
        if is_leaving:
            about_guest = [GOING.to_condition(ConditionType.GUEST_CONFIGURED)]
            guest = replace(guest, reachable=None) if guest is not None else None
        allocated = _allocated(addresses, decision.blockers)
        odd = (
            *floating_ip.spelling_warnings,
            *(binding.cluster.spelling_warnings if binding.cluster is not None else ()),
        )
        conditions = [replace(allocated, message=" ".join((allocated.message, *odd))), *about_guest]
        conditions.insert(0, _ready(conditions))
        before, follows_services = floating_ip.status, record is not None and record.follows_services
        if follows_services:  # what becomes of its Services, the list of them writes
            conditions += [each for each in before.conditions if each.type == ConditionType.DEMAND_MET]
        if binding.blocker is None and not is_leaving:
            conditions += _find_announced(floating_ip, observation, addresses)
        first = next(iter(decision.holds), None)
        generation = floating_ip.metadata.generation
        return FloatingIPStatus(
            addresses=addresses,
            range=first.range if first else None,
            address_space=first.space if first else None,
            guest=guest,
            services=before.services if follows_services else None,
            waiting=before.waiting if follows_services else None,
            unused=before.unused if follows_services else None,
            last_announced=self._find_last_announced(before, conditions),
            conditions=merge_conditions(
                floating_ip.status.conditions,
                [replace(condition, observed_generation=generation) for condition in conditions],
                self.now(),
            ),
            observed_generation=generation,
        )

    def build_refused(self, floating_ip: FloatingIP, error: ApiError) -> FloatingIPStatus:
        """Build the status of a floating IP whose claim or spec the API server refuses: all but the cause stays."""
        allocated = Condition(
            type=ConditionType.ALLOCATED,
            status=Verdict.FALSE,
            reason=WRITE_REFUSED,
            message=error.explain(),
            observed_generation=floating_ip.metadata.generation,
        )
        told, before = (ConditionType.READY, ConditionType.ALLOCATED), floating_ip.status.conditions
        rest = (each for each in before if each.type not in told)
        conditions = [replace(allocated, type=ConditionType.READY), allocated, *rest]
        merged = merge_conditions(before, conditions, self.now())
        return replace(floating_ip.status, conditions=merged)

    def _describe_mismatch(self, floating_ip: FloatingIP, decision: Decision) -> str:
        """Return which range of the addresses is of another network than the guest cluster; "" if none is."""
        guest = self.inventory.known(floating_ip.namespace)
        found = (describe_mismatch(self.inventory, guest, claim.range) for claim in decision.holds)
        return next(filter(None, found), "")

    def _find_last_announced(
        self, before: FloatingIPStatus, conditions: Sequence[Condition]
    ) -> datetime | None:
        was = find_condition(before.conditions, ConditionType.ANNOUNCED)
        now = find_condition(conditions, ConditionType.ANNOUNCED)
        has_left = was is not None and was.is_true and not (now is not None and now.is_true)
        return self.now() if has_left else before.last_announced

    def _describe_rivals(self, floating_ip: FloatingIP, decision: Decision) -> str:
        """Return which other guest clusters use an address that the floating IP holds, as sentences."""
        found = []
        for claim in decision.holds:
            rivals = sorted(self.inventory.find_rivals(floating_ip, claim.space, claim.address))
            if rivals:
                found.append(
                    f"Address {format_address(claim.address)} is also in use in guest cluster "
                    f"{', '.join(map(self.inventory.show_guest, rivals[:MOST_NAMED]))}. Remove it there."
                )
        return " ".join(found)


def find_fault(status: FloatingIPStatus, reason: str) -> str:
    """Return what `GuestConfigured` says if it has this reason; "" if it has another one."""
    found = find_condition(status.conditions, ConditionType.GUEST_CONFIGURED)
    return found.message if found is not None and found.reason == reason else ""


def find_pause(cluster: ProvisioningCluster | None, floating_ips: Iterable[FloatingIP]) -> str:
    """Return which object pauses a guest cluster, or one of these of it, as sentences; "" if none does."""
    objects = [f"FloatingIP {'/'.join(each.key)}" for each in floating_ips if each.paused]
    if cluster is not None and cluster.paused:
        objects.insert(0, f"Cluster {'/'.join(cluster.key)}")
    if not objects:
        return ""
    return (
        f"Annotation {names.ANNOTATION_PAUSED} of {objects[0]} pauses reconciliation. Remove it to continue."
    )


def _allocated(addresses: Sequence[str], blockers: Sequence[Blocker]) -> Condition:
    kept = [f"The FloatingIP keeps {', '.join(addresses)}."] if addresses else []
    messages = list(dict.fromkeys(each.message for each in blockers))
    serious = [each for each in blockers if not (each.is_tolerable and addresses)]
    if serious:
        return Condition(
            type=ConditionType.ALLOCATED,
            status=Verdict.FALSE,
            reason=serious[0].reason,
            message=" ".join([*messages, *kept]),
        )
    return Condition(
        type=ConditionType.ALLOCATED,
        status=Verdict.TRUE,
        reason="Allocated",
        message=" ".join([f"The FloatingIP holds {', '.join(addresses)}.", *messages]),
    )


def _about_guest(
    floating_ip: FloatingIP,
    binding: GuestBinding,
    observation: GuestObservation | None,
    addresses: tuple[str, ...],
    *,
    rivals: str,
    mismatch: str,
) -> list[Condition]:
    blocker = binding.blocker or (None if addresses else NO_ADDRESS)
    if blocker is not None:
        finding = ConditionContent(verdict=Verdict.FALSE, reason=blocker.reason, message=blocker.message)
        return [finding.to_condition(ConditionType.GUEST_CONFIGURED)]
    conflict = ConditionContent(verdict=Verdict.FALSE, reason=CONFLICT, message=rivals)
    pause = find_pause(binding.cluster, (floating_ip,))
    paused = ConditionContent(verdict=Verdict.UNKNOWN, reason=PAUSED, message=pause)
    if observation is None:
        earlier = [
            condition
            for condition in floating_ip.status.conditions
            if addresses == floating_ip.status.addresses
            and condition.type in SUMMARIZED
            and condition.type != ConditionType.ALLOCATED
            and condition.reason not in {PENDING.reason, PAUSED, CONFLICT}
            and not (rivals and condition.type == ConditionType.GUEST_CONFIGURED)
        ]
        if rivals:
            return [conflict.to_condition(ConditionType.GUEST_CONFIGURED), *earlier]
        unread = paused if pause else _mismatched(mismatch) if mismatch else PENDING
        return earlier or [unread.to_condition(ConditionType.GUEST_CONFIGURED)]
    configured = observation.unreachable or observation.configured.get(floating_ip.key, PENDING)
    if observation.unreachable is None and observation.served.get(floating_ip.key) != addresses:
        configured = paused if pause else UNTOLD
    if mismatch and (configured.verdict is Verdict.TRUE or configured in (PENDING, UNTOLD)):
        configured = _mismatched(mismatch)
    if rivals:
        configured = conflict
    conditions = [configured.to_condition(ConditionType.GUEST_CONFIGURED)]
    found = observation.conditions
    return conditions + [found[role].to_condition(RELEASE_CONDITIONS[role]) for role in Role if role in found]


def _mismatched(message: str) -> ConditionContent:
    return ConditionContent(verdict=Verdict.FALSE, reason=NoRange.OTHER_NETWORK.value, message=message)


def _find_announced(
    floating_ip: FloatingIP, observation: GuestObservation | None, addresses: tuple[str, ...]
) -> list[Condition]:
    """Return whether the addresses are announced: as it was before the first visit of this process."""
    before = find_condition(floating_ip.status.conditions, ConditionType.ANNOUNCED)
    if addresses != floating_ip.status.addresses or not addresses:
        return []
    if observation is None:
        return [before] if before is not None else []
    is_found = observation.served.get(floating_ip.key) == addresses
    found = observation.announced.get(floating_ip.key) if is_found else None
    return [found.to_condition(ConditionType.ANNOUNCED)] if found is not None else []


def _ready(conditions: Sequence[Condition]) -> Condition:
    """Sum up: the first condition that is not True tells why the whole is not."""
    for wanted in SUMMARIZED:
        for condition in conditions:
            if condition.type == wanted and not condition.is_true:
                return replace(condition, type=ConditionType.READY)
    return Condition(type=ConditionType.READY, status=Verdict.TRUE, reason="Ready")


def _guest(
    floating_ip: FloatingIP,
    binding: GuestBinding,
    observation: GuestObservation | None,
) -> GuestStatus | None:
    cluster, before = binding.cluster, floating_ip.status.guest
    if cluster is None or binding.blocker is not None:
        return replace(before, reachable=None) if before is not None else None
    if before is None or (observation is None and before.cluster != cluster.name):
        before = GuestStatus(cluster=cluster.name, id=floating_ip.namespace, reachable=None)
    if observation is None:
        return before
    return GuestStatus(
        cluster=cluster.name,
        id=floating_ip.namespace,
        reachable=observation.reachable,
        # What a guest had when it was seen last is still the best that is known.
        releases=before.releases if observation.releases is None else observation.releases,
    )
