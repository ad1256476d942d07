"""A fleet in memory that a rollout goes through, in virtual time, and the rules of rollouts as an oracle.

The oracle knows the fleet and what is written: which helm ran where, what each guest cluster shows, and the kept
`Rollout`. It knows nothing of how the plan decides. A broken rule raises `RuleBrokenError` when it breaks.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from fipop.helm.charts import Chart, Role, Target
from fipop.helm.releases import Release, Status
from fipop.helm.workloads import Workload
from fipop.rollout.member import Member
from fipop.rollout.plan import Phase, Progress, ReleaseGoal, Rollout, advance, begin, decide_goal, retry
from fipop.settings.options import DEFAULTS, Settings
from fipop.settings.values import Amount, FailureStrategy, RolloutType

LONGEST_SECONDS = 30_000.0
TICK_SECONDS = 5.0
JUDGED_TICK_SECONDS, QUIET_TICK_SECONDS = 10.0, 40.0
"""While helm runs nowhere and the leader knows the options: with guest clusters that are judged, and without."""
VISIT_SECONDS = 120.0
JUDGED_SECONDS = 30.0
VISITS_A_SECOND = 2.4
HELM_SECONDS = 5.0
DEAD_HELM_SECONDS = 330.0
FIRST_LOOK_SECONDS = 300.0
LEASE_SECONDS = 20.0
"""How long after a change the last Lease of the former kube-vip is live."""
BOOT_SECONDS = 20.0
VERDICT_SECONDS = 120.0
"""How long after a deadline a leader can take to decide, and another one to take over."""
SLACK_SECONDS = 200.0
"""How old the knowledge of a leader can be: the interval of visits, and how long visits wait for their turn."""
ROLES = ("kube-vip", "kube-vip-cloud-provider")
FOREIGN = "foreign"
READY = Workload(
    kind="DaemonSet",
    namespace="kube-system",
    name="pods",
    resource_version="1",
    release="",
    wanted=1,
    ready=1,
    observed=True,
)


class RuleBrokenError(AssertionError):
    """A rule of rollouts does not hold."""


@cache
def build_target(name: str) -> Target:
    """Return a target of that name; the plan knows no more of it."""
    charts = {role: Chart(role=role, url="https://charts.example", version=name) for role in Role}
    target = Target(charts=charts, values={key: {} for key in Role})
    object.__setattr__(target, "name", name)
    return target


@cache
def digests_of(target: str, label: str = "") -> Mapping[str, str]:
    """Return the digests of a target by role, in a guest cluster of a label.

    "B/2" has the kube-vip of "B", and another provider. "B|x1,y2" has an override of kube-vip for each of two labels.
    """
    base = target.partition("|")[0]
    own = "".join(f"+{each}" for each in sorted(entries_of(target, label)))
    return {ROLES[0]: base.split("/", maxsplit=1)[0] + own, ROLES[1]: base}


@cache
def entries_of(target: str, label: str) -> frozenset[str]:
    """Return the overrides of a target for a label."""
    entries = target.partition("|")[2].split(",")
    return frozenset(each for each in entries if label and each.startswith(label))


@cache
def own_name(target: str, label: str) -> str:
    """Return the name of a target for the guest clusters of a label."""
    entries = entries_of(target, label)
    return f"{target}.{'+'.join(sorted(entries))}" if entries else target


@cache
def build_own(target: str, label: str) -> Target:
    """Return a target as it is for the guest clusters of a label."""
    found = replace(build_target(target), part_of=target, entries=entries_of(target, label))
    object.__setattr__(found, "name", own_name(target, label))
    object.__setattr__(found, "digests", digests_of(target, label))
    return found


@dataclass(slots=True)
class Revision:
    """A revision of a release. `made_for`: the target it was made for; "" if fipop did not make it."""

    digest: str
    made_for: str
    at: float
    is_deployed: bool = True


@dataclass(slots=True, eq=False)
class ModelGuest:
    """A guest cluster. What it shows follows from its fields."""

    name: str
    history: dict[str, list[Revision]] = field(default_factory=lambda: {role: [] for role in ROLES})
    pods_since: dict[str, float] = field(default_factory=dict)
    """Since when the pods of a role are ready, by the time of the guest cluster."""
    bad: set[str] = field(default_factory=set)
    """Digests whose pods never get ready here."""
    dark: set[str] = field(default_factory=set)
    """Digests with which kube-vip is ready here and takes no address over."""
    announces: bool = True
    """Whether Services with endpoints use its addresses, and kube-vip announced them."""
    was_dark: bool = False
    """Whether its addresses are announced no more since before helm came."""
    refused: dict[str, str] = field(default_factory=dict)
    """Digests that helm cannot install here: "absent" leaves no revision, "failed" leaves one that is not deployed."""
    silenced_by: str = ""
    """A digest with which it cannot be reached any more."""
    is_sick: bool = False
    """A dead worker: pods of kube-vip are never all ready."""
    is_reachable: bool = True
    is_paused: bool = False
    has_floating_ip: bool = True
    is_ready_in_rancher: bool = True
    is_canary: bool = False
    has_other_kube_vip: bool = False
    is_locked: bool = False
    """By the helm of a CI job."""
    label: str = ""
    """By which an override fits it."""
    lies: str = ""
    """"ready": all pods have always been ready. "young": every revision is new."""
    unfit_since: float | None = None
    lost_since: float | None = None
    opened_at: float = 0.0

    def current(self, role: str) -> Revision | None:
        return self.history[role][-1] if self.history[role] else None

    @property
    def missing(self) -> list[str]:
        """The roles of which nothing was ever deployed."""
        return [role for role, each in self.history.items() if not any(one.is_deployed for one in each)]

    @property
    def is_new(self) -> bool:
        return len(self.missing) == len(self.history)

    def drifts_from(self, target: str) -> bool:
        """Whether anything that is deployed differs from a target."""
        digests = digests_of(target, self.label)
        there = {role: each[-1] for role, each in self.history.items() if role not in self.missing}
        return any(not one.is_deployed or one.digest != digests[role] for role, one in there.items())

    @property
    def is_open(self) -> bool:
        return not self.is_paused and self.has_floating_ip and self.is_ready_in_rancher

    def refuses(self, target: str) -> bool:
        """Whether helm cannot install something of a target here."""
        return not self.refused.keys().isdisjoint(digests_of(target, self.label).values())

    def is_at(self, target: str) -> bool:
        digests = digests_of(target, self.label)
        for role, revisions in self.history.items():
            if not (revisions and revisions[-1].digest == digests[role] and revisions[-1].is_deployed):
                return False
        return True

    def ready_seconds(self, now: float) -> float:
        """Return for how long all pods have been ready since helm ran."""
        ages = [now - each[-1].at for each in self.history.values() if each]
        if self.lies:
            return min(ages, default=0.0) if self.lies == "ready" else 0.0
        return min(self._ready_seconds(role, now) for role in ROLES)

    def dark_since(self, now: float) -> float | None:
        """Return when its addresses were announced last that are not any more; None if there is none."""
        newest = self.current(ROLES[0])
        if not self.announces or not self.is_reachable:
            return None
        if self.was_dark:
            return 0.0
        gone = newest.at + LEASE_SECONDS if newest is not None and newest.digest in self.dark else now + 1.0
        return gone if gone <= now else None

    def is_sound(self, now: float) -> bool:
        if self.lies == "ready":
            return True
        there = {role: each[-1] for role, each in self.history.items() if role not in self.missing}
        return all(one.is_deployed and self._ready_seconds(role, now) > 0 for role, one in there.items())

    def _ready_seconds(self, role: str, now: float) -> float:
        revisions = self.history[role]
        if not revisions or revisions[-1].digest in self.bad or (self.is_sick and role == ROLES[0]):
            return 0.0
        return max(now - self.pods_since.get(role, 0.0), 0.0)

    def replace_node(self, now: float) -> None:
        for role in ROLES:
            self.pods_since[role] = max(self.pods_since.get(role, 0.0), now + 2 * BOOT_SECONDS)

    def made_for(self) -> set[str]:
        return {each[-1].made_for.partition(".")[0] for each in self.history.values() if each}

    def put(self, role: str, revision: Revision) -> None:
        self.history[role].append(revision)
        self.pods_since[role] = revision.at + BOOT_SECONDS
        if self.silenced_by == revision.digest:
            self.is_reachable = False

    def own(self, target: str) -> str:
        """Return the name of a target for this guest cluster."""
        return own_name(target, self.label)

    def is_made_for(self, one: Revision, target: str) -> bool:
        return one.made_for == self.own(target)

    def is_moved(self, *targets: str) -> bool:
        """Whether a release was made for one of the targets and another label."""
        for each in self.history.values():
            made_for = each[-1].made_for if each else ""
            is_known = made_for.partition(".")[0] in filter(None, targets)
            if is_known and made_for not in map(self.own, targets):
                return True
        return False

    def is_changed(self, target: str, stable: str) -> bool:
        """Whether a target has anything else for it than the stable one; "" for none."""
        return not stable or digests_of(target, self.label) != digests_of(stable, self.label)

    def changed_entries(self, target: str, stable: str) -> frozenset[str]:
        if target == stable:
            return entries_of(target, self.label)
        if not self.is_changed(target, stable):
            return frozenset()
        return entries_of(target, self.label) ^ entries_of(stable, self.label)

    def show_releases(self, now: float, *, with_pods: bool) -> tuple[Release, ...]:
        """Return what a visit finds; nothing if it gets no answer."""
        return tuple(self._show(role, now, with_pods=with_pods) for role in Role) if self.is_reachable else ()

    def _show(self, role: Role, now: float, *, with_pods: bool) -> Release:
        others = ("DaemonSet kube-system/other",) if self.is_locked or self.has_other_kube_vip else ()
        place = Release(role=role, namespace="kube-system", name=role.value, conflicting_workloads=others)
        if not self.history[role]:
            return place
        *former, newest = self.history[role]
        age = 0.0 if self.lies == "young" else now - newest.at
        ready_seconds = {"ready": age, "young": 0.0}.get(self.lies, self._ready_seconds(role, now))
        are_ready = self.lies == "ready" or self._ready_seconds(role, now) > 0
        pods = READY if are_ready else replace(READY, ready=0)
        return replace(
            place,
            status=Status.DEPLOYED if newest.is_deployed else Status.FAILED,
            revision=len(self.history[role]),
            digest=newest.digest,
            made_for=newest.made_for,
            age_seconds=age,
            has_former=any(each.is_deployed for each in former),
            workloads=(pods,),
            ready_seconds=ready_seconds if with_pods else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How an administrator wants rollouts, and which archives can be had."""

    canaries: Amount
    max_concurrency: Amount
    max_failures: Amount
    soak_seconds: int = 120
    deadline_seconds: int = 600
    is_all: bool = False
    goes_back: bool = True
    is_paused: bool = False
    updates: bool = True
    is_blocked: bool = False
    has_stable: bool = True

    @property
    def settings(self) -> Settings:
        """The options of the product."""
        return replace(
            DEFAULTS,
            kubevip_update=self.updates,
            kubevip_rollout_type=RolloutType.ALL if self.is_all else RolloutType.PROGRESSIVE,
            kubevip_rollout_canaries=self.canaries,
            kubevip_rollout_max_concurrency=self.max_concurrency,
            kubevip_rollout_max_failures=self.max_failures,
            kubevip_rollout_min_success_seconds=self.soak_seconds,
            kubevip_rollout_progress_deadline_seconds=self.deadline_seconds,
            kubevip_rollout_failure_strategy=FailureStrategy.ROLLBACK
            if self.goes_back
            else FailureStrategy.STOP,
            kubevip_rollout_paused=self.is_paused,
        )


