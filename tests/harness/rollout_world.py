"""A fleet in memory under a real RolloutController, with a clock of its own.

Guests are fakes: they do what the gate lets a pass do, at once (helm takes `HELM_SECONDS`). What passes and helm really
do is for tests/api. The tests of this fleet assert the order, the stops and the ways back.

A test usually starts from `settled`: a fleet whose first rollout has completed. It is built once for each size and
options, and copied for each test, because building it costs more than most tests.
"""

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fipop.api.names import LABEL_OPT_IN
from fipop.api.objects import ReleaseStatus
from fipop.errors import ConflictError
from fipop.guest.errors import ChartError, HelmError, HelmFailure
from fipop.guest.helm.charts import ChartIdentity, ChartSource, Role
from fipop.guest.helm.targets import Target
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import ConfigMapReport, PassReport, ReleaseReport
from fipop.guest.workloads import Readiness
from fipop.operator.queues import Request
from fipop.operator.rollout.controller import RolloutController
from fipop.operator.rollout.plan import Notice
from fipop.operator.rollout.progress import RolloutState, parse_state, render_state
from fipop.rancher.matching import Guest
from fipop.runtime.workqueue import Priority
from fipop.settings.options import DEFAULTS, Settings, parse_settings, settings_data
from fipop.state.cache import ClusterCache
from tests.harness.every_guest import EveryGuest
from tests.harness.guests import START, build_guest, change_cluster

STEP_SECONDS = 4.0
HELM_SECONDS = 2.0
PASS_SECONDS = 20.0
"""The interval of passes, where the gate does not ask for sooner ones."""


def guest_of(name: str, *, created: datetime = START) -> Guest:
    return build_guest(name, name=name, created=created, labels={LABEL_OPT_IN: "true"})


@dataclass(slots=True)
class FakeGuest:
    """What stands in a guest: its revisions by role, each the name of a target ("" for something older).

    One that `is_locked` has a record of somebody's helm under way that is renewed again and again; one that
    `is_in_line` waits for its turn with helm.
    """

    revisions: dict[Role, list[str]] = field(default_factory=lambda: {role: ["old"] for role in Role})
    failed: dict[Role, bool] = field(default_factory=lambda: dict.fromkeys(Role, False))
    failed_runs: int = 0
    reachable: bool = True
    is_ready: bool = True
    crashes: int = 0
    is_locked: bool = False
    is_in_line: bool = False
    helm_until: float = 0.0
    due_at: float = 0.0

    def current(self, role: Role) -> str:
        return self.revisions[role][-1] if self.revisions[role] else "none"


