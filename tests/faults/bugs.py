"""The bugs that the suite must catch, each with the plan that catches it."""

from dataclasses import dataclass

from localfleet.faultproxy import Do, On, Rule
from tests.faults.plans import Plan, undisturbed


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replace a text that stands exactly once in a file of the package."""

    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A bug, what it is in a sentence, the plan that must catch it, and a word of the violation that shows it."""

    name: str
    what: str
    edits: tuple[Edit, ...]
    plan: Plan
    sign: str


def _bug(name: str, what: str, plan: Plan, sign: str, *edits: tuple[str, str, str]) -> Bug:
    return Bug(
        name=name,
        what=what,
        plan=plan,
        sign=sign,
        edits=tuple(Edit(file=file, before=before, after=after) for file, before, after in edits),
    )


def _blind(*more: Rule) -> Plan:
    """Two operators, of whom the second never sees a floating IP appear."""
    unseen = Rule(on=On.EVENT, do=Do.WITHHOLD, rate=1.0, event="ADDED", plural="floatingips")
    return Plan(scenario="burst", family="seeded", operators=2, others=(unseen, *more))


_OLD = Plan(scenario="burst", family="seeded", rules=(Rule(on=On.EVENT, do=Do.REPLAY, rate=1.0),))
_DARK = Plan(
    scenario="claims",
    family="seeded",
    rules=(
        Rule(on=On.EVENT, do=Do.WITHHOLD, rate=1.0, plural="floatingipreservations"),
        Rule(on=On.WRITE, do=Do.CUT_AFTER, nth=2, count=2, plural="floatingipreservations"),
    ),
)
_ADOPT, _BURST, _CLAIMS, _MOVES = (undisturbed(name) for name in ("adopt", "burst", "claims", "moves"))
_RETURNS, _RANGES, _CAREFUL, _APPEAR = (
    undisturbed(name) for name in ("returns", "ranges", "careful", "appear")
)
_ASLEEP = (Rule(on=On.WRITE, do=Do.FREEZE_BEFORE, nth=6, seconds=25),)

