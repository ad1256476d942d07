"""The bugs that the suite must catch, each with the plan that catches it; the others are in `unit_bugs`."""

from dataclasses import dataclass

from localfleet.faultproxy import Do, On, Rule
from tests.faults.anchors import Edit
from tests.faults.plans import Plan, undisturbed


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
    *edits: Edit,
    with_guards_off: tuple[Edit, ...] = (),
) -> Bug:
    return Bug(
        name=name,
        what=what,
        plan=plan,
        signs=(signs,) if isinstance(signs, str) else signs,
        edits=edits,
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
    scope="ReservationStore.find_owner",
    before="await self.client.get(FLOATING_IPS, owner.name, namespace=owner.namespace)",
    after="None",
)
_WRITES_UNCHANGED = Edit(
    scope="RangeReconciler._find_new_status", before="found.status_capacity == capacity", after="False"
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
        Edit(scope="adopt_all", before="cache.floating_ips_by_age()", after="()"),
        with_guards_off=(
            Edit(
                scope="AllocationGate.is_open",
                before="self.is_shut or not self.adopted",
                after="self.is_shut",
            ),
            Edit(
                scope="Allocations._uses_of_floating_ip",
                before="floating_ip is None",
                after="not floating_ip or not floating_ip.status.addresses",
            ),
        ),
    ),
    _bug(
        "youngest-first",
        "of an address that was given out twice, the younger owner keeps it",
        _ADOPT,
        "/floatingips/c-m-steady02/steady-2-kubevip/addresses: ['any v4 of r1'] instead of []",
        Edit(
            scope="ClusterCache.floating_ips_by_age",
            before="key=lambda each: (each.meta.created, each.meta.key)",
            after="key=lambda each: each.meta.created, reverse=True",
        ),
    ),
    _bug(
        "no-first-look",
        "what guests carry is not looked at before new addresses are given out",
        _CAREFUL,
        "c-m-steady00/dynamic has 10.9.0.10",
        Edit(scope="GuestScan._ask", before="found.single", after="()"),
    ),
    _bug(
        "cache-is-the-truth",
        "a floating IP that the cache lacks is gone, without a live read",
        _blind(),
        # The last: its reservation went before its status named it, and was made again as its spec says by then.
        ("held by None", "whose status names it", "instead of ['any v4 of r1']"),
        _NO_LIVE_READ,
    ),
    _bug(
        "no-quarantine",
        "a released address is free at once",
        _BURST,
        "is freed while guest",
        Edit(
            scope="QuarantineReconciler._check_owner",
            before="self.reservation_store.quarantine(reservation, seconds=seconds)",
            after="self.reservation_store.free(reservation)",
        ),
    ),
    _bug(
        "quarantine-by-time-alone",
        "quarantine ends by the clock, whoever still carries the address",
        undisturbed("lingering"),
        "chapter 2 does not end: c-m-steady01/second has 10.10.0.15",
        Edit(scope="ReportedAddresses._find_carriers", before="self.guests.exists(owner)", after="False"),
    ),
    _bug(
        "quarantine-for-nobody",
        "whoever asks gets an address out of another's quarantine",
        _CLAIMS,
        "out of the quarantine",
        Edit(
            scope="ReservationStore.can_acquire",
            before="former.key == owner.key",
            after="former.key == owner.key or not known.is_held",
        ),
    ),
    _bug(
        "conflict-is-success",
        "a reservation that exists already counts as one's own",
        _CLAIMS,
        "chapter 2 does not end: /floatingips/c-m-steady03/late/conditions: [] instead of",
        Edit(scope="ReservationStore.can_acquire", before="former.key == owner.key", after="former.key"),
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
        Edit(
            scope="ReservationStore.can_acquire",
            before="former.key == owner.key",
            after="former.uid == claim.owner.uid",
        ),
    ),
    _bug(
        "release-before-claim",
        "on a move the old address is given up before the new one is held",
        _MOVES,
        "whose status names it",
        Edit(
            scope="FloatingIPReconciler._claim",
            before="self.cache.allocations.begin_claim(claim)",
            after=(
                "for old in self.cache.reservations_of(claim.owner.key):\n"
                "    if old.is_held and old.name != claim.name:\n"
                "        await self.reservation_store.quarantine(old, seconds=1)\n"
                "self.cache.allocations.begin_claim(claim)"
            ),
        ),
    ),
    _bug(
        "second-candidate",
        "after a write whose outcome is unknown another address is tried",
        _DARK,
        "more were given out",
        Edit(
            scope="FactSource._find_own",
            before="(asked, *map(address_of, had))",
            after="map(address_of, had)",
        ),
    ),
    _bug(
        "half-a-dual-stack",
        "what was begun for RequireDualStack is not released when the other family is full; "
        "one guard out: nothing is begun in vain",
        _CAREFUL,
        "/floatingips/c-m-steady02/both/addresses: ['any v4 of r1'] instead of []",
        Edit(scope="_Wish.stay", before="self._in_status([decided.held])", after="True"),
        with_guards_off=(
            Edit(
                scope="_follow",
                before="wish.stay(each, held.get(family, []))",
                after="each if isinstance(each, Claim) else wish.stay(each, held.get(family, []))",
            ),
        ),
    ),
    _bug(
        "annotation-steers",
        "a guest is found by an annotation that any tenant may write",
        _CAREFUL,
        "/floatingips/c-m-steady03/stranger/conditions: ['Allocated=True Allocated', 'GuestConfigured=True",
        Edit(
            scope="bind_guest",
            before="floating_ip.cluster != cluster.name",
            after="floating_ip.cluster == ''",
        ),
    ),
    _bug(
        "cached-kubeconfig",
        "a guest's kubeconfig is read once",
        _CAREFUL,
        "/floatingips/c-m-steady01/both/conditions: ['Allocated=True Allocated', 'GuestConfigured=False Guest",
        Edit(
            scope="read_kubeconfig",
            before='secret = f"{namespace}/{name}"',
            after=(
                "kept = read_kubeconfig.__dict__.setdefault('kept', {})\n"
                "if guest.id in kept:\n"
                "    return kept[guest.id]\n"
                'secret = f"{namespace}/{name}"'
            ),
        ),
        Edit(
            scope="read_kubeconfig",
            before='base64.b64decode((found.get("data") or {}).get("value") or "", validate=True)',
            after='kept.setdefault(guest.id, base64.b64decode(found["data"]["value"]))',
        ),
    ),
    _bug(
        "free-on-failed-list",
        "a list that fails shows that nothing is there; one guard out: the live read before a release",
        # The first three lists are those of the relister, of the new leader and of kopf.
        Plan(
            scenario="claims",
            family="seeded",
            rules=(Rule(on=On.LIST, do=Do.STATUS, status=500, nth=4, count=1000, plural="floatingips"),),
        ),
        "whose status names it",
        Edit(
            scope="Relister._relist",
            before="return False",
            after="listing = Listing(items=(), resource_version=seen_before)",
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
        Edit(scope="Manager.run", before="await refresh()", after="pass"),
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
        Edit(
            scope="LeaderElector.is_leader",
            before="self._lease is None or self._clock() < self._work_until(self._lease)",
            after="True",
        ),
        with_guards_off=(
            Edit(scope="LeaderElector._keep", before="left <= 0", after="False"),
            Edit(
                scope="LeaderElector._keep",
                before="min(self._call_seconds, left)",
                after="self._call_seconds",
            ),
        ),
    ),
    _bug(
        "every-key-is-ours",
        "a key of a guest's ConfigMap that is not wanted is taken out, whoever wrote it",
        _MOVES,
        "which is not fipop's",
        Edit(scope="_Book.stale", before="self.is_ours(name)", after="True"),
    ),
    _bug(
        "predecessor-ignored",
        "addresses are given out while kube-fip-operator still runs",
        undisturbed("predecessor"),
        "chapter 1 does not end: c-m-steady00/early has 10.11.0.10",
        Edit(scope="Predecessor._look", before="found is not None", after="found is None"),
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
        Edit(scope="ReservationStore.free", before="reservation.uid", after="None"),
        Edit(scope="ReservationStore.free", before="str(reservation.resource_version)", after="None"),
    ),
    _bug(
        "vanished-for-good",
        "a reservation that an admin deleted is not made again; one guard out: a learned guest wakes it",
        _RETURNS,
        "chapter 2 does not end: ('default', '10.4.0.17') is named by",
        Edit(
            scope="FloatingIPReconciler.watches",
            before="yield request_floating_ip(cache, key)",
            after="if change.new is not None:\n    yield request_floating_ip(cache, key)",
        ),
        with_guards_off=(
            Edit(scope="GuestReconciler.reconcile", before="self.learned(guest)", after="pass"),
        ),
    ),
    _bug(
        "nobody-is-woken",
        "who waits for an address is not told when it becomes free; one guard out: it asks again after a while",
        _CLAIMS,
        "chapter 3 does not end: /ranges/r1/capacity/ipv4/free: 12 instead of 11",
        Edit(
            scope="FloatingIPReconciler._find_concerned",
            before="yield from request_concerned(self.cache, old)",
            after="pass",
        ),
        with_guards_off=(
            Edit(
                scope="FloatingIPReconciler._end",
                before="WAITING_SECONDS if wait.blockers and wait.seconds is None else wait.seconds",
                after="wait.seconds",
            ),
        ),
    ),
    _bug(
        "finalizer",
        "a floating IP keeps its namespace from going",
        _APPEAR,
        "chapter 2 does not end: /floatingips/c-m-applexxx/apple-kubevip/finalizers: [",
        Edit(
            scope="build_floating_ip",
            before='"namespace": guest.id',
            after='"namespace": guest.id, "finalizers": [f"{names.GROUP}/held"]',
        ),
    ),
    _bug(
        "writes-without-end",
        "a range's status is written by the clock",
        _CLAIMS,
        "no silence",
        _WRITES_UNCHANGED,
        Edit(
            scope="RangeReconciler._write",
            before=("self.cache.observe(FLOATING_IP_RANGES, answer)\nreturn None"),
            after="return RetryAfter(1.0)",
        ),
    ),
    _bug(
        "writes-once-per-resync",
        "a range's status is written after every round of lists",
        _CLAIMS,
        "no silence",
        _WRITES_UNCHANGED,
        Edit(
            scope="Operator._check_owners",
            before="self._manager.check_owners()",
            after=("self._manager.check_owners()\nself._manager.enqueue_all()"),
        ),
    ),
)