class FakeStore:
    """ConfigMaps in memory; `writes` are all states that were written, in order."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None
        self.targets: dict[str, Target] = {}
        self.writes: list[RolloutState] = []
        self.fails = False

    async def load(self) -> RolloutState | None:
        return parse_state(self.data) if self.data is not None else None

    async def load_targets(self) -> dict[str, Target]:
        return dict(self.targets)

    async def save(self, state: RolloutState) -> None:
        if self.fails:
            raise ConflictError("patch ConfigMap fipop-rollout", status=409)
        self.data = render_state(state)
        self.writes.append(state)

    async def save_target(self, target: Target) -> None:
        self.targets[target.name] = target

    async def drop_target(self, name: str) -> None:
        self.targets.pop(name, None)


class FakeCharts:
    """Any chart; `content` changes with the source's version, `away` makes it unreachable.

    `keeps`: this process has kept what it got before, and has no need of the source.
    """

    def __init__(self) -> None:
        self.away = False
        self.keeps = False
        self.newest = "1.0.0"

    async def get(self, source: ChartSource, *, content: str = "") -> Any:
        del content
        if self.away and not self.keeps:
            raise ChartError(source=str(source), version=source.version, reason="away")
        version = source.version or self.newest
        identity = ChartIdentity(name=source.name, version=version, content=f"content-{version}")
        return type("Chart", (), {"identity": identity})()


class FakeSessions:
    def __init__(self) -> None:
        self.charts = FakeCharts()


class World:
    """A fleet, its clock, and one leader after another. `touched`: which guest got which target, in order."""

    def __init__(self, count: int, **options: str) -> None:
        self.now = START.timestamp() + 1000.0
        self.settings = self.options(kubevipUpdate="true", **options)
        self.guests = {f"c-{number:03}": FakeGuest() for number in range(count)}
        self.links = {name: guest_of(name) for name in self.guests}
        self.bad: dict[str, str] = {}
        """How a target behaves: refused (by helm), unready, crashing, silencing (the guest is lost)."""
        self.touched: list[tuple[str, str]] = []
        self.notices: list[Notice] = []
        self.urgent: set[str] = set()
        """The guests whose visit was requested before all others."""
        self.complaints: list[str] = []
        self.annotations: dict[str, str] = {}
        self.store = FakeStore()
        self.sessions = FakeSessions()
        self.network = True
        self.leader = self.lead()

    def options(self, **options: str) -> Settings:
        settings, bad = parse_settings(options, DEFAULTS)
        assert not bad, bad
        return settings

    def change(self, **options: str) -> None:
        """Change options as an admin does."""
        self.settings = self.options(**(settings_data(self.settings) | options))

    def lead(self) -> RolloutController:
        """Have another leader, which knows what is written and nothing else."""
        self.leader = RolloutController(
            store=self.store,  # type: ignore[arg-type]
            guests=EveryGuest(cache=ClusterCache(), client=None),  # type: ignore[arg-type]
            sessions=self.sessions,  # type: ignore[arg-type]
            configuration=self,  # type: ignore[arg-type]
            queues=self,  # type: ignore[arg-type]
            fleet=self.fleet,
            now=lambda: self.now,
        )
        return self.leader

    async def copy(self) -> "World":
        """Return another world with what the guests and the cluster of this one hold, and a leader that has read it.

        Nothing of the leader is copied. It has checked each guest once when the copy is returned.
        """
        other = World(0)
        other.now, other.settings = self.now, self.settings
        other.guests, other.links = deepcopy(self.guests), dict(self.links)
        other.store.data = dict(self.store.data) if self.store.data is not None else None
        other.store.targets = dict(self.store.targets)
        await other.run(PASS_SECONDS + STEP_SECONDS)
        return other

    # What the controller asks for

    def fleet(self) -> Mapping[str, Guest]:
        return {name: each for name, each in self.links.items() if not each.cluster.paused}

    def add(self, request: Request) -> None:
        self.guests[request.key.name].due_at = 0.0
        if request.priority is Priority.URGENT:
            self.urgent.add(request.key.name)

    def complain(self, reason: str, message: str, *, is_warning: bool = True, **_: object) -> None:
        if reason == "BadOption":
            self.complaints.append(message)
        else:
            self.notices.append(Notice(reason, message, is_warning=is_warning))

    # Time

    async def run(self, seconds: float) -> None:
        """Let that much time pass, step by step."""
        until = self.now + seconds
        while self.now < until:
            try:
                await self.leader.step()
            except ConflictError:
                self.leader = self.lead()
            for name, guest in self.guests.items():
                self._pass(name, guest)
            self.now += STEP_SECONDS
        await asyncio.sleep(0)

    async def run_until(self, phase: str, seconds: float = 20_000.0) -> None:
        """Let time pass until the rollout stands so."""
        until = self.now + seconds
        while self.now < until:
            await self.run(1)
            if self.state is not None and self.state.phase.value == phase:
                return
        raise AssertionError(f"no {phase} after {seconds} s: {self.state}")

    @property
    def state(self) -> RolloutState | None:
        return self.leader.state

    @property
    def target(self) -> str:
        assert self.state is not None
        return self.state.target

    def reasons(self) -> list[str]:
        return [notice.reason for notice in self.notices]

    def holding(self, target: str) -> set[str]:
        """The guests whose releases are both at a target."""
        return {n for n, g in self.guests.items() if all(g.current(role) == target for role in Role)}

    def got(self, target: str) -> list[str]:
        """The guests that a target was brought to, each once, in order."""
        return list(dict.fromkeys(name for name, what in self.touched if what == target))

    def _pass(self, name: str, guest: FakeGuest) -> None:
        link = self.links.get(name)
        if link is None or link.cluster.paused:
            return
        if self.now < max(guest.due_at, guest.helm_until):
            return
        gate = self.leader.gate(link)
        guest.due_at = self.now + min(PASS_SECONDS, gate.recheck_seconds or PASS_SECONDS)
        if not (guest.reachable and self.network):
            self.leader.note(self.leader.guests.state(name), None)
            return
        self._work(name, guest, gate)
        self.leader.note(self.leader.guests.state(name), self._report(guest, gate))

    def _work(self, name: str, guest: FakeGuest, gate: ReleaseGate) -> None:
        if gate.going_back is not None:
            leaving = gate.going_back.leaving.target.name
            for role in reversed(Role):
                revision = gate.going_back.revisions[role]
                if guest.current(role) == leaving and revision:
                    guest.revisions[role].append(guest.revisions[role][revision - 1])
                guest.failed[role] = False
            return
        if not gate.is_open or gate.aim is None or guest.is_locked or guest.is_in_line:
            return
        if self.sessions.charts.away and not self.sessions.charts.keeps:
            return
        aim = gate.aim.target.name
        for role in Role:
            is_new = not guest.revisions[role]
            if guest.current(role) == aim or not (gate.update or is_new):
                continue
            if gate.in_turn and role is Role.CLOUD_PROVIDER and not self._is_ready(guest):
                return
            self.leader.note_helm(self.leader.guests.state(name))
            self.touched.append((name, aim))
            guest.helm_until = self.now + HELM_SECONDS
            if self.bad.get(aim) == "refused":
                guest.failed[role] = True
                guest.failed_runs += 1
                return
            guest.revisions[role].append(aim)
            if self.bad.get(aim) == "silencing":
                guest.reachable = False
                return
            if gate.in_turn and role is Role.KUBE_VIP:
                guest.due_at = 0.0
                return

    def _report(self, guest: FakeGuest, gate: ReleaseGate) -> PassReport:
        if "crashing" in {self.bad.get(guest.current(role), "") for role in Role}:
            guest.crashes += 1
        ready = self._is_ready(guest)
        releases = tuple(
            ReleaseReport(
                release=ReleaseStatus(
                    role=role.value,
                    name=role.value,
                    namespace="kube-system",
                    revision=len(guest.revisions[role]),
                ),
                readiness=Readiness(ready=ready and bool(guest.revisions[role]), message=""),
                deployed_revision=len(guest.revisions[role]),
                targets=frozenset({guest.current(role)}) if not guest.failed[role] else frozenset(),
                failed_runs=guest.failed_runs,
                error=HelmError(action="upgrade", subject="x", failure=HelmFailure.RENDERING)
                if guest.failed[role]
                else None,
            )
            for role in Role
        )
        back = gate.going_back
        return PassReport(
            reachable=True,
            error=None,
            config_map=ConfigMapReport(),
            releases=releases,
            events=(),
            retry_after_seconds=None,
            restarts={"pod": guest.crashes},
            awaits_helm=guest.is_in_line,
            is_back=back is not None
            and all(guest.current(role) != back.leaving.target.name for role in Role),
        )

    def _is_ready(self, guest: FakeGuest) -> bool:
        return guest.is_ready and "unready" not in {self.bad.get(guest.current(role)) for role in Role}

    def pause(self, name: str) -> None:
        self.links[name] = change_cluster(self.links[name], paused=True)

    def resume(self, name: str) -> None:
        self.links[name] = change_cluster(self.links[name], paused=False)

    def join(self, name: str) -> None:
        self.links[name] = guest_of(name, created=datetime.fromtimestamp(self.now, UTC))
        self.guests[name] = FakeGuest(revisions={role: [] for role in Role})

    def label_canary(self, name: str) -> None:
        labels = {"kubefip.k8s.binbash.org/canary": "true"}
        self.links[name] = change_cluster(self.links[name], labels=labels)


_settled: dict[tuple[int, tuple[tuple[str, str], ...]], World] = {}
"""Fleets whose first rollout has completed, by size and options. Only copies leave this module."""


async def settled(count: int, **options: str) -> World:
    """Return a fleet whose first target is the stable one: each guest has it, and nothing is touched any more."""
    key = (count, tuple(sorted(options.items())))
    if key not in _settled:
        world = World(count, **options)
        asked = world.settings
        world.change(
            kubevipRolloutMaxConcurrency="100%"
        )  # two waves instead of many: they are not the subject yet
        await world.run_until("Completed")
        assert world.holding(world.target) == set(world.guests)
        world.settings = asked
        _settled[key] = world
    return await _settled[key].copy()
