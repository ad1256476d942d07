"""What the last pass over a guest found, as the floating IPs of the guest tell it in their status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from fipop.api.conditions import Verdict
from fipop.api.models import ReleaseStatus
from fipop.errors import AddressConflictError, ChartError, InstallBlockedError
from fipop.guest.helm.charts import Role
from fipop.guest.reports import ConfigMapOutcome, PassReport, ReleaseReport
from fipop.texts import sentence

FloatingIPName = tuple[str, str]

_LEFT = {
    "RolloutPending": "the rollout has not reached this guest cluster",
    "RolledBack": "the rollout failed in this guest cluster and was rolled back",
}
"""Why a drift is left as it is."""
_TOLD = 3
"""So many claimants of an address a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The verdict on one aspect of a guest, with its reason and a sentence."""

    verdict: Verdict
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestObservation:
    """The last pass, or the reason why there was none.

    `reachable` is None while Rancher has not connected to a new guest cluster. `configured` tells by floating IP what
    its keys in the guest's ConfigMap came to, and `served` for which addresses; `unreachable`, where it is there, holds
    for all of them. `kube_vip` and `cloud_provider` are None where fipop installs nothing; `releases` is None where
    they were not seen.
    """

    reachable: bool | None
    unreachable: Finding | None = None
    configured: Mapping[FloatingIPName, Finding] = field(default_factory=dict)
    served: Mapping[FloatingIPName, tuple[str, ...]] = field(default_factory=dict)
    kube_vip: Finding | None = None
    cloud_provider: Finding | None = None
    releases: tuple[ReleaseStatus, ...] | None = None


def provisioning(*, installs: bool) -> GuestObservation:
    """Observe a new guest cluster to which Rancher has never connected: it is not expected to answer yet."""
    message = "Rancher has not connected to the new guest cluster yet."
    finding = Finding(verdict=Verdict.UNKNOWN, reason="GuestProvisioning", message=message)
    unseen = finding if installs else None
    return GuestObservation(reachable=None, unreachable=finding, kube_vip=unseen, cloud_provider=unseen)


def unreachable(reason: str, message: str, *, installs: bool) -> GuestObservation:
    """Observe a guest that no pass could be made over; `installs` tells whether fipop keeps releases there."""
    finding = Finding(verdict=Verdict.FALSE, reason=reason, message=sentence(message))
    unseen = replace(finding, verdict=Verdict.UNKNOWN) if installs else None
    return GuestObservation(reachable=False, unreachable=finding, kube_vip=unseen, cloud_provider=unseen)


def observe(
    report: PassReport,
    served: Mapping[FloatingIPName, tuple[str, ...]],
    *,
    installs: bool,
    contested: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    unknown_options: Iterable[str] = (),
    unreadable: str = "",
) -> GuestObservation:
    """Translate the report of a pass for the floating IPs that it was made for, and the addresses that they had.

    `contested` tells by address which other guests say that they carry it; `unknown_options` for want of which options
    nothing is done about releases; `unreadable` why the state of rollouts cannot be read.
    """
    if not report.reachable:
        message = str(report.error or f"guest cluster {report.guest_id} did not answer")
        return unreachable("GuestUnreachable", message, installs=installs)
    configured = {
        name: _configured(report, name, _claims(addresses, contested)) for name, addresses in served.items()
    }
    if installs and not report.releases:
        # The ConfigMap alone would make the guest look well.
        unseen = Finding(
            verdict=Verdict.UNKNOWN, reason="ReleasesUnseen", message=sentence(str(report.error or ""))
        )
        return GuestObservation(
            reachable=True, configured=configured, served=served, kube_vip=unseen, cloud_provider=unseen
        )
    judged = {each.role: judge_release(each, unknown_options, unreadable) for each in report.releases}
    return GuestObservation(
        reachable=True,
        configured=configured,
        served=served,
        kube_vip=judged.get(Role.KUBE_VIP),
        cloud_provider=judged.get(Role.CLOUD_PROVIDER),
        # In a guest that is left the status names what fipop may still have to remove, until that is gone.
        releases=tuple(each.release for each in report.releases)
        if installs or report.has_ours is False
        else None,
    )


def _claims(addresses: Iterable[str], contested: Mapping[str, tuple[str, ...]]) -> str:
    """Return which guest clusters claim an address that this one holds and carries: it changes nothing."""
    told = [
        f"Address {address} is also in use in guest cluster {', '.join(contested[address][:_TOLD])}. Remove it there."
        for address in addresses
        if address in contested
    ]
    return " ".join(told)


def _configured(report: PassReport, name: FloatingIPName, claims: str) -> Finding:
    config_map = report.config_map
    if isinstance(config_map.error, AddressConflictError):
        return Finding(
            verdict=Verdict.FALSE, reason="AddressConflict", message=sentence(str(config_map.error))
        )
    if config_map.error is not None:
        return Finding(verdict=Verdict.FALSE, reason="WriteFailed", message=sentence(str(config_map.error)))
    if config_map.outcome is ConfigMapOutcome.WITHHELD:
        message = f"No address was written to guest cluster {report.guest_id}: its reservation is not confirmed yet."
        return Finding(verdict=Verdict.FALSE, reason="OwnershipUnconfirmed", message=message)
    if config_map.outcome is ConfigMapOutcome.NOT_TRIED:
        message = sentence(str(report.error or "the ConfigMap kubevip of the guest cluster was not read"))
        return Finding(verdict=Verdict.FALSE, reason="NotTried", message=message)
    blocked = [key for key in config_map.blocked if name in key.floating_ips]
    if blocked:
        keys = ", ".join(key.name for key in blocked)
        message = (
            f"ConfigMap kubevip in the guest cluster has foreign values in {keys}. "
            'Remove them, or set annotation updateConfigMap: "true" to overwrite them.'
        )
        return Finding(verdict=Verdict.FALSE, reason="ForeignValue", message=message)
    contradicting = [each for each in config_map.contradictions if each.floating_ip == name]
    if contradicting:
        keys = ", ".join(each.key for each in contradicting)
        message = (
            f"An older FloatingIP of this guest cluster sets other values for {keys}, and those are in use. "
            "Set the same values in both."
        )
        return Finding(verdict=Verdict.FALSE, reason="Contradiction", message=message)
    return Finding(verdict=Verdict.TRUE, reason="Configured", message=claims)


def judge_release(
    report: ReleaseReport, unknown_options: Iterable[str] = (), unreadable: str = ""
) -> Finding:
    """Judge one release of a guest, for a condition of its floating IPs and for `fipop check`."""
    place = f"{report.release.namespace}/{report.release.name}"
    name = f"Release {place}"
    if report.error is not None:
        reason = (
            report.error.condition
            if isinstance(report.error, (ChartError, InstallBlockedError))
            else "ReleaseFailed"
        )
        text = str(report.error)
        message = sentence(text if place in text else f"{name} is not as configured: {text}")
        return Finding(verdict=Verdict.FALSE, reason=reason, message=message)
    readiness = report.readiness
    verdict = Verdict.TRUE if readiness.ready else Verdict.FALSE
    notes = [sentence(readiness.message)] if readiness.message else []
    if report.left_because:
        notes.append(f"{name} is left as it is ({report.drift}): {_LEFT[report.left_because]}.")
    elif report.drift:
        notes.append(f"{name} is left as it is ({report.drift}). Set kubevipUpdate: true to update it.")
    if report.doubt is not None:
        notes.append(f"{name} keeps its chart: {report.doubt}.")
    if report.renamed:
        notes.append(f"{name} keeps its name and namespace.")
    if report.beside:
        notes.append(f"Release {', '.join(report.beside[:_TOLD])} also runs kube-vip. Remove one.")
    reason = "Ready" if readiness.ready else "NotReady"
    if readiness.ready and report.doubt is not None:
        reason = report.doubt.condition
    elif readiness.ready and report.renamed:
        reason = "ReleaseNameChanged"
    elif readiness.ready and report.drift:
        reason = report.left_because or "Drift"
    if unreadable:
        reason = "RolloutUnreadable"
        notes.insert(
            0, f"The state of rollouts is not known, so fipop installs and upgrades nothing: {unreadable}."
        )
    if unknown_options:
        reason = "OptionUnknown"
        notes.insert(0, _describe_unknown(unknown_options))
    return Finding(verdict=verdict, reason=reason, message=" ".join(notes))


def _describe_unknown(options: Iterable[str]) -> str:
    """Return what bad options hold up."""
    return (
        f"ConfigMap kube-fip-config has no valid value of {', '.join(sorted(options))}: fipop installs, upgrades and "
        "removes nothing in guest clusters. Correct it."
    )
