"""The bugs that the suite must catch, each with the plan that catches it; the others are in `unit_bugs`."""

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
    """A bug, what it is in a sentence, the plan that must catch it, and its signs: any one in what the plan shows.

    `with_guards_off` are further guards that the product has against the same harm: they are out as well, and must
    not show the sign by themselves.
    """

    name: str
    what: str
    edits: tuple[Edit, ...]
    with_guards_off: tuple[Edit, ...] = ()
    plan: Plan
    signs: tuple[str, ...]


def _bug(
    name: str,
    what: str,
    plan: Plan,
    signs: str | tuple[str, ...],
    *edits: tuple[str, str, str],
    with_guards_off: tuple[Edit, ...] = (),
) -> Bug:
    return Bug(
        name=name,
        what=what,
        plan=plan,
        signs=(signs,) if isinstance(signs, str) else signs,
        edits=tuple(Edit(file=file, before=before, after=after) for file, before, after in edits),
        with_guards_off=with_guards_off,
    )


def _blind(*more: Rule) -> Plan:
    """Two operators, of whom the second never sees a floating IP appear."""
    unseen = Rule(on=On.EVENT, do=Do.WITHHOLD, rate=1.0, event="ADDED", plural="floatingips")
    return Plan(scenario="burst", family="seeded", operators=2, others=(unseen, *more))


_DARK = Plan(
    scenario="claims",
    family="seeded",
    rules=(
        Rule(on=On.EVENT, do=Do.WITHHOLD, rate=1.0, plural="floatingipreservations"),
        Rule(on=On.WRITE, do=Do.CUT_AFTER, nth=2, count=2, plural="floatingipreservations"),
    ),
)
_ADOPT, _BURST, _CLAIMS, _MOVES = (undisturbed(name) for name in ("adopt", "burst", "claims", "moves"))
_RACE_TO_ADOPT = Plan(
    scenario="adopt",
    family="seeded",
    # All ask at once where nobody sees to their order: the newcomer's claim is to come before those of the owners.
    rules=tuple(
        Rule(
            on=On.WRITE,
            do=Do.DELAY,
            nth=1,
            seconds=4.0,
            plural="floatingipreservations",
            mentions=f"steady-{number}-kubevip",
        )
        for number in (0, 1)
    ),
)
_RETURNS, _RANGES, _CAREFUL, _APPEAR = (
    undisturbed(name) for name in ("returns", "ranges", "careful", "appear")
)
_NO_LIVE_READ = Edit(
    file="operator/addresses/quarantine.py",
    before="live = await self._client.get(FLOATING_IPS, owner.name, namespace=owner.namespace)",
    after="live = None",
)
_ASLEEP = (Rule(on=On.WRITE, do=Do.FREEZE_BEFORE, nth=6, seconds=25),)

