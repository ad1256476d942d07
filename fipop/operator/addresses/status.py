"""The status of a floating IP, built from what is held, what stands in the way, and what the last pass found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fipop.api import names
from fipop.api.conditions import Condition, ConditionType, Verdict, merge_conditions
from fipop.api.models import FloatingIPStatus, GuestStatus, Removal, Reservation
from fipop.ipam.addresses import Family, format_address
from fipop.operator.addresses.values import Blocker, Facts, address_of
from fipop.state.observations import Finding

PENDING = Finding(
    verdict=Verdict.UNKNOWN,
    reason="Pending",
    message="The FloatingIP waits for the reconciliation of its guest cluster.",
)
UNTOLD = Finding(
    verdict=Verdict.UNKNOWN,
    reason="Pending",
    message="ConfigMap kubevip does not have the address yet.",
)
PAUSED = Finding(
    verdict=Verdict.UNKNOWN,
    reason="Paused",
    message=f"Reconciliation is paused by the annotation {names.ANNOTATION_PAUSED}. Remove it to continue.",
)
NO_ADDRESS = Blocker(reason="NoAddress", message="The FloatingIP has no address yet.")
REMOVAL_PENDING = "RemovalPending"
_RELEASES = (ConditionType.KUBE_VIP_READY, ConditionType.CLOUD_PROVIDER_READY)
SUMMARIZED = (ConditionType.ALLOCATED, ConditionType.GUEST_CONFIGURED, *_RELEASES)


def build_status(
    facts: Facts, held: Mapping[Family, Reservation], blockers: Sequence[Blocker]
) -> FloatingIPStatus:
    """Build the whole status; the transition time of a condition stays where its verdict did.

    Without an observation (this process has made no visit yet) what was found earlier stays.
    """
    floating_ip = facts.floating_ip
    generation = floating_ip.meta.generation
    addresses = tuple(format_address(address_of(held[family])) for family in sorted(held))
    guest = _guest(facts)
    conditions = [
        _allocated(addresses, blockers),
        *_about_releases(guest, _about_guest(facts, addresses)),
    ]
    conditions.insert(0, _ready(conditions))
    first = held[min(held)] if held else None
    return FloatingIPStatus(
        addresses=addresses,
        range=first.range if first else None,
        address_space=first.space if first else None,
        guest=guest,
        conditions=merge_conditions(
            floating_ip.status.conditions,
            [replace(condition, observed_generation=generation) for condition in conditions],
            facts.now,
        ),
        observed_generation=generation,
    )


def _allocated(addresses: Sequence[str], blockers: Sequence[Blocker]) -> Condition:
    kept = [f"The FloatingIP keeps {', '.join(addresses)}."] if addresses else []
    messages = list(dict.fromkeys(each.message for each in blockers))
    serious = [each for each in blockers if not (each.tolerable and addresses)]
    if serious:
        return Condition(
            type=ConditionType.ALLOCATED,
            verdict=Verdict.FALSE,
            reason=serious[0].reason,
            message=" ".join([*messages, *kept]),
        )
    return Condition(
        type=ConditionType.ALLOCATED,
        verdict=Verdict.TRUE,
        reason="Allocated",
        message=" ".join([f"The FloatingIP holds {', '.join(addresses)}.", *messages]),
    )


def _about_guest(facts: Facts, addresses: tuple[str, ...]) -> list[Condition]:
    floating_ip, binding, observation = facts.floating_ip, facts.binding, facts.observation
    blocker = binding.blocker or (None if addresses else NO_ADDRESS)
    if blocker is not None:
        finding = Finding(verdict=Verdict.FALSE, reason=blocker.reason, message=blocker.message)
        return [_condition(ConditionType.GUEST_CONFIGURED, finding)]
    paused = floating_ip.paused or (binding.cluster is not None and binding.cluster.paused)
    if observation is None:
        earlier = [
            condition
            for condition in floating_ip.status.conditions
            if addresses == floating_ip.status.addresses
            and condition.type in SUMMARIZED
            and condition.type is not ConditionType.ALLOCATED
            and condition.reason not in {PENDING.reason, PAUSED.reason, REMOVAL_PENDING}
        ]
        return earlier or [_condition(ConditionType.GUEST_CONFIGURED, PAUSED if paused else PENDING)]
    configured = observation.unreachable or observation.configured.get(floating_ip.meta.key, PENDING)
    if observation.unreachable is None and observation.served.get(floating_ip.meta.key) != addresses:
        configured = PAUSED if paused else UNTOLD
    conditions = [_condition(ConditionType.GUEST_CONFIGURED, configured)]
    if observation.kube_vip is not None:
        conditions.append(_condition(ConditionType.KUBE_VIP_READY, observation.kube_vip))
    if observation.cloud_provider is not None:
        conditions.append(_condition(ConditionType.CLOUD_PROVIDER_READY, observation.cloud_provider))
    return conditions


def _about_releases(guest: GuestStatus | None, conditions: list[Condition]) -> list[Condition]:
    """Show instead of how the releases stand that they are to be removed."""
    releases = own_releases(guest)
    if guest is None or guest.removal is not Removal.PENDING or not releases:
        return conditions
    message = (
        f"Removal of {releases} is pending: the cluster was opted out while kubevipGuestRemove is on. To keep them, "
        "opt it in again. If many clusters are opted out, fipop waits for a confirmation (docs/how-to/opt-out.md)."
    )
    pending = Finding(verdict=Verdict.UNKNOWN, reason=REMOVAL_PENDING, message=message)
    kept = [each for each in conditions if each.type not in _RELEASES]
    return [*kept, _condition(ConditionType.KUBE_VIP_READY, pending)]


def own_releases(guest: GuestStatus | None) -> str:
    """Return the names of the releases that fipop made in a guest, as its status has them: those with a digest."""
    releases = guest.releases if guest is not None else ()
    return ", ".join(f"{each.namespace}/{each.name}" for each in releases if each.digest)


def _ready(conditions: Sequence[Condition]) -> Condition:
    """Sum up: the first condition that is not True tells why the whole is not."""
    for wanted in SUMMARIZED:
        for condition in conditions:
            if condition.type is wanted and not condition.is_true:
                return replace(condition, type=ConditionType.READY)
    return Condition(type=ConditionType.READY, verdict=Verdict.TRUE, reason="Ready")


def _condition(kind: ConditionType, finding: Finding) -> Condition:
    return Condition(type=kind, verdict=finding.verdict, reason=finding.reason, message=finding.message)


def _guest(facts: Facts) -> GuestStatus | None:
    cluster, observation = facts.binding.cluster, facts.observation
    if cluster is None or facts.binding.blocker is not None:
        return None
    before = facts.floating_ip.status.guest
    if before is None or (observation is None and before.cluster != cluster.name):
        before = GuestStatus(cluster=cluster.name, id=facts.floating_ip.namespace, reachable=None)
    if observation is None:
        return replace(before, removal=facts.removal)
    return GuestStatus(
        cluster=cluster.name,
        id=facts.floating_ip.namespace,
        reachable=observation.reachable,
        # What a guest had when it was seen last is still the best that is known.
        releases=before.releases if observation.releases is None else observation.releases,
        removal=facts.removal,
    )
