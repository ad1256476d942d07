"""Leads rollouts: finds the target, has the plan decide, writes what it decided, and only then lets guests through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fipop.api import names
from fipop.errors import ApiError, ConflictError, FipopError
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.helm.targets import Target
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import PassReport
from fipop.operator.configuration import Configuration
from fipop.operator.queues import WorkQueues, request_routine_visit, request_visit
from fipop.operator.rollout.gates import GateKeeper
from fipop.operator.rollout.guest_health import begin_rollout, record_helm, record_loss, record_pass
from fipop.operator.rollout.plan import Notice, advance, begin, complete
from fipop.operator.rollout.progress import Phase, RolloutState, Step
from fipop.operator.rollout.store import RolloutStore
from fipop.operator.rollout.targets import Targets
from fipop.rancher.matching import Guest
from fipop.settings.options import Settings
from fipop.settings.values import RolloutType
from fipop.state.guest_health import GuestHealth
from fipop.state.guests import GuestDirectory, GuestState

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
IDLE_TICK_SECONDS = 5.0
WRITE_SECONDS = 10.0
"""How often the state is written where no phase changed."""
FIRST_LOOK_SECONDS = 60.0
"""So long canaries wait until all guests were looked at once: the ready ones are to go first."""


@dataclass(slots=True, kw_only=True)
class RolloutController:
    """One leader's rollouts. `now`: Unix time."""

    store: RolloutStore
    guests: GuestDirectory
    sessions: GuestSessions
    configuration: Configuration
    queues: WorkQueues
    fleet: Callable[[], Mapping[str, Guest]]
    """Returns the guests in which fipop keeps releases now, by id."""
    now: Callable[[], float]
    state: RolloutState | None = None
    targets: Targets = field(init=False)
    _loaded: bool = False
    _load_error: str = ""
    _written_at: float = 0.0
    _advanced_at: float | None = None
    _began_at: float = 0.0
    _refused: str = ""
    _blocked: str = ""

    def __post_init__(self) -> None:
        self.targets = Targets(store=self.store, sessions=self.sessions)

    async def run(self) -> None:
        """Lead rollouts until cancelled; what fails is tried again."""
        while True:
            try:
                await self.step()
            except FipopError as error:
                logger.warning("Could not continue rollout", extra={"error": str(error)})
                if isinstance(error, ConflictError):
                    self._loaded = False
            await asyncio.sleep(TICK_SECONDS if self._is_busy() else IDLE_TICK_SECONDS)

    def gate(self, guest: Guest) -> ReleaseGate:
        """Return what may be done about a guest's releases now."""
        settings = self.configuration.settings
        is_loading = settings.kubevip_rollout_type is RolloutType.PROGRESSIVE and not self._loaded
        if is_loading or settings.unknown_release_options:
            return ReleaseGate(is_open=False, unreadable=self._load_error if is_loading else "")
        state = self.state
        keeper = GateKeeper(
            settings=settings,
            state=state,
            current=self.targets.aim(state.target, settings) if state is not None else None,
            stable=self.targets.aim(state.stable, settings) if state is not None else None,
        )
        gate = keeper.gate(
            progress=state.guests.get(guest.id) if state is not None else None,
            at_current=self._is_at_target(guest.id),
            seen=self.guests.state(guest.id).health is not None,
        )
        return replace(gate, problems=self.targets.problems)

    def note(self, guest: GuestState, report: PassReport | None) -> None:
        """Record how a pass ended; None: there could be none."""
        if report is None:
            guest.health = record_loss(guest.health, self.now())
        else:
            target = self.state.target if self.state is not None else ""
            guest.health = record_pass(guest.health, report, target, self.now())

    def note_helm(self, guest: GuestState) -> None:
        """Record that helm begins to change a release of a guest cluster."""
        guest.health = record_helm(guest.health, self.now())

    def count_guests(self) -> dict[str, int]:
        """Count the guests of the fleet by their step: `pending` wait for their turn, `done` are at the target."""
        counts = dict.fromkeys(("pending", "done", *(step.value for step in Step)), 0)
        state = self.state
        if state is None:
            return counts
        for guest_id in self.fleet():
            progress = state.guests.get(guest_id)
            if progress is not None:
                counts[progress.step.value] += 1
            else:
                counts["done" if self._is_at_target(guest_id) else "pending"] += 1
        return counts

    async def step(self) -> None:
        """Go one step further, if there is one."""
        settings = self.configuration.settings
        if not self._loaded:
            await self._load()
        fleet = self.fleet()
        if settings.unknown_release_options:
            self._advanced_at = None  # the clocks of guests stand still
            return
        target = None
        if settings.kubevip_update and fleet:
            target = await self.targets.find(settings, self.state.target if self.state is not None else "")
        done = self.state.target if self.state is not None and not self.state.phase.is_active else ""
        if not (settings.kubevip_update and fleet) or (target is not None and target.name == done):
            self.targets.problems = {}  # nobody needs a chart
        self._tell_blocked(fleet)
        if target is None:
            return
        state, notices = self._follow(target, settings)
        if state.phase is not Phase.COMPLETED and self._may_choose(state, fleet):
            elapsed = self.now() - self._advanced_at if self._advanced_at is not None else 0.0
            members = self._members(state, fleet)
            blocked = bool(self.targets.problems)
            state, more = advance(state, members, settings, self.now(), elapsed=elapsed, blocked=blocked)
            notices = (*notices, *more)
        self._advanced_at = self.now()
        await self._publish(state, notices)
        await self.targets.keep_only(state.target, state.stable)

    def _tell_blocked(self, fleet: Mapping[str, Guest]) -> None:
        """Tell once where what the options ask for cannot be had; the conditions of all guests tell it, too."""
        blocked = "; ".join(str(error) for error in self.targets.problems.values())
        if blocked == self._blocked:
            return
        self._blocked = blocked
        if blocked:
            logger.warning("Rollout is blocked", extra={"error": blocked})
            message = f"The rollout is blocked, and guest clusters keep their releases: {blocked}."
            self._report(Notice("RolloutBlocked", message, is_warning=True))
        for guest_id in fleet:
            self.queues.add(request_routine_visit(guest_id))

    async def _load(self) -> None:
        try:
            await self.targets.load()
            self.state = await self.store.load()
        except ApiError as error:
            self._load_error = str(error)
            raise
        self._load_error = ""
        self._began_at = self.now()
        self._loaded = True

    def _follow(self, target: Target, settings: Settings) -> tuple[RolloutState, tuple[Notice, ...]]:
        """Begin the rollout of another target, or do what the annotation asks for."""
        state, now = self.state, self.now()
        notices: tuple[Notice, ...] = ()
        if state is None or state.target != target.name:
            state, notices = begin(state or self._recall(target), target.name, now)
        if settings.kubevip_rollout_type is RolloutType.ALL and state.phase is not Phase.COMPLETED:
            state, more = complete(state, f"Every guest cluster gets target {target.name} next.")
            return state, (*notices, *more)
        asked = self.configuration.annotations.get(names.ANNOTATION_ROLLOUT, "")
        if not asked:
            state = _replace_acted(state, "")
        elif asked != state.acted:
            state, more = self._act(asked, state, now)
            notices = (*notices, *more)
        return state, notices

    def _recall(self, target: Target) -> RolloutState | None:
        """Make the state again where it is gone: of the two targets that are kept the other one was the stable one."""
        others = [name for name in self.targets.known if name != target.name]
        if len(others) != 1:
            return None
        return RolloutState(
            number=0, target="", stable=others[0], phase=Phase.COMPLETED, started_at=self.now()
        )

    def _act(self, asked: str, state: RolloutState, now: float) -> tuple[RolloutState, tuple[Notice, ...]]:
        what, _, name = asked.partition("/")
        if what not in ("retry", "force") or name != state.target:
            if asked != self._refused:
                self._refused = asked
                self.configuration.complain(
                    "BadOption",
                    f"Annotation {names.ANNOTATION_ROLLOUT} must be retry/{state.target} or force/{state.target}: "
                    f"it is {asked[:100]!r}.",
                )
            return state, ()
        state = _replace_acted(state, asked)
        if what == "force" and state.phase is not Phase.COMPLETED:
            return complete(state, f"Target {name} is forced: every guest cluster gets it next.")
        if what == "retry" and state.phase is Phase.STOPPED:
            return begin(state, name, now)
        return state, ()

    def _may_choose(self, state: RolloutState, fleet: Mapping[str, Guest]) -> bool:
        if state.guests or state.phase is not Phase.CANARY:
            return True
        waited = self.now() - max(state.started_at, self._began_at)
        return waited >= FIRST_LOOK_SECONDS or all(
            self.guests.state(each).health is not None for each in fleet
        )

    def _is_at_target(self, guest_id: str) -> bool:
        """Whether both releases of a guest cluster were seen at the current target."""
        health = self.guests.state(guest_id).health
        return health is not None and self.state is not None and self.state.target in health.targets

    def _members(self, state: RolloutState, fleet: Mapping[str, Guest]) -> dict[str, GuestHealth]:
        found = {guest_id: self.guests.state(guest_id).health or GuestHealth() for guest_id in fleet}
        return {
            guest_id: replace(
                health,
                canary=fleet[guest_id].cluster.labels.get(names.LABEL_CANARY) == "true",
                joined=fleet[guest_id].cluster.created.timestamp() > state.started_at,
                at_target=state.target in health.targets,
            )
            for guest_id, health in found.items()
        }

    async def _publish(self, state: RolloutState, notices: tuple[Notice, ...]) -> None:
        """Write the state, then let it count: nothing is done in a guest that is not written down before."""
        before = self.state
        if state == before:
            return
        is_step = before is None or _landmarks(state) != _landmarks(before)
        if is_step or self.now() - self._written_at >= WRITE_SECONDS:
            await self.store.save(state)
            self._written_at = self.now()
        self.state = state
        if before is None or before.number != state.number:
            self._forget_rollout()
        for notice in notices:
            level = logging.WARNING if notice.is_warning else logging.INFO
            logger.log(level, "Rollout", extra={"reason": notice.reason, "target": state.target})
            self._report(notice)
        if is_step:
            self._wake_changed(before, state)

    def _forget_rollout(self) -> None:
        """Count nothing that was seen before, and let helm try everything again at once: another rollout begins."""
        for _, guest in self.guests.states():
            guest.release_memory.forget_failures()
            if guest.health is not None:
                guest.health = begin_rollout(guest.health, self.now())

    def _report(self, notice: Notice) -> None:
        self.configuration.complain(
            notice.reason, notice.message, is_warning=notice.is_warning, is_repeated=True
        )

    def _wake_changed(self, before: RolloutState | None, state: RolloutState) -> None:
        if state.phase is Phase.COMPLETED:
            for guest_id in self.fleet():
                self.queues.add(request_routine_visit(guest_id))
            return
        known = before.guests if before is not None else {}
        for guest_id, progress in state.guests.items():
            old = known.get(guest_id)
            if old is None or old.step is not progress.step or (before and before.phase is not state.phase):
                # One that goes back comes before all other work of helm.
                is_urgent = progress.step is Step.FAILED
                self.queues.add(request_visit(guest_id) if is_urgent else request_routine_visit(guest_id))

    def _is_busy(self) -> bool:
        state = self.state
        if state is None:
            return not self._loaded
        back = any(one.step in (Step.FAILED, Step.UPGRADING) for one in state.guests.values())
        return state.phase.is_active or (state.phase is Phase.STOPPED and back)


def _landmarks(state: RolloutState) -> object:
    """Return what has to be written before it counts: all but times, and how far those are that go on."""
    moving = (Step.ADMITTED, Step.UPGRADING)
    guests = {
        guest_id: one.step if one.step not in moving else None for guest_id, one in state.guests.items()
    }
    head = (state.number, state.target, state.stable, state.phase, state.wave, state.acted, state.reason)
    return head, guests


def _replace_acted(state: RolloutState, acted: str) -> RolloutState:
    return state if state.acted == acted else replace(state, acted=acted)
