"""What one visit of a guest cluster read and decided, and when the next one is due; `visits` has what a visit does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from fipop.addresses.in_use import InUseAddresses
from fipop.api.service import Service
from fipop.backoff import Backoff
from fipop.errors import ApiError, ConflictError, FipopError, GuestError
from fipop.guests.access import KubeconfigMissingError, NotConnectedError, explain_refusal
from fipop.guests.announced import AGAIN_SECONDS
from fipop.guests.config_map import ConfigMapResult, Outcome
from fipop.guests.desired import DesiredState
from fipop.guests.observed import Observed
from fipop.guests.record import GuestRecord
from fipop.guests.release_plan import SOON_SECONDS, Step, Verb
from fipop.jsons import Json
from fipop.rancher.discovery import retry_delay_seconds
from fipop.rancher.matching import Guest
from fipop.rollout.plan import ReleaseGoal

JUDGED_SECONDS = 30.0
"""How often a guest cluster is visited that a rollout judges."""
PROVISIONING_SECONDS = 3600.0
"""How long Rancher can take to make a new guest cluster until that is a fault."""
BOOT_SECONDS = 15.0
"""How often a guest cluster is asked while Rancher makes it; the end of that is an event."""
SECRET_BACKOFF = Backoff(first_seconds=0.5, limit_seconds=BOOT_SECONDS)
"""Rancher writes the kubeconfig of a guest cluster 2 s after it connected at the latest."""
YOUNG_SECONDS = 3600.0
"""How long a guest cluster counts as young, and how often its nodes and Deployments are read afterwards."""
NEW_SECONDS = 5.0
"""A new guest cluster is not expected to be reachable at once."""


@dataclass(slots=True)
class ErrorCollector:
    """The parts of a visit that failed without ending it: `first` is the first one's error."""

    first: FipopError | None = None

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Go on after a failure."""
        try:
            yield
        except (ApiError, GuestError) as error:
            self.first = self.first or error


@dataclass(slots=True, kw_only=True)
class Visit:
    """One session with a guest cluster: what it read, did and decided."""

    guest: Guest
    record: GuestRecord
    began: datetime
    was_tried: bool
    """Whether a status tells of an answer or a fault of it."""
    needs_machines: bool
    """Whether nodes, the API server and all Deployments are read."""
    errors: ErrorCollector = field(default_factory=ErrorCollector)
    config_maps: tuple[Json, ...] = ()
    services: tuple[Service, ...] = ()
    guest_now: datetime | None = None
    """What the clock of the guest cluster showed when its Services were read."""
    in_use: InUseAddresses = field(default_factory=InUseAddresses)
    observed: Observed | None = None
    """Its releases; None if there are none to look at, or they could not be read."""
    observed_at: float = 0.0
    is_unsure: bool = False
    """Whether a second reading shows who announces its addresses, and this one does not."""
    unseen: FipopError | None = None
    """Why they could not be read."""
    written: ConfigMapResult = field(default_factory=ConfigMapResult)
    parking: ErrorCollector = field(default_factory=ErrorCollector)
    goal: ReleaseGoal = field(default_factory=ReleaseGoal)
    steps: tuple[Step, ...] = ()

    @property
    def age_seconds(self) -> float:
        """How old the guest cluster is."""
        return (self.began - self.guest.cluster.metadata.creation_timestamp).total_seconds()

    @property
    def is_new(self) -> bool:
        """Whether Rancher may not have a way to it yet."""
        return self.age_seconds < NEW_SECONDS

    @property
    def is_young(self) -> bool:
        """Whether its nodes still change, and its Services are awaited."""
        return self.age_seconds < YOUNG_SECONDS

    @property
    def is_provisioning(self) -> bool:
        """Whether Rancher may still make it, so that no answer is no fault."""
        return self.age_seconds < PROVISIONING_SECONDS and not self.was_tried

    @property
    def is_booting(self) -> bool:
        """Whether it answers and takes no ConfigMap yet."""
        is_made = self.guest.provisioned or not self.is_provisioning
        return self.written.outcome is Outcome.FAILED and not is_made

    @property
    def needs_helm(self) -> bool:
        """Whether a release has to change."""
        return any(each.verb.needs_helm for each in self.steps)

    @property
    def error(self) -> FipopError | None:
        """Why the visit was not a whole one."""
        return self.written.error or self.unseen or self.parking.first or self.errors.first

    def expects(self, error: FipopError) -> bool:
        """Return whether an error tells of a guest cluster that is not connected, or has no kubeconfig yet."""
        lacks_secret = isinstance(error, KubeconfigMissingError) and error.is_absent
        return isinstance(error, NotConnectedError) or (lacks_secret and self.is_provisioning)

    def explain(self, error: FipopError) -> FipopError:
        """Return an error with the remedy, if there is one."""
        cluster = self.guest.cluster
        return explain_refusal(error, workspace=cluster.namespace, cluster_name=self.guest.cluster_name)

    def seconds_until_next(self, desired: DesiredState, *, is_judged: bool) -> float | None:
        """Return when to come back, if that is sooner than the interval; `is_judged`: by a rollout."""
        if self.is_booting:
            return BOOT_SECONDS
        waits: list[float | None] = [each.seconds for each in self.steps if each.verb is Verb.WAIT]
        unready = (each.release for each in self.steps if desired.keeps and each.release.problem)
        # Soon after a change often, later less and less. Without a release, helm has its visit.
        waits += [max(SOON_SECONDS, each.age_seconds / 2) for each in unready if each.revision]
        if is_judged and not self.needs_helm:
            waits.append(JUDGED_SECONDS)
        waits.append(self._second_reading_seconds())
        if self.written.outcome is Outcome.WITHHELD or isinstance(self.error, ConflictError):
            waits.append(SOON_SECONDS)
        if self.error is not None:
            waits.append(self._retry_seconds(self.error))
        return _find_soonest(waits)

    def seconds_until_retry(self, error: FipopError) -> float | None:
        """Return when to try again a visit that failed, if that is sooner than the interval."""
        seconds: float | None = None
        if self.expects(error) and isinstance(error, KubeconfigMissingError):
            seconds = SECRET_BACKOFF.step_seconds(self.record.failures)
        elif not self.expects(error):
            is_made = self.guest.provisioned or not self.is_provisioning
            seconds = self._retry_seconds(error) if is_made else BOOT_SECONDS
            if is_made and isinstance(error, ConflictError):
                seconds = SOON_SECONDS
        if self.is_new:
            return min(seconds or NEW_SECONDS, NEW_SECONDS)
        return _find_soonest([seconds, self._second_reading_seconds()])

    def _second_reading_seconds(self) -> float | None:
        """Return when to come back for what one reading has found of addresses, and their conditions do not show."""
        states = self.record.announced_states.values()
        has_doubt = any(each.doubt is not None for each in states)
        return AGAIN_SECONDS if has_doubt or self.is_unsure else None

    def _retry_seconds(self, error: FipopError) -> float | None:
        """Return when to try again what failed; None at the interval: an API server refuses the very object."""
        if isinstance(error, ApiError) and error.is_lasting:
            return None
        return retry_delay_seconds(self.age_seconds, self.record.failures)


def _find_soonest(waits: Iterable[float | None]) -> float | None:
    """Return the shortest of some waits; None stands for the interval."""
    return min((each for each in waits if each is not None), default=None)
