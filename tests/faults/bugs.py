"""The bugs that the suite must catch, each with the plan, or the unit tests, that catch it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitBug:
    """A bug that no plan shows, and the unit tests each of which must fail by it."""

    name: str
    what: str
    edits: tuple[Edit, ...]
    file: str
    tests: tuple[str, ...]


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
    file="operator/release.py",
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
        ("operator/startup.py", "by_age = sorted(self._having_addresses(),", "by_age = sorted((),"),
        with_guards_off=(
            Edit(
                file="operator/gates.py",
                before="return self.adopted and self.looked",
                after="return True",
            ),
            Edit(
                file="operator/books.py",
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
            "operator/startup.py",
            "by_age = sorted(self._having_addresses(), key=lambda each: (each.meta.created, each.meta.key))",
            "by_age = sorted(self._having_addresses(), key=lambda each: each.meta.created, reverse=True)",
        ),
    ),
    _bug(
        "no-first-look",
        "what guests carry is not looked at before new addresses are given out",
        _CAREFUL,
        "c-m-steady00/dynamic has 10.9.0.10",
        ("operator/looks.py", "tuple(map(from_ip, carried.single))", "tuple(map(from_ip, ()))"),
    ),
    _bug(
        "cache-is-the-truth",
        "a floating IP that the cache lacks is gone, without a live read",
        _blind(),
        ("held by None", "whose status names it"),
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
        ("held by None", "whose status names it"),
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
        "is freed while guest",
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
        "chapter 2 does not end: c-m-steady01/second has 10.10.0.15",
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
        "chapter 2 does not end: /floatingips/c-m-steady03/late/conditions: [] instead of",
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
        "/floatingips/c-m-steady00/dynamic/conditions: ['Allocated=False AddressInUse'",
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
        "what was begun for RequireDualStack is not undone when the other family is full; "
        "one guard out: nothing is begun in vain",
        _CAREFUL,
        "/floatingips/c-m-steady02/both/addresses: ['any v4 of r1'] instead of []",
        (
            "operator/claiming.py",
            "            await self._undo(outcome, plan, floating_ip)",
            "            pass",
        ),
        with_guards_off=(
            Edit(
                file="operator/claiming.py",
                before="outcome.obstacles += self._foresee(",
                after="self._foresee(",
            ),
        ),
    ),
    _bug(
        "shrinking-renumbers",
        "an address that is out of its range by now is changed for another",
        _RANGES,
        "/floatingips/c-m-steady01/high/conditions: ['Allocated=False AddressOutOfRange'",
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
        "/floatingips/c-m-steady03/stranger/conditions: ['Allocated=True Allocated', 'GuestConfigured=True",
        ("operator/links.py", "floating_ip.cluster != cluster.name", "floating_ip.cluster == ''"),
    ),
    _bug(
        "cached-kubeconfig",
        "a guest's kubeconfig is read once",
        _CAREFUL,
        "/floatingips/c-m-steady01/both/conditions: ['Allocated=True Allocated', 'GuestConfigured=False Guest",
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
        ("operator/app.py", "            await self._resync.refresh()\n", ""),
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
            "guest/configmap.py",
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
        "emptied-is-renumbered",
        "an emptied spec brings another address",
        _RETURNS,
        "c-m-steady00/emptied has 10.4.0.11",
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
        "writes-once-per-resync",
        "a range's status is written after every round of lists",
        _CLAIMS,
        "no silence",
        ("operator/ranges.py", "unchanged = found", "unchanged = False and found"),
        (
            "operator/app.py",
            "        world = self._controllers.world\n        for reservation",
            (
                "        self._controllers.enqueue_all()\n"
                "        world = self._controllers.world\n        for reservation"
            ),
        ),
    ),
    _bug(
        "status-before-reservation",
        "the status is written before anybody asked for the address",
        _CLAIMS,
        "held by None",
        (
            "operator/reservations.py",
            "return self._note(await self._client.create(FLOATING_IP_RESERVATIONS, body))",
            "return _new_reservation(claim, self._now())",
        ),
    ),
)

UNIT_BUGS = (
    UnitBug(
        name="tombstone-forgotten",
        what="an old event brings back what was deleted",
        edits=(
            Edit(
                file="control/store.py",
                before="self._tombstones[name] = version",
                after="self._tombstones.pop(name, None)",
            ),
        ),
        file="tests/unit/control/test_store.py",
        tests=(
            "TestDelete::test_a_late_modification_does_not_bring_a_deleted_object_back",
            "TestDelete::test_the_memory_of_the_dead_is_bounded_and_forgets_the_oldest",
            "TestResync::test_what_was_deleted_after_the_list_was_made_does_not_come_back",
            "TestResync::test_a_list_that_shows_an_object_whose_deletion_was_seen_means_a_restored_store",
        ),
    ),
    UnitBug(
        name="old-events-count",
        what="an event that is older than what is known replaces it",
        edits=(
            Edit(
                file="control/store.py",
                before="if version <= self._known_version(name):",
                after="if version < 0:",
            ),
        ),
        file="tests/unit/control/test_store.py",
        tests=(
            "TestPut::test_an_older_or_equal_version_is_ignored[4]",
            "TestPut::test_an_older_or_equal_version_is_ignored[5]",
            "TestPut::test_late_news_of_the_one_before_do_not_touch_the_one_that_took_its_name",
            "TestResync::test_what_was_deleted_after_the_list_was_made_does_not_come_back",
            "TestResync::test_an_event_that_overtook_the_list_is_no_restored_store",
        ),
    ),
    UnitBug(
        name="younger-version",
        what="a round tests its status on a younger version than the one that it looked at",
        edits=(
            Edit(
                file="operator/floatingips.py",
                before="return parse_floating_ip(answer)",
                after="found = parse_floating_ip(answer)\n        return self._world.floating_ips.get(*found.meta.key)",
            ),
        ),
        file="tests/unit/operator/test_two_writers.py",
        tests=("test_a_status_is_of_the_spec_that_its_round_wrote_and_of_no_younger_one",),
    ),
    UnitBug(
        name="wish-before-possession",
        what="a reservation that vanished is not made again before its owner's wish is looked at",
        edits=(
            Edit(
                file="operator/floatingips.py",
                before="lost = find_vanished(floating_ip, request, self._and_released(held, floating_ip))",
                after="lost = ()",
            ),
        ),
        file="tests/unit/operator/test_missing_reservations.py",
        tests=(
            "test_a_reservation_that_vanishes_while_its_owner_waits_for_another_space_is_made_where_it_was",
        ),
    ),
    UnitBug(
        name="gone-is-free",
        what="an address whose reservation is gone by the live read is free, whoever's status names it",
        edits=(
            Edit(
                file="operator/reservations.py",
                before="            if live is None:\n                return None\n",
                after="            if live is None:\n                return await self._grant_anew(claim)\n",
            ),
        ),
        file="tests/unit/operator/test_missing_reservations.py",
        tests=("test_who_is_asking_for_an_address_when_its_reservation_vanishes_does_not_get_it",),
    ),
    UnitBug(
        name="another-range-serves",
        what="a floating IP whose range is deleted gets an address of another that matches",
        edits=(
            Edit(
                file="operator/links.py",
                before="if earlier and (held or floating_ip.status.addresses):",
                after="if earlier is None:",
            ),
        ),
        file="tests/unit/operator/test_deleted_ranges.py",
        tests=("test_nor_does_it_move_where_its_reservation_is_gone_too",),
    ),
    UnitBug(
        name="undone-out-of-quarantine",
        what="an address that was taken out of a quarantine is free at once when both families are undone",
        edits=(
            Edit(
                file="operator/claiming.py",
                before="if reservation.name in outcome.created:",
                after="if reservation in outcome.fresh and not reservation.history:",
            ),
        ),
        file="tests/unit/operator/test_claiming.py",
        tests=("test_an_undo_does_not_free_what_it_took_out_of_a_quarantine",),
    ),
    UnitBug(
        name="begun-for-good",
        what="what a move began stays held when its wish cannot be followed any more",
        edits=(
            Edit(
                file="operator/floatingips.py",
                before="outcome.undone or is_in_vain",
                after="outcome.undone",
            ),
        ),
        file="tests/unit/operator/test_wishes_in_vain.py",
        tests=(
            "test_the_new_address_of_a_move_is_given_back_where_its_wish_cannot_be_followed_any_more[make_unreadable]",
            (
                "test_the_new_address_of_a_move_is_given_back_where_its_wish_cannot_be_followed_any_more"
                "[take_its_range_away]"
            ),
        ),
    ),
    UnitBug(
        name="names-wake-nobody",
        what="who waits is not told of an address that was only named, and is free",
        edits=(
            Edit(
                file="operator/books.py",
                before="            self.on_free(name.space, name.address, False)",
                after="            pass",
            ),
        ),
        file="tests/unit/operator/test_waiting.py",
        tests=(
            "test_what_an_heir_named_in_vain_goes_to_who_waits_once_the_heir_is_gone",
            "test_what_an_heir_named_in_vain_goes_to_who_waits_once_the_heir_names_another",
        ),
    ),
    UnitBug(
        name="looks-of-long-ago",
        what="what guests carried when they were looked at is kept from others whenever a range changes",
        edits=(
            Edit(
                file="operator/looks.py",
                before="await self._compare_with_ranges()",
                after="await self._keep_all(self._seen)",
            ),
        ),
        file="tests/unit/operator/test_looks.py",
        tests=(
            "test_a_changed_range_takes_no_address_of_a_guest_that_is_gone_since",
            "test_a_changed_range_takes_no_address_that_a_guest_carries_no_more",
        ),
    ),
)
"""No plan shows these for sure: lists mend a store, the others want a rare race or a state that stands for long."""