BUGS = (
    _bug(
        "allocation-before-replay",
        "new addresses are given out before those that exist were claimed; "
        "two guards out: the gate, and what a spec names counts as used",
        _RACE_TO_ADOPT,
        (
            "/floatingips/c-m-steady00/steady-0-kubevip/conditions: ['Allocated=False AddressInUse'",
            "/floatingips/c-m-steady01/steady-1-kubevip/addresses: [] instead of ['any v4 of r1']",
        ),
        ("operator/adoption.py", "by_age = sorted(self._having_addresses(),", "by_age = sorted((),"),
        with_guards_off=(
            Edit(
                file="state/gate.py",
                before="return self.adopted and self.looked",
                after="return True",
            ),
            Edit(
                file="state/allocations.py",
                before="        if floating_ip is None:\n            return frozenset()\n        status",
                after=(
                    "        if not floating_ip or not floating_ip.status.addresses:\n"
                    "            return frozenset()\n        status"
                ),
            ),
        ),
    ),
    _bug(
        "youngest-first",
        "of an address that was given out twice, the younger owner keeps it",
        _ADOPT,
        "/floatingips/c-m-steady02/steady-2-kubevip/addresses: ['any v4 of r1'] instead of []",
        (
            "operator/adoption.py",
            "by_age = sorted(self._having_addresses(), key=lambda each: (each.meta.created, each.meta.key))",
            "by_age = sorted(self._having_addresses(), key=lambda each: each.meta.created, reverse=True)",
        ),
    ),
    _bug(
        "no-first-look",
        "what guests carry is not looked at before new addresses are given out",
        _CAREFUL,
        "c-m-steady00/dynamic has 10.9.0.10",
        ("operator/guests/scan.py", "tuple(map(from_ip, carried.single))", "tuple(map(from_ip, ()))"),
    ),
    _bug(
        "cache-is-the-truth",
        "a floating IP that the cache lacks is gone, without a live read",
        _blind(),
        # The last: its reservation went before its status named it, and was made again as its spec says by then.
        ("held by None", "whose status names it", "instead of ['any v4 of r1']"),
        (
            "operator/addresses/quarantine.py",
            "live = await self._client.get(FLOATING_IPS, owner.name, namespace=owner.namespace)",
            "live = None",
        ),
    ),
    _bug(
        "no-quarantine",
        "a released address is free at once",
        _BURST,
        "is freed while guest",
        (
            "operator/addresses/quarantine.py",
            "await self._reservation_store.quarantine(reservation, seconds=seconds)",
            "await self._reservation_store.free(reservation)",
        ),
    ),
    _bug(
        "quarantine-by-time-alone",
        "quarantine ends by the clock, whoever still carries the address",
        undisturbed("lingering"),
        "chapter 2 does not end: c-m-steady01/second has 10.10.0.15",
        (
            "operator/addresses/quarantine.py",
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
            "operator/addresses/reservations.py",
            "if former.key == claim.owner.key:",
            "if former.key == claim.owner.key or not known.is_held:",
        ),
    ),
    _bug(
        "conflict-is-success",
        "a reservation that exists already counts as one's own",
        _CLAIMS,
        "chapter 2 does not end: /floatingips/c-m-steady03/late/conditions: [] instead of",
        (
            "operator/addresses/reservations.py",
            "if former.key == claim.owner.key:",
            "if former.key:",
        ),
    ),
    _bug(
        "owner-by-uid-alone",
        "an object created again under its name is a stranger",
        # The new object is seen where the old one was: no release comes between the two.
        Plan(
            scenario="careful",
            family="seeded",
            rules=(Rule(on=On.EVENT, do=Do.WITHHOLD, rate=1.0, event="DELETED", plural="floatingips"),),
        ),
        (
            "/floatingips/c-m-steady00/dynamic/conditions: ['Allocated=False AddressInUse'",
            "/floatingips/c-m-steady00/dynamic/conditions: [] instead of",
        ),
        (
            "operator/addresses/reservations.py",
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
            "operator/addresses/reconciler.py",
            "        self._cache.allocations.expect(claim)\n",
            (
                "        for old in self._cache.reservations_of(claim.owner.key):\n"
                "            if old.is_held and old.name != claim.name:\n"
                "                await self._reservation_store.quarantine(old, seconds=1)\n"
                "        self._cache.allocations.expect(claim)\n"
            ),
        ),
    ),
    _bug(
        "second-candidate",
        "after a write whose outcome is unknown another address is tried",
        _DARK,
        "more were given out",
        ("operator/addresses/view_building.py", "if unsettled is not None:", "if unsettled == ():"),
    ),
    _bug(
        "half-a-dual-stack",
        "what was begun for RequireDualStack is not released when the other family is full; "
        "one guard out: nothing is begun in vain",
        _CAREFUL,
        "/floatingips/c-m-steady02/both/addresses: ['any v4 of r1'] instead of []",
        (
            "operator/addresses/target.py",
            "target.held.items() if facts.is_had(each)}",
            "target.held.items()}",
        ),
        with_guards_off=(
            Edit(
                file="operator/addresses/target.py",
                before="target.claims = [each for each in target.claims if each.is_own]",
                after="pass",
            ),
        ),
    ),
    _bug(
        "annotation-steers",
        "a guest is found by an annotation that any tenant may write",
        _CAREFUL,
        "/floatingips/c-m-steady03/stranger/conditions: ['Allocated=True Allocated', 'GuestConfigured=True",
        (
            "operator/addresses/guest_binding.py",
            "floating_ip.cluster != cluster.name",
            "floating_ip.cluster == ''",
        ),
    ),
    _bug(
        "cached-kubeconfig",
        "a guest's kubeconfig is read once",
        _CAREFUL,
        "/floatingips/c-m-steady01/both/conditions: ['Allocated=True Allocated', 'GuestConfigured=False Guest",
        (
            "operator/guests/kubeconfigs.py",
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
            "operator/guests/kubeconfigs.py",
            'return base64.b64decode((found.get("data") or {}).get("value") or "", validate=True)',
            'return kept.setdefault(guest.id, base64.b64decode(found["data"]["value"]))',
        ),
    ),
    _bug(
        "free-on-failed-list",
        "a list that fails shows that nothing is there; one guard out: the live read before a release",
        # The first three lists are those of the resync, of the new leader and of the watch.
        Plan(
            scenario="claims",
            family="seeded",
            rules=(Rule(on=On.LIST, do=Do.STATUS, status=500, nth=4, count=1000, plural="floatingips"),),
        ),
        "whose status names it",
        (
            "control/resync.py",
            "            return False\n        self._failing.discard(plural)",
            (
                "            listing = Listing(items=(), resource_version=seen_before)\n"
                "        self._failing.discard(plural)"
            ),
        ),
        with_guards_off=(_NO_LIVE_READ,),
    ),
    _bug(
        "event-before-list",
        "what events show is worked with before the first lists are in; "
        "one guard out: the live read before a release",
        Plan(
            scenario="burst",
            family="seeded",
            rules=(
                Rule(on=On.WRITE, do=Do.KILL_AFTER, nth=30),
                Rule(on=On.LIST, do=Do.DELAY, seconds=4, rate=1.0, plural="floatingips"),
            ),
        ),
        "whose status names it",
        ("operator/term.py", "            await refresh()\n", ""),
        with_guards_off=(_NO_LIVE_READ,),
    ),
    _bug(
        "lease-not-checked",
        "a leader that slept past its lease goes on until it hears that another leads; "
        "two guards out: renewal gives up by the clock, and each try ends with the lease",
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
        with_guards_off=(
            Edit(
                file="control/leadership.py",
                before="            if left <= 0:\n                return\n",
                after="",
            ),
            Edit(
                file="control/leadership.py",
                before="asyncio.timeout(min(self._call_seconds, left))",
                after="asyncio.timeout(self._call_seconds)",
            ),
        ),
    ),
    _bug(
        "every-key-is-ours",
        "a key of a guest's ConfigMap that is not wanted is taken out, whoever wrote it",
        _MOVES,
        "which is not fipop's",
        (
            "guest/configmap/plan.py",
            "if name not in wanted and name.startswith(_PREFIXES) and self.is_ours(name)",
            "if name not in wanted and name.startswith(_PREFIXES)",
        ),
    ),
    _bug(
        "predecessor-ignored",
        "addresses are given out while kube-fip-operator still runs",
        undisturbed("predecessor"),
        "chapter 1 does not end: c-m-steady00/early has 10.11.0.10",
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
        ("whose status names it", "is freed while guest"),
        (
            "operator/addresses/reservations.py",
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
        "chapter 2 does not end: ('default', '10.4.0.17') is named by",
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
        "nobody-is-woken",
        "who waits for an address is not told when it becomes free",
        _CLAIMS,
        "chapter 3 does not end: /ranges/r1/capacity/ipv4/free: 12 instead of 11",
        (
            "operator/routing.py",
            (
                "            for address in read_addresses([change.old.address]):\n"
                "                self._wake(self._waiting_for(address))\n"
            ),
            "            pass\n",
        ),
    ),
    _bug(
        "finalizer",
        "a floating IP keeps its namespace from going",
        _APPEAR,
        "chapter 2 does not end: /floatingips/c-m-applexxx/apple-kubevip/finalizers: [",
        (
            "operator/guests/discovery.py",
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
        ("operator/addresses/ranges.py", "unchanged = found", "unchanged = False and found"),
        (
            "operator/addresses/ranges.py",
            "        self._cache.observe(FLOATING_IP_RANGES, answer)\n        return None",
            "        return RetryAfter(1.0)",
        ),
    ),
    _bug(
        "writes-once-per-resync",
        "a range's status is written after every round of lists",
        _CLAIMS,
        "no silence",
        ("operator/addresses/ranges.py", "unchanged = found", "unchanged = False and found"),
        (
            "operator/app.py",
            "            self._term.check_owners()\n",
            "            self._term.check_owners()\n            self._term.first_rounds.enqueue_unsettled()\n",
        ),
    ),
)