BUGS = (
    _bug(
        "allocation-before-replay",
        "new addresses are given out before those that exist were claimed",
        _ADOPT,
        "I",
        ("operator/startup.py", "by_age = sorted(self._having_addresses(),", "by_age = sorted((),"),
        ("operator/gates.py", "return self.adopted and self.looked", "return True"),
        (
            "operator/books.py",
            "        if floating_ip is None:\n            return frozenset()\n        status",
            (
                "        if not floating_ip or not floating_ip.status.addresses:\n"
                "            return frozenset()\n        status"
            ),
        ),
    ),
    _bug(
        "youngest-first",
        "of an address that was given out twice, the younger owner keeps it",
        _ADOPT,
        "I4",
        (
            "operator/startup.py",
            "by_age = sorted(self._having_addresses(), key=lambda each: (each.meta.created, each.meta.key))",
            "by_age = sorted(self._having_addresses(), key=lambda each: each.meta.created, reverse=True)",
        ),
    ),
    _bug(
        "no-first-look",
        "what guests carry is not looked at before new addresses are given out",
        _CAREFUL,
        "chapter 1",
        ("operator/looks.py", "tuple(map(from_ip, carried.single))", "tuple(map(from_ip, ()))"),
    ),
    _bug(
        "cache-is-the-truth",
        "a floating IP that the cache lacks is gone, without a live read",
        _blind(),
        "I",
        (
            "operator/release.py",
            "live = await self._client.get(FLOATING_IPS, owner.name, namespace=owner.namespace)",
            "live = None",
        ),
    ),
    _bug(
        "free-on-404",
        "any 404 means that the object is gone",
        _blind(Rule(on=On.GET, do=Do.STATUS, status=404, rate=1.0, plural="floatingips")),
        "I",
        (
            "kube/answers.py",
            "    if answer.status != 404:\n        return False\n",
            "    return answer.status == 404\n",
        ),
    ),
    _bug(
        "no-quarantine",
        "a released address is free at once",
        _BURST,
        "I3",
        (
            "operator/release.py",
            "await self._desk.quarantine(reservation, seconds=seconds)",
            "await self._desk.free(reservation)",
        ),
    ),
    _bug(
        "quarantine-by-time-alone",
        "quarantine ends by the clock, whoever still carries the address",
        undisturbed("lingering"),
        "chapter 2",
        (
            "operator/release.py",
            "if self._guests.exists(guest_id) and not await self._is_ours_again(reservation):",
            "if False:",
        ),
    ),
    _bug(
        "quarantine-for-nobody",
        "whoever asks gets an address out of another's quarantine",
        _CLAIMS,
        "out of the quarantine",
        (
            "operator/reservations.py",
            "if former.key == claim.owner.key:",
            "if former.key == claim.owner.key or not known.is_held:",
        ),
    ),
    _bug(
        "conflict-is-success",
        "a reservation that exists already counts as one's own",
        _CLAIMS,
        "chapter 2",
        (
            "operator/reservations.py",
            "if former.key == claim.owner.key:",
            "if former.key:",
        ),
    ),
    _bug(
        "owner-by-uid-alone",
        "an object created again under its name is a stranger",
        _CAREFUL,
        "I4",
        (
            "operator/reservations.py",
            "if former.key == claim.owner.key:",
            "if former.uid == claim.owner.uid:",
        ),
    ),
    _bug(
        "release-before-claim",
        "on a move the old address is given up before the new one is held",
        _MOVES,
        "whose status names it",
        (
            "operator/claiming.py",
            "            answer = await self._claim(want, owner",
            (
                "            if want.replaces is not None:\n"
                "                await self._desk.quarantine(want.replaces, seconds=1)\n"
                "            answer = await self._claim(want, owner"
            ),
        ),
    ),
    _bug(
        "second-candidate",
        "after a write whose outcome is unknown another address is tried",
        _DARK,
        "more were given out",
        ("operator/claiming.py", "if unsettled is not None:", "if unsettled == ():"),
    ),
    _bug(
        "half-a-dual-stack",
        "what was begun for RequireDualStack is not undone when the other family is full",
        _CAREFUL,
        "I4",
        (
            "operator/claiming.py",
            "outcome.obstacles += self._foresee(",
            "self._foresee(",
        ),
        (
            "operator/claiming.py",
            "            await self._undo(outcome, floating_ip)",
            "            pass",
        ),
    ),
    _bug(
        "shrinking-renumbers",
        "an address that is out of its range by now is changed for another",
        _RANGES,
        "I",
        (
            "operator/allocation.py",
            "held.space == wanted_range.space and held.range == wanted_range.name:",
            "held.space == wanted_range.space and wanted_range.refuses(address) is None:",
        ),
    ),
    _bug(
        "annotation-steers",
        "a guest is found by an annotation that any tenant may write",
        _CAREFUL,
        "chapter 2",
        ("operator/links.py", "floating_ip.cluster != cluster.name", "floating_ip.cluster == ''"),
    ),
    _bug(
        "cached-kubeconfig",
        "a guest's kubeconfig is read once",
        _CAREFUL,
        "chapter 3",
        (
            "operator/kubeconfigs.py",
            "    secret = guest.kubeconfig_secret\n    name",
            (
                "    kept = read_kubeconfig.__dict__.setdefault('kept', {})\n"
                "    if guest.id in kept:\n"
                "        return kept[guest.id]\n"
                "    secret = guest.kubeconfig_secret\n"
                "    name"
            ),
        ),
        (
            "operator/kubeconfigs.py",
            'return base64.b64decode((found.get("data") or {}).get("value") or "", validate=True)',
            'return kept.setdefault(guest.id, base64.b64decode(found["data"]["value"]))',
        ),
    ),
    _bug(
        "free-on-failed-list",
        "a list that fails shows that nothing is there",
        Plan(
            scenario="claims",
            family="seeded",
            rules=(Rule(on=On.LIST, do=Do.STATUS, status=500, nth=2, count=1000, plural="floatingips"),),
        ),
        "I",
        (
            "control/resync.py",
            "            return False\n        self._failing.discard(plural)",
            (
                "            listing = Listing(items=(), resource_version=seen_before)\n"
                "        self._failing.discard(plural)"
            ),
        ),
        (
            "operator/release.py",
            "live = await self._client.get(FLOATING_IPS, owner.name, namespace=owner.namespace)",
            "live = None",
        ),
    ),
    _bug(
        "event-before-list",
        "what events show is worked with before the first lists are in",
        Plan(
            scenario="burst",
            family="seeded",
            rules=(
                Rule(on=On.WRITE, do=Do.KILL_AFTER, nth=30),
                Rule(on=On.LIST, do=Do.DELAY, seconds=4, rate=1.0, plural="floatingips"),
            ),
        ),
        "I",
        ("operator/app.py", "            await self._resync.refresh()\n", ""),
        (
            "operator/release.py",
            "live = await self._client.get(FLOATING_IPS, owner.name, namespace=owner.namespace)",
            "live = None",
        ),
    ),
    _bug(
        "lease-not-checked",
        "a leader that slept past its lease goes on until it hears that another leads",
        Plan(
            scenario="burst",
            family="seeded",
            rules=_ASLEEP,
            others=_ASLEEP,
            operators=2,
            election=True,
        ),
        "lease",
        (
            "control/leadership.py",
            "return self._leading and (self._lease is None or self._clock() < self._work_until(self._lease))",
            "return self._leading",
        ),
        ("control/leadership.py", "            if left <= 0:\n                return\n", ""),
        (
            "control/leadership.py",
            "asyncio.timeout(min(self._call_seconds, left))",
            "asyncio.timeout(self._call_seconds)",
        ),
    ),
    _bug(
        "every-key-is-ours",
        "a key of a guest's ConfigMap that is not wanted is taken out, whoever wrote it",
        _MOVES,
        "which is not fipop's",
        (
            "guest/configmap.py",
            "if name not in wanted and name.startswith(_PREFIXES) and self.is_ours(name)",
            "if name not in wanted and name.startswith(_PREFIXES)",
        ),
    ),
    _bug(
        "old-events-count",
        "an event that is older than what is known replaces it",
        _OLD,
        "",
        ("control/store.py", "if version <= self._known_version(name):", "if version < 0:"),
    ),
    _bug(
        "predecessor-ignored",
        "addresses are given out while kube-fip-operator still runs",
        undisturbed("predecessor"),
        "chapter 1",
        (
            "operator/predecessor.py",
            "self.runs = found is not None and bool(",
            "self.runs = found is None and bool(",
        ),
    ),
    _bug(
        "delete-whatever-is-there",
        "a reservation is deleted by its name alone, while it is claimed again",
        Plan(
            scenario="racing",
            family="seeded",
            rules=(
                Rule(
                    on=On.WRITE,
                    do=Do.DELAY,
                    nth=1,
                    seconds=3,
                    plural="floatingipreservations",
                    method="DELETE",
                ),
            ),
        ),
        "I3",
        (
            "operator/reservations.py",
            (
                "                uid=reservation.uid,\n"
                "                resource_version=str(reservation.resource_version),\n"
            ),
            "",
        ),
    ),
    _bug(
        "vanished-for-good",
        "a reservation that an admin deleted is not made again",
        _RETURNS,
        "chapter 2",
        (
            "operator/routing.py",
            ("        self.add_floating_ip(change.latest.owner.key)\n        if change.old"),
            (
                "        if change.new is not None:\n"
                "            self.add_floating_ip(change.latest.owner.key)\n"
                "        if change.old"
            ),
        ),
    ),
    _bug(
        "emptied-is-renumbered",
        "an emptied spec brings another address",
        _RETURNS,
        "chapter",
        (
            "operator/allocation.py",
            "    if static is not None and static != address:\n",
            (
                "    if static is None:\n"
                "        return Want(family=family, address=None, requested=held.requested, replaces=held)\n"
                "    if static is not None and static != address:\n"
            ),
        ),
    ),
    _bug(
        "nobody-is-woken",
        "who waits for an address is not told when it becomes free",
        _CLAIMS,
        "chapter 3",
        (
            "operator/routing.py",
            (
                "            # Free now; or in quarantine, and who waits for it learns until when.\n"
                "            self.wake_waiting()\n"
            ),
            "            pass\n",
        ),
    ),
    _bug(
        "finalizer",
        "a floating IP keeps its namespace from going",
        _APPEAR,
        "I4",
        (
            "operator/clusters.py",
            '"name": f"{guest.cluster_name}{names.FLOATING_IP_SUFFIX}",',
            (
                '"finalizers": [f"{names.GROUP}/held"],\n'
                '                "name": f"{guest.cluster_name}{names.FLOATING_IP_SUFFIX}",'
            ),
        ),
    ),
    _bug(
        "writes-without-end",
        "a range's status is written by the clock",
        _CLAIMS,
        "no silence",
        ("operator/ranges.py", "unchanged = found", "unchanged = False and found"),
        (
            "operator/ranges.py",
            "        self._world.observe(FLOATING_IP_RANGES, answer)\n        return None",
            "        return RetryAfter(1.0)",
        ),
    ),
    _bug(
        "status-before-reservation",
        "the status is written before anybody asked for the address",
        _CLAIMS,
        "I1",
        (
            "operator/reservations.py",
            "return self._note(await self._client.create(FLOATING_IP_RESERVATIONS, body))",
            "return _new_reservation(claim, self._now())",
        ),
    ),
)
