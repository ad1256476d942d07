"""What a pass is to do about one release of a guest: a decision, from values alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fipop.backoff import Backoff
from fipop.guest.helm.charts import ChartIdentity, WantedRelease, digest, same_by_admin, with_object_name
from fipop.guest.helm.releases import ReleaseState, Status

_BACKOFF = Backoff(first_seconds=30.0, limit_seconds=1800.0)


class Action(StrEnum):
    """What a pass does about a release."""

    NOTHING = "nothing"
    INSTALL = "install"
    UPGRADE = "upgrade"
    RETRY = "retry"
    REPAIR = "repair"
    """Take the record of a helm that died out of the way, then do as if that helm had never run."""
    WAIT = "wait"
    DRIFT = "drift"
    MEND = "mend"
    """Roll back to its own revision: what people deleted or changed is there again, and no chart is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do; `wait_seconds`: when to look again. `digest` is the wanted one (None: the chart is not known)."""

    action: Action
    digest: str | None = None
    wait_seconds: float | None = None


def is_renamed(state: ReleaseState, wanted: WantedRelease) -> bool:
    """Whether the release keeps a name or namespace that the settings no longer name."""
    return state.latest.key != (wanted.namespace, wanted.name)


def wanted_digest(state: ReleaseState | None, wanted: WantedRelease, chart: ChartIdentity) -> str:
    """Give the digest that the release should have, with the name that its objects have or would first get."""
    name = wanted.object_name or (state.object_name if state is not None else wanted.name)
    return digest(chart, with_object_name(wanted.values, name))


def decide(
    state: ReleaseState | None,
    wanted: WantedRelease,
    *,
    chart: ChartIdentity | None,
    update: bool,
    age_seconds: float,
    grace_seconds: float,
) -> Decision:
    """Say what a pass is to do about one release.

    `age_seconds`: how long ago its latest revision was made, by the guest's own clock. `grace_seconds`: how long
    a helm process may still be alive.
    """
    aim = wanted_digest(state, wanted, chart) if chart is not None else None
    if state is None:
        return Decision(action=Action.INSTALL, digest=aim)
    if state.latest.status.is_under_way:
        if age_seconds < grace_seconds:
            return Decision(action=Action.WAIT, digest=aim, wait_seconds=grace_seconds - age_seconds)
        return Decision(action=Action.REPAIR, digest=aim)
    if state.latest.status is not Status.DEPLOYED:
        delay = retry_delay_seconds(state.failures)
        # What failed with other values or another chart says nothing about these.
        is_same = aim is None or state.latest.digest in (None, aim)
        if is_same and age_seconds < delay:
            return Decision(action=Action.WAIT, digest=aim, wait_seconds=delay - age_seconds)
        return Decision(action=Action.RETRY, digest=aim)
    if chart is None or is_as_wanted(state, wanted, chart, aim):
        return Decision(action=Action.NOTHING, digest=aim)
    return Decision(action=Action.UPGRADE if update else Action.DRIFT, digest=aim)


def retry_delay_seconds(failures: int) -> float:
    """Give how long a failed release rests before it is tried again: 30 s, doubled each time, at most half an hour."""
    return _BACKOFF.step_seconds(failures)


def is_as_wanted(state: ReleaseState, wanted: WantedRelease, chart: ChartIdentity, aim: str | None) -> bool:
    """Whether a release was made by us from these values and this chart, or by the predecessor from the same."""
    if state.latest.digest is not None:
        return state.latest.digest == aim and state.latest.is_by_us
    # A predecessor's release is taken as it is: that our own additions are not in it is no reason to upgrade.
    found = state.description
    return (
        found is not None
        and found.chart_version.removeprefix("v") == chart.version.removeprefix("v")
        and same_by_admin(wanted.role, found.values, wanted.values)
    )