POLICY = Policy(canaries=Amount(2), max_concurrency=Amount(10, is_percent=True), max_failures=Amount(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an administrator asks for."""

    target: str
    policy: Policy
    retry: str = ""


class Leader:
    """The plan of the product, fed as its controller does it: with what is kept, and what its own visits found."""

    def __init__(self, kept: Rollout | None, guests: Mapping[str, ModelGuest], now: float) -> None:
        self.kept, self.guests = kept, guests
        self.progress = Progress(since=now)
        self.visited: dict[str, tuple[float, tuple[Release, ...], float | None]] = {}
        self.turns: dict[str, tuple[str, float]] = {}
        self.began_at = now
        self.next: tuple[Rollout | None, Progress] = (kept, self.progress)

    def step(self, options: Options, now: float) -> Rollout | None:
        """Return what is to be written; None if nothing is."""
        rollout, progress = self.kept, self.progress
        if rollout is None or rollout.target.name != options.target:
            rollout, progress = (
                begin(rollout, build_target(options.target)),
                Progress(since=now, began_here=True),
            )
        fleet = self._fleet(rollout.target.name, _name(rollout.stable), now)
        if options.retry and options.retry != rollout.retried:
            rollout = replace(rollout, retried=options.retry)
            if options.retry == f"retry/{rollout.target.name}":
                rollout, progress = retry(rollout, fleet, progress, now)
        policy = options.policy
        progress = replace(progress, is_blocked=policy.is_blocked, has_stable=policy.has_stable)
        rollout, progress = advance(rollout, fleet, progress, policy.settings, now)
        self.next = (rollout, progress)
        return rollout if rollout != self.kept else None

    def apply(self) -> None:
        """Let what was decided count: it is written."""
        self.kept, self.progress = self.next

    def note(self, guest: ModelGuest, now: float) -> None:
        with_pods = self.is_admitted(guest.name)
        shown = guest.show_releases(now, with_pods=with_pods)
        self.visited[guest.name] = (now, shown, guest.dark_since(now))

    def note_turn(self, guest: ModelGuest, target: str, now: float) -> None:
        own = guest.own(target)
        if self.turns.get(guest.name, ("", 0.0))[0] != own:
            self.turns[guest.name] = (own, now)

    def goal(self, guest: ModelGuest, options: Options, now: float) -> ReleaseGoal:
        if self.kept is None:
            return ReleaseGoal()
        target, stable = self.kept.target.name, _name(self.kept.stable)
        shown, dark = guest.show_releases(now, with_pods=False), guest.dark_since(now)
        member = self._look(guest, now, shown, dark, target, stable)
        policy = options.policy
        progress = replace(self.progress, is_blocked=policy.is_blocked, has_stable=policy.has_stable)
        return decide_goal(guest.name, member, self.kept, progress, policy.settings)

    def is_admitted(self, name: str) -> bool:
        return name in self.progress.admitted

    def _look(
        self,
        guest: ModelGuest,
        visited_at: float | None,
        releases: tuple[Release, ...],
        dark_since: float | None,
        target: str,
        stable: str,
    ) -> Member:
        """Return a guest cluster as a visit showed it."""
        own, at = self.turns.get(guest.name, ("", 0.0))
        return Member(
            target=build_own(target, guest.label),
            stable=build_own(stable, guest.label) if stable else None,
            releases=releases,
            visited_at=visited_at,
            taken_up_at=at if own == guest.own(target) else None,
            hindrance="" if guest.is_open else "It is not open.",
            dark_since=dark_since,
            is_canary=guest.is_canary,
        )

    def _fleet(self, target: str, stable: str, now: float) -> dict[str, Member]:
        is_late = now - self.began_at >= FIRST_LOOK_SECONDS
        nothing = (now if is_late else None, (), None)
        return {
            name: self._look(guest, *self.visited.get(name, nothing), target, stable)
            for name, guest in self.guests.items()
        }


@dataclass(slots=True)
class Epoch:
    """What the oracle notes of one target since it was begun."""

    target: str
    stable: str = ""
    touched: dict[str, float] = field(default_factory=dict)
    """By guest cluster, when helm first began with the target there."""
    shown: dict[str, float] = field(default_factory=dict)
    """Those that showed success to a visit."""
    filled: set[str] = field(default_factory=set)
    """Those that showed that what they lacked is ready, while the rest stays as it is."""
    retried: set[str] = field(default_factory=set)


class World:
    """The fleet, its clock, one leader after another, and the oracle."""

    def __init__(
        self,
        guests: list[ModelGuest],
        *,
        target: str = "A",
        policy: Policy = POLICY,
        helms: int = 4,
        seed: int = 0,
    ) -> None:
        self.now = 10_000.0
        self.random = random.Random(seed)
        self.guests = {each.name: each for each in guests}
        self.options = self.stepped = Options(target=target, policy=policy)
        self.kept: Rollout | None = None
        self.helms = helms
        self.writes = 0
        self.kill_at: dict[int, str] = {}
        self.helm_runs: list[tuple[float, str, str, str]] = []
        """When, where, what (upgrade, rollback, uninstall), and the target."""
        self.refusals: set[tuple[str, str]] = set()
        """Guest clusters and roles for which helm failed last: the other role is next."""
        self.last_write = self.now
        self.epoch = Epoch(target)
        self.leader: Leader | None = None
        self.back_at = 0.0
        self.start_leader()

    # What happens to leaders

    def start_leader(self) -> None:
        self.leader = Leader(self.kept, self.guests, self.now)
        self.lead_at = self.now
        self.asked: dict[str, tuple[float, bool, bool]] = {}
        """By guest cluster, its last visit by this leader: when, whether it answered, whether it showed success."""
        self.due: dict[str, float] = dict.fromkeys(self.guests, self.now)
        self.queue: list[str] = []
        self.running: dict[str, tuple[float, str, str, ReleaseGoal]] = {}

    def kill_leader(self, away_seconds: float = 15.0) -> None:
        for name, (_, role, verb, goal) in self.running.items():
            guest, fate = self.guests[name], self.random.randrange(3)
            if fate == 0:
                self._finish(guest, role, verb, goal)
            elif fate == 1 and verb == "upgrade" and goal.target is not None and guest.is_reachable:
                target = _name(goal.target)
                digest = digests_of(target, guest.label)[role]
                dead = Revision(digest, guest.own(target), self.now, is_deployed=False)
                guest.put(role, dead)
        self.running = {}
        self.leader, self.back_at = None, self.now + away_seconds

    def move(self, name: str, label: str) -> None:
        """Give a guest cluster another label."""
        guest = self.guests[name]
        before, guest.label = guest.own(self.epoch.target), label
        if guest.own(self.epoch.target) != before:
            self.epoch.touched.pop(name, None)
            self.epoch.shown.pop(name, None)
            self.epoch.filled.discard(name)

    # Time

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.tick()

    def run_until(self, phase: Phase) -> None:
        until = self.now + LONGEST_SECONDS
        while self.now < until:
            self.tick()
            if (
                self.kept is not None
                and self.kept.phase is phase
                and self.kept.target.name == self.options.target
            ):
                return
        raise RuleBrokenError(f"no {phase} within {LONGEST_SECONDS} s: {self.kept}")

    def tick(self) -> None:
        is_busy = self.queue or self.running or self.now - self.last_write < 60.0
        if is_busy or self.leader is None or self.options is not self.stepped:
            seconds = TICK_SECONDS
        else:
            is_judged = any(map(self.leader.is_admitted, self.guests))
            seconds = JUDGED_TICK_SECONDS if is_judged else QUIET_TICK_SECONDS
        self.now += seconds
        for guest in self.guests.values():
            self._note_fitness(guest)
        if self.leader is None:
            if self.now < self.back_at:
                return
            self.start_leader()
        if not self._step():
            return
        self._end_helms()
        self._visit(int(VISITS_A_SECOND * seconds))
        self._run_helms()

    def _step(self) -> bool:
        assert self.leader is not None
        self.stepped = self.options
        wanted = self.leader.step(self.options, self.now)
        if wanted is not None:
            self.writes += 1
            fate = self.kill_at.get(self.writes, "")
            if fate == "before":
                self.kill_leader()
                return False
            before, self.kept, self.last_write = self.kept, wanted, self.now
            self._check_write(before, wanted)
            if fate == "after":
                self.kill_leader()
                return False
        self.leader.apply()
        for name in self.guests:
            self.due.setdefault(name, self.now)
            if self.leader.is_admitted(name):
                self.due[name] = min(self.due[name], self.asked.get(name, (0.0,))[0] + JUDGED_SECONDS)
        if wanted is not None:
            self.due = dict.fromkeys(self.guests, self.now)
        return True

    def _visit(self, most: int) -> None:
        assert self.leader is not None
        ready = sorted((at, name) for name, at in self.due.items() if at <= self.now and name in self.guests)
        for _, name in ready[:most]:
            guest = self.guests[name]
            self.leader.note(guest, self.now)
            success = guest.is_reachable and self._shows_success(guest)
            if success and (self.leader.is_admitted(name) or name in self.epoch.shown):
                self.epoch.shown.setdefault(name, self.now)
            if guest.is_reachable and self.leader.is_admitted(name) and self._shows_filled(guest):
                self.epoch.filled.add(name)
            self.asked[name] = (self.now, guest.is_reachable, success)
            self.due[name] = self.now + VISIT_SECONDS * self.random.uniform(0.9, 1.0)
            if guest.is_reachable and self._next(guest) is not None and name not in self.queue:
                self.queue.append(name)

    # helm

    def _next(self, guest: ModelGuest) -> tuple[str, str, ReleaseGoal] | None:
        """Return the role, the verb and the goal of the next step of helm."""
        assert self.leader is not None
        if guest.is_paused or not guest.has_floating_ip:
            return None
        goal = self.leader.goal(guest, self.options, self.now)
        for role in sorted(ROLES, key=lambda each: (guest.name, each) in self.refusals):
            one = guest.current(role)
            if guest.is_locked and one is not None:
                continue
            if one is not None and not one.is_deployed and self.now - one.at < DEAD_HELM_SECONDS:
                continue
            leaves = _name(goal.leaves) if goal.may_change else ""
            is_kept = goal.keeps_first and len(guest.history[role]) == 1
            if one is not None and leaves and guest.is_made_for(one, leaves) and not is_kept:
                return role, "rollback", goal
            if goal.target is None:
                continue
            if one is None:
                if guest.has_other_kube_vip and guest.is_new:
                    continue
                return role, "upgrade", goal
            is_at = one.digest == digests_of(_name(goal.target), guest.label)[role]
            if not one.is_deployed or (not is_at and goal.may_change):
                return role, "upgrade", goal
        return None

    def _run_helms(self) -> None:
        assert self.leader is not None
        while self.queue and len(self.running) < self.helms:
            name = self.queue.pop(0)
            guest = self.guests.get(name)
            if guest is None or name in self.running or not guest.is_reachable:
                continue
            found = self._next(guest)
            if found is None:
                continue
            role, verb, goal = found
            target = _name(goal.target)
            self.leader.note_turn(guest, target, self.now)
            self._check_helm(guest, role, verb, goal)
            self.helm_runs.append((self.now, name, verb, target))
            self.running[name] = (self.now + HELM_SECONDS, role, verb, goal)

    def _end_helms(self) -> None:
        for name, (until, role, verb, goal) in list(self.running.items()):
            if until <= self.now:
                del self.running[name]
                if name in self.guests:
                    self._finish(self.guests[name], role, verb, goal)
                    self.due[name] = self.now

    def _finish(self, guest: ModelGuest, role: str, verb: str, goal: ReleaseGoal) -> None:
        if not guest.is_reachable:
            return
        if verb == "upgrade" and goal.target is not None:
            digest = digests_of(_name(goal.target), guest.label)[role]
            fate = guest.refused.get(digest, "")
            self.refusals.discard((guest.name, role))
            if fate:
                self.refusals.add((guest.name, role))
            if fate != "absent":
                made = Revision(digest, guest.own(_name(goal.target)), self.now, is_deployed=not fate)
                guest.put(role, made)
        elif verb == "rollback" and goal.leaves is not None:
            former = [each for each in guest.history[role] if not guest.is_made_for(each, _name(goal.leaves))]
            if former:
                guest.put(role, replace(former[-1], at=self.now, made_for=FOREIGN))
            else:
                guest.history[role] = []

    # The oracle

    def _shows_success(self, guest: ModelGuest) -> bool:
        soak = self.options.policy.soak_seconds
        is_ready = guest.is_sound(self.now) and guest.ready_seconds(self.now) >= soak
        dark_since, began_at = guest.dark_since(self.now), self.epoch.touched.get(guest.name, 0.0)
        is_dark = dark_since is not None and dark_since >= began_at
        return guest.is_at(self.epoch.target) and is_ready and not is_dark

    def _shows_filled(self, guest: ModelGuest) -> bool:
        is_ready = (
            guest.is_sound(self.now) and guest.ready_seconds(self.now) >= self.options.policy.soak_seconds
        )
        return self._is_filled(guest) and is_ready

    def _is_filled(self, guest: ModelGuest) -> bool:
        """Whether nothing is missing, and the rest cannot change."""
        is_whole = all(each and each[-1].is_deployed for each in guest.history.values())
        return is_whole and not self.options.policy.updates and not guest.is_at(self.epoch.target)

    def _note_fitness(self, guest: ModelGuest) -> None:
        """Note since when a guest cluster must not be admitted, and since when it cannot be reached."""
        if guest.is_reachable:
            guest.lost_since = None
        elif guest.lost_since is None:
            guest.lost_since = self.now
        if not guest.is_open:
            guest.opened_at = self.now
        if self._is_fit(guest):
            guest.unfit_since = None
        elif guest.unfit_since is None:
            guest.unfit_since = self.now

    def _is_fit(self, guest: ModelGuest) -> bool:
        """Whether a guest cluster takes part: rule 4."""
        kept = self.kept
        if not (guest.is_reachable and guest.is_open) or guest.is_locked or guest.has_other_kube_vip:
            return False
        if guest.is_new or guest.is_sound(self.now):
            return True
        hurt = kept is not None and bool(guest.made_for() & set(kept.unproven))
        return hurt or (
            kept is not None and (kept.takes_unready or guest.is_moved(kept.target.name, _name(kept.stable)))
        )

    def _is_completed(self) -> bool:
        return self.kept is not None and self.kept.is_stable

    def _has_failed(self, name: str) -> bool:
        """Whether a guest cluster failed with what its label chooses now."""
        kept, guest = self.kept, self.guests.get(name)
        return kept is not None and guest is not None and kept.failed.get(name) == guest.own(kept.target.name)

    def _is_under_way(self, name: str, since: float) -> bool:
        guest, deadline = self.guests.get(name), self.options.policy.deadline_seconds
        assert self.kept is not None
        is_over = (
            self._has_failed(name)
            or name in self.epoch.shown
            or since + deadline + VERDICT_SECONDS <= self.lead_at
        )
        if guest is not None and self._is_filled(guest):
            is_over = is_over or name in self.epoch.filled or since < self.lead_at
        # A leader that has not seen it cannot count it, nor one that it lies to about its age.
        was_lost = guest is None or not guest.is_reachable or guest.lies != ""
        was_lost = was_lost or (since < self.lead_at and not self.asked.get(name, (0.0, False))[1])
        return not (is_over or was_lost or guest is None or not guest.is_open)

    def _affected(self) -> dict[str, ModelGuest]:
        """Return the guest clusters that the target changes; all if it changes none."""
        target, stable = self.epoch.target, self.epoch.stable
        return {
            name: each for name, each in self.guests.items() if each.is_changed(target, stable)
        } or self.guests

    def _count_succeeded(self) -> int:
        """Return how many can be known to have succeeded, at most."""
        return sum(each.is_at(self.epoch.target) for each in self._affected().values())

    def _find_untested(self, names: Iterable[str], failed: Collection[str]) -> frozenset[str]:
        """Return the changed overrides of some guest clusters that succeeded in none for sure."""
        target, stable, guests = self.epoch.target, self.epoch.stable, self.guests
        wanted = [guests[each].changed_entries(target, stable) for each in names if each in guests]
        tested = [
            each.changed_entries(target, stable)
            for name, each in guests.items()
            if each.is_at(target) and name not in failed
        ]
        return frozenset().union(*wanted) - frozenset().union(*tested)

    def _check_helm(self, guest: ModelGuest, role: str, verb: str, goal: ReleaseGoal) -> None:
        kept, policy, name = self.kept, self.options.policy, guest.name
        assert kept is not None, "nothing is done before it is written"
        target = _name(goal.target)
        is_back_allowed = policy.goes_back and policy.updates and not policy.is_paused
        if verb == "rollback":
            self._demand(self._has_failed(name) and is_back_allowed, f"{name} goes back, but has not failed")
            revisions = guest.history[role]
            self._demand(
                any(not guest.is_made_for(each, kept.target.name) for each in revisions)
                or (guest.is_made_for(revisions[0], kept.target.name) and not self._is_completed()),
                f"{name} loses what the target did not make, or made when it was completed",
            )
            return
        current = guest.current(role)
        is_repair = current is None or not current.is_deployed
        self._demand(policy.updates or is_repair, f"{name} is deployed and changed although updates are off")
        if target != kept.target.name:
            hurt = kept.phase is Phase.STOPPED and not guest.is_sound(self.now)
            hurt = hurt and bool(guest.made_for() & set(kept.unproven))
            is_stable = kept.stable is not None and kept.stable.name == target
            is_allowed = is_repair or ((self._has_failed(name) or hurt) and is_back_allowed)
            self._demand(
                is_stable and is_allowed, f"{name} gets {target}, neither the target nor where it goes back"
            )
            # What succeeded, or runs well, is not downgraded.
            is_well = name in self.epoch.shown and not self._has_failed(name)
            self._demand(not is_well, f"{name} had succeeded and is changed")
            return
        if name in self.epoch.touched or guest.is_at(target):
            return
        is_stable_install = kept.stable is not None and kept.stable.name == target and is_repair
        if is_stable_install or policy.is_all:
            if not is_stable_install:
                self.epoch.touched[name] = self.now
            return
        if any(each and guest.is_made_for(each[-1], target) for each in guest.history.values()):
            return  # an earlier leader or an earlier rollout of this target has begun it
        self._check_admission(guest)
        self.epoch.touched[name] = self.now

    def _check_admission(self, guest: ModelGuest) -> None:
        kept, policy, name = self.kept, self.options.policy, guest.name
        assert kept is not None
        self._demand(kept.phase is not Phase.STOPPED, f"{name} is admitted although the rollout stopped")
        self._demand(not policy.is_paused, f"{name} is admitted although rollouts are paused")
        self._demand(not policy.is_blocked, f"{name} is admitted although a chart is missing")
        self._demand(policy.updates or bool(guest.missing), f"{name} is changed although updates are off")
        self._demand(not self._has_failed(name), f"{name} failed and is admitted again")
        unfit = guest.unfit_since if not self._is_fit(guest) else None
        self._demand(
            unfit is None or self.now - unfit < SLACK_SECONDS, f"{name} takes no part and is admitted"
        )
        size = len(self.guests)
        canaries = max(1, policy.canaries.of(size))
        most = max(canaries, self._count_succeeded())
        begun = [*self.epoch.touched, name]
        if untested := self._find_untested(begun, kept.failed):
            # Canaries: as many as the option says, and one for each changed override.
            entries = [
                each.changed_entries(self.epoch.target, self.epoch.stable) for each in self.guests.values()
            ]
            most = canaries + len(frozenset().union(*entries))
            new = guest.changed_entries(self.epoch.target, self.epoch.stable)
            well = sum(self.guests[each].is_at(self.epoch.target) for each in begun if each in self.guests)
            self._demand(
                bool(new & untested) or well < canaries,
                f"{name} is admitted although {untested} have not succeeded",
            )
        limit = min(max(1, policy.max_concurrency.of(size)), most)
        others = [each for each, since in self.epoch.touched.items() if self._is_under_way(each, since)]
        self._demand(len(others) < limit, f"{name} is admitted beside {others}, the limit is {limit}")

    def _check_write(self, before: Rollout | None, after: Rollout) -> None:
        if before is None or before.target.name != after.target.name:
            stable = before.stable if before is not None else None
            self.epoch = Epoch(after.target.name, _name(stable))
            self._demand(
                _name(after.stable) == _name(stable) or after.phase is Phase.COMPLETED, "stable changed"
            )
            before = replace(after, failed={}, phase=Phase.PROGRESSING)
        retried = before.retried != after.retried
        if retried:
            self.epoch.retried = set(before.failed)
            for each in before.failed:
                self.epoch.touched.pop(each, None)
        is_reset = retried or self.options.policy.is_all
        self._demand(is_reset or before.failed.keys() <= after.failed.keys(), "a failure is forgotten")
        for name in after.failed.keys() - before.failed.keys():
            self._check_failure(name)
        if before.phase is Phase.STOPPED and after.phase is not Phase.STOPPED:
            self._demand(is_reset, "a stopped rollout goes on by itself")
        self._check_stop(before, after)
        if after.phase is Phase.COMPLETED and before.phase is not Phase.COMPLETED:
            self._check_completion(after)
        elif _name(after.stable) != _name(before.stable):
            raise RuleBrokenError("the stable target changed without a completion")
        self.epoch.stable = _name(after.stable)

    def _check_failure(self, name: str) -> None:
        guest, policy = self.guests[name], self.options.policy
        asked_at, answered, success = self.asked.get(name, (0.0, False, False))
        self._demand(name in self.asked, f"{name} failed before this leader saw it")
        self._demand(guest.is_open, f"{name} failed while it takes no part")
        self._demand(not success, f"{name} failed although it shows success")
        starts = [self.epoch.touched[name]] if name in self.epoch.touched else []
        starts += [
            each[-1].at
            for each in guest.history.values()
            if each and each[-1].digest in digests_of(self.epoch.target, guest.label).values()
        ]
        self._demand(bool(starts), f"{name} failed before helm began there")
        if guest.lies != "young":
            # What helm makes again has a new age.
            is_late = asked_at >= min(starts) + policy.deadline_seconds
            self._demand(is_late, f"{name} failed before its deadline")
        if name in self.epoch.shown:
            first = self.epoch.shown[name]
            was_known = (
                first >= self.lead_at
                or min(starts) + policy.deadline_seconds + VERDICT_SECONDS <= self.lead_at
            )
            self._demand(not was_known, f"{name} failed although it had succeeded")
        if answered and guest.is_at(self.epoch.target):
            was_before = max(starts) + policy.deadline_seconds + VERDICT_SECONDS <= self.lead_at
            is_known = name in self.epoch.retried or guest.lies == "young"
            self._demand(not was_before or is_known, f"{name} failed by a deadline before this lead")

    def _check_stop(self, before: Rollout, after: Rollout) -> None:
        policy = self.options.policy
        if policy.is_all or after.phase is before.phase is Phase.STOPPED:
            return
        canaries = max(1, policy.canaries.of(len(self.guests)))
        succeeded = self._count_succeeded()
        admitted = max(len(self.epoch.touched), succeeded + len(after.failed))
        most = policy.max_failures.of(admitted + len(self.guests)) if succeeded >= canaries else 0
        if after.phase is not Phase.COMPLETED and self._find_untested(after.failed, after.failed):
            most = 0
        if after.phase is not Phase.STOPPED:
            self._demand(len(after.failed) <= most, f"{len(after.failed)} failures do not stop the rollout")
        elif before.phase is not Phase.STOPPED:
            self._demand(len(after.failed) > 0, "the rollout stopped without a failure")

    def _check_completion(self, after: Rollout) -> None:
        policy, target = self.options.policy, after.target.name
        self._demand(_name(after.stable) == target, "a completed target is not the stable one")
        lost = succeeded = 0
        affected = self._affected()
        for name, guest in self.guests.items():
            asked = self.asked.get(name)
            is_there = guest.is_at(target) and name not in after.failed
            is_judged = is_there or name in after.failed
            if name in affected:
                lost += guest.is_open and not is_judged and (asked is None or not asked[1])
                succeeded += is_there
            if asked is None or not asked[1] or is_there or name in after.failed or not guest.is_reachable:
                continue
            if not policy.updates and guest.drifts_from(target):
                raise RuleBrokenError(f"completed although {name} drifts")
            gets_stable = guest.missing and after.stable is not None
            is_left = guest.unfit_since is None and guest.is_sound(self.now) and self._was_fit_for(guest)
            self._demand(gets_stable or not is_left, f"completed although {name} is left")
        self._demand(succeeded > lost, f"completed with {succeeded} successes and {lost} out of reach")

    def _was_fit_for(self, guest: ModelGuest) -> bool:
        """Whether a guest cluster was fit, and ready, when it was visited last."""
        asked_at = self.asked[guest.name][0]
        ready_at = max(guest.pods_since.values(), default=0.0)
        return guest.lost_since is None and ready_at < asked_at and guest.opened_at < asked_at

    def check_end(self) -> None:
        """Check what must be so when nothing has happened for hours."""
        kept, policy = self.kept, self.options.policy
        assert kept is not None
        target = kept.target.name
        self._demand(target == self.options.target, "the rollout is of another target than the options")
        quiet_since = self.now - 1200.0
        late = [
            run
            for run in self.helm_runs
            if run[0] >= quiet_since and not (run[3] and self.guests[run[1]].refuses(run[3]))
        ]
        self._demand(not late, f"helm still runs: {late[:3]}")
        self._demand(self.last_write < quiet_since, "a quiet fleet is written")
        reached = [each for each in self.guests.values() if each.is_reachable and each.is_open]
        free = [each for each in reached if not (each.is_locked or each.has_other_kube_vip)]
        if policy.is_paused or policy.is_blocked:
            return
        affected = self._affected().values()
        lost = sum(each.is_open and not each.is_reachable for each in affected)
        drifts = not policy.updates and any(
            each.is_reachable and each.drifts_from(target) for each in self.guests.values()
        )
        if kept.phase is Phase.PROGRESSING:
            well = sum(each.is_at(target) for each in reached if each in affected)
            self._demand(
                drifts or well <= lost, f"the rollout does not end: {well} succeeded, {lost} are lost"
            )
        if kept.phase is not Phase.STOPPED and policy.updates:
            fit = [
                each for each in free if each.is_sound(self.now) or each.is_moved(target, _name(kept.stable))
            ]
            left = [each.name for each in fit if not each.is_at(target) and not self._has_failed(each.name)]
            self._demand(not left, f"{left} are ready and never got the target")
        for guest in free:
            if guest.missing and kept.stable is not None and policy.has_stable:
                is_known = guest.name in kept.failed or guest.refuses(kept.stable.name)
                self._demand(is_known, f"{guest.name} got no stable target")
            is_left = guest.missing and kept.phase is not Phase.STOPPED and guest.is_sound(self.now)
            is_known = self._has_failed(guest.name) or guest.refuses(target)
            self._demand(not is_left or is_known, f"{guest.name} lacks {guest.missing}")
            has_failed = self._has_failed(guest.name) and policy.goes_back and policy.updates
            self._demand(
                not (has_failed and not policy.is_all and self._is_made_for(guest, target)),
                f"{guest.name} failed and did not go back",
            )

    def _is_made_for(self, guest: ModelGuest, target: str) -> bool:
        """Whether a release was made for a target that should have gone back."""
        stable = _name(self.kept.stable) if self.kept is not None else ""
        if not guest.is_changed(target, stable):
            # The first revision for a target that was completed stays: a label brought what failed.
            return any(
                guest.is_made_for(each[-1], target) for each in guest.history.values() if len(each) > 1
            )
        # What the stable target has as well has nowhere to go back to.
        same = digests_of(stable, guest.label) if stable else {}
        return any(
            guest.is_made_for(each[-1], target) and each[-1].digest != same.get(role)
            for role, each in guest.history.items()
            if each
        )

    def _demand(self, holds: bool, message: str) -> None:
        if not holds:
            raise RuleBrokenError(f"at {self.now - 10_000:.0f} s: {message}")

    # For tests

    def got(self, target: str) -> list[str]:
        """Return the guest clusters that helm brought a target to, in order."""
        return list(
            dict.fromkeys(
                name for _, name, verb, what in self.helm_runs if verb == "upgrade" and what == target
            )
        )

    def at(self, target: str) -> set[str]:
        return {name for name, each in self.guests.items() if each.is_at(target)}


def _name(target: Target | None) -> str:
    """Return the name of a target for all guest clusters; "" for none."""
    return (target.part_of or target.name) if target is not None else ""


def build_guests(size: int, target: str | None = "A") -> list[ModelGuest]:
    """Return guest clusters that all run a target; "" stands for releases of kube-fip-operator, None for none."""
    found = []
    for number in range(size):
        guest = ModelGuest(name=f"c-{number:03}")
        if target is not None:
            for role in ROLES:
                digest = digests_of(target)[role] if target else "old"
                guest.history[role].append(Revision(digest, target, 0.0))
        found.append(guest)
    return found
