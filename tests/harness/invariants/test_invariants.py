"""Each invariant can fail: for every rule a history that keeps it and one that breaks it."""

from typing import Any

import pytest

from localfleet.faultproxy.proxy import Passed
from localfleet.faultproxy.rules import classify
from tests.harness.history import Carried, Change, History, Use
from tests.harness.invariants.rest import unsettled
from tests.harness.invariants.revisions import Setting, let_go_in_use, most_floating_ips, replay, used_in_two
from tests.harness.invariants.runs import (
    allocations,
    creations,
    difference,
    given_out,
    led_by_two,
    normalize,
    takes_any,
)

A, B = ("c-m-a", "fip"), ("c-m-b", "fip")
ADDRESS = "10.0.0.5"
UNTIL = "2026-01-01T00:10:00Z"
UNTIL_SECONDS = 1767226200.0


def reservation(
    owner: tuple[str, str] | None, *, until: str = "", space: str = "default", **spec: Any
) -> dict[str, Any]:
    namespace, name = owner or ("", "")
    return {
        "metadata": {"name": f"{space}.{ADDRESS}"},
        "spec": {
            "address": ADDRESS,
            "space": space,
            "range": "r1",
            "requested": "dynamic",
            "owner": {"namespace": namespace, "name": name, "uid": f"uid-{namespace}", "cluster": namespace},
            **({"quarantinedUntil": until} if until else {}),
            **spec,
        },
    }


def floating_ip(owner: tuple[str, str], *addresses: str, generation: int = 1) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": owner[0],
            "name": owner[1],
            "uid": f"uid-{owner[0]}",
            "generation": generation,
        },
        "spec": {"ipaddress": ",".join(addresses)},
        "status": {
            "addresses": list(addresses),
            "addressSpace": "default",
            "range": "r1",
            "observedGeneration": 1,
        },
    }


class Story:
    """Writes histories down briefly."""

    def __init__(self) -> None:
        self.history = History()
        self.revision = 0

    def reserve(self, obj: dict[str, Any] | None, *, at: float = 1.0, space: str = "default") -> "Story":
        return self._add("floatingipreservations", "", f"{space}.{ADDRESS}", obj, at)

    def name(self, owner: tuple[str, str], obj: dict[str, Any] | None, *, by_people: bool = False) -> "Story":
        if by_people:
            self.history.by_people.add(self.revision + 1)
        return self._add("floatingips", *owner, obj, 1.0)

    def reserve_other(self, obj: dict[str, Any]) -> "Story":
        return self._add("floatingipreservations", "", f"default.{obj['spec']['address']}", obj, 1.0)

    def define(self, pool: str, **spec: Any) -> "Story":
        obj = {"metadata": {"name": "r1"}, "spec": {"iprange": pool, **spec}}
        return self._add("floatingipranges", "", "r1", obj, 1.0)

    def carry(self, guest: str, *addresses: str, by_admin: bool = False) -> "Story":
        carried = Carried(
            revision=self.revision,
            at=1.0,
            guest=guest,
            addresses=frozenset(addresses),
            by_admin=by_admin,
        )
        self.history.carried.append(carried)
        return self

    def broken(self, setting: Setting | None = None) -> list[str]:
        return [each.rule for each in replay(self.history, setting)]

    def _add(self, plural: str, namespace: str, name: str, obj: dict[str, Any] | None, at: float) -> "Story":
        self.revision += 1
        self.history.changes.append(
            Change(revision=self.revision, at=at, plural=plural, namespace=namespace, name=name, obj=obj)
        )
        return self


def settled() -> Story:
    """A holds the address, its status names it, its guest carries it."""
    story = Story().name(A, floating_ip(A)).reserve(reservation(A))
    return story.name(A, floating_ip(A, ADDRESS)).carry("c-m-a", ADDRESS)


def released() -> Story:
    """From there to quarantine, the guest cleaned."""
    return settled().name(A, None).reserve(reservation(A, until=UNTIL)).carry("c-m-a")


OTHER = "10.0.0.6"
HERE, THERE = "fd00::5", "fd00::6"
SIBLING = ("c-m-a", "other")
AFTER = UNTIL_SECONDS + 1


def moved(story: Story) -> Story:
    """A holds two addresses; its status names the other one from now on."""
    story.reserve_other(reservation(A, address=OTHER))
    return story.name(A, floating_ip(A, OTHER))


def moved_back(story: Story) -> Story:
    return moved(story).name(A, floating_ip(A, ADDRESS))


def made_again() -> Story:
    return settled().name(A, None).name(A, floating_ip(A, ADDRESS))


def asked(story: Story, text: str, *, has: str = ADDRESS, generation: int = 2) -> Story:
    """People change the spec of A, which has an address."""
    return story.name(
        A, floating_ip(A, has, generation=generation) | {"spec": {"ipaddress": text}}, by_people=True
    )


def wanted(story: Story, owner: tuple[str, str]) -> Story:
    return story.name(owner, floating_ip(owner, ADDRESS) | {"status": {}}, by_people=True)


def still_carried() -> Story:
    return settled().name(A, None).reserve(reservation(A, until=UNTIL))


def in_two_spaces(*, newer_until: str | None) -> Story:
    """A moved to another space: its guest carries the address for that one, where it may be released again."""
    story = settled().reserve(reservation(A, space="blue"), space="blue").name(A, None)
    story.reserve(reservation(A, until=UNTIL))
    if newer_until is not None:
        story.reserve(reservation(A, space="blue", until=newer_until), space="blue")
    return story.reserve(None, at=AFTER)


def waiting(seconds: float, **spec: Any) -> Story:
    story = Story().define("10.0.0.0/24", **spec).reserve(reservation(A))
    return story.reserve(reservation(A, until=UNTIL), at=UNTIL_SECONDS - seconds)


def of_a_dead_one() -> Story:
    """The reservation came after he was made: an operator had not heard of him."""
    dead = reservation(A)
    dead["spec"]["owner"]["uid"] = "dead"
    story = Story().name(A, floating_ip(A)).reserve(dead).reserve(reservation(A))
    return moved(story.name(A, floating_ip(A, ADDRESS)))


def of_two_families() -> Story:
    """One family may wait for an address where the other has got one."""
    story = Story().name(A, floating_ip(A)).reserve(reservation(A))
    for address in (OTHER, HERE, THERE):
        story.reserve_other(reservation(A, address=address))
    edited = floating_ip(A, ADDRESS, HERE, generation=2) | {"spec": {"ipaddress": ""}}
    story.name(A, floating_ip(A, ADDRESS, HERE)).name(A, edited, by_people=True)
    return story.name(A, floating_ip(A, OTHER, HERE)).name(A, floating_ip(A, OTHER, THERE))


def by_the_book() -> Story:
    story = released().reserve(None, at=AFTER).reserve(reservation(B))
    return story.name(B, floating_ip(B, ADDRESS)).carry("c-m-b", ADDRESS)


def under_another_id() -> Story:
    again = reservation(("c-m-new", "fip"))
    again["spec"]["owner"]["cluster"] = "c-m-a"
    return released().reserve(again)


def chosen_by_two() -> Story:
    """One operator writes the spec of A and another its status, each with an address of its own choice."""
    story = (
        Story().name(A, floating_ip(A)).reserve(reservation(A)).reserve_other(reservation(A, address=OTHER))
    )
    of_other = {"spec": {"ipaddress": OTHER}}
    story.name(A, floating_ip(A) | of_other)
    return story.name(A, floating_ip(A, ADDRESS) | of_other).name(A, floating_ip(A, OTHER))


KEPT = {
    "a life by the book": by_the_book(),
    "a guest is written what was released a moment ago": (
        Story().reserve(reservation(A)).reserve(reservation(A, until=UNTIL)).carry("c-m-a", ADDRESS)
    ),
    "an admin writes into a guest": Story().carry("c-m-a", ADDRESS, by_admin=True),
    "a quarantine ends": released().reserve(None, at=UNTIL_SECONDS),
    "who names the address in the same guest": wanted(released(), SIBLING).reserve(reservation(SIBLING)),
    "it goes back to who had it": released().reserve(reservation(A)),
    "it goes back to who had it under another id": under_another_id(),
    "two spaces": settled().reserve(reservation(B, space="blue"), space="blue"),
    "a move that people asked for": moved(
        settled().name(A, floating_ip(A, ADDRESS, generation=2), by_people=True)
    ),
    "a spec that people emptied": moved(asked(settled(), "")),
    "who is made again asks for another range": moved(made_again()),
    "who has what was reserved for a dead one": of_a_dead_one(),
    "a wish that was fulfilled once": (
        asked(settled(), OTHER).reserve_other(reservation(A, address=OTHER)).name(A, floating_ip(A, ADDRESS))
    ),
    "each family moves once": of_two_families(),
    "a status follows the spec that another operator wrote before": chosen_by_two(),
    "people named another": moved(asked(Story().reserve(reservation(A)), OTHER, generation=1)),
    "as long as 90 s": waiting(91, quarantineSeconds=1),
    "the new space keeps it": in_two_spaces(newer_until=None),
    "the new space released it": in_two_spaces(newer_until=UNTIL),
}


@pytest.mark.parametrize("what", KEPT)
def test_what_may_be_breaks_nothing(what: str) -> None:
    assert KEPT[what].broken() == []


BROKEN = {
    "a status names what another holds": (settled().name(B, floating_ip(B, ADDRESS)), "I1"),
    "a status names what nobody holds": (Story().name(A, floating_ip(A, ADDRESS)), "I1"),
    "a guest is written what nobody holds": (Story().carry("c-m-a", ADDRESS), "I1"),
    "a guest is written what another holds": (Story().reserve(reservation(A)).carry("c-m-b", ADDRESS), "I1"),
    "a guest is written what was freed": (
        Story().reserve(reservation(A, until=UNTIL)).reserve(None, at=AFTER).carry("c-m-a", ADDRESS),
        "I1",
    ),
    "it changes hands": (Story().reserve(reservation(A)).reserve(reservation(B)), "I3"),
    "it is released while its owner names it": (settled().reserve(reservation(A, until=UNTIL)), "I3"),
    "it is deleted while its owner names it": (settled().reserve(None), "I3"),
    "a quarantine ends early": (released().reserve(None, at=UNTIL_SECONDS - 60), "I3"),
    "a quarantine ends in the hands of another": (released().reserve(reservation(B)), "I3"),
    "and of one who asks for it": (
        wanted(released(), B).carry("c-m-b", ADDRESS, by_admin=True).reserve(reservation(B), at=AFTER),
        "I3",
    ),
    "and of one who does not name it": (released().reserve(reservation(SIBLING)), "I3"),
    "it is freed while a guest carries it": (still_carried().reserve(None, at=AFTER), "I3"),
    "it is given while a guest carries it": (still_carried().reserve(reservation(B)), "I3"),
    "it leaves a status by itself": (moved(settled()), "I3"),
    "it moves as a range changed": (moved(settled().define("10.0.0.6")), "I3"),
    "it moves as fipop writes another into the spec": (
        settled()
        .reserve_other(reservation(A, address=OTHER))
        .name(A, floating_ip(A, ADDRESS) | {"spec": {"ipaddress": OTHER}})
        .name(A, floating_ip(A, OTHER)),
        "I3",
    ),
    "one edit moves it twice": (moved_back(asked(settled(), "")), "I3"),
    "who is made again moves twice": (moved(moved_back(made_again())), "I3"),
    "who has what was of a dead one moves twice": (of_a_dead_one().name(A, floating_ip(A, ADDRESS)), "I3"),
    "a wish is written over": (asked(settled(), OTHER).name(A, floating_ip(A, ADDRESS)), "I3"),
    "a family moves twice": (of_two_families().name(A, floating_ip(A, OTHER, HERE)), "I3"),
    "it waits less than the default": (waiting(91), "I3"),
    "it waits less than its range says": (waiting(91, quarantineSeconds=120), "I3"),
    "it waits less than 90 s": (waiting(60, quarantineSeconds=1), "I3"),
    "both spaces let go of what a guest carries": (
        in_two_spaces(newer_until=UNTIL).reserve(None, at=AFTER, space="blue"),
        "I3",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_may_not_be_is_seen(what: str) -> None:
    story, rule = BROKEN[what]
    assert rule in story.broken()
    assert len(set(story.broken())) == 1 or rule == "I1"


def test_what_an_admin_deletes_is_no_fault_of_ours() -> None:
    setting = Setting(admin_freed=frozenset({f"default.{ADDRESS}"}))
    assert settled().reserve(None).reserve(reservation(A)).broken(setting) == []


# States at rest


def now(story: Story) -> dict[Any, Any]:
    return {change.key: change.obj for change in story.history.changes if change.obj is not None}


def test_a_state_at_rest_has_nothing_unsettled() -> None:
    assert unsettled(now(settled()), {"c-m-a": frozenset({ADDRESS})}) == []


@pytest.mark.parametrize(
    ("story", "carried", "word"),
    [
        (Story().reserve(reservation(A)), {}, "is held by"),
        (Story().name(A, floating_ip(A, ADDRESS)), {}, "not held"),
        (
            settled().name(A, floating_ip(A, ADDRESS, generation=2)),
            {"c-m-a": frozenset({ADDRESS})},
            "generation",
        ),
        (settled(), {"c-m-a": frozenset()}, "carries"),
        (settled(), {"c-m-a": frozenset({ADDRESS, "10.0.0.6"})}, "carries"),
    ],
    ids=["leaked", "unheld", "unseen", "lacking", "stale"],
)
def test_each_kind_of_unrest_is_seen(story: Story, carried: dict[str, frozenset[str]], word: str) -> None:
    assert any(word in line for line in unsettled(now(story), carried))


def test_a_range_that_miscounts_is_seen() -> None:
    def miscounts(used: int, quarantined: int, **more: Any) -> bool:
        counted = {"total": 5, "used": used, "quarantined": quarantined, "outOfRange": 0}
        made = {
            "metadata": {"name": "r1", "generation": 1},
            "status": {"capacity": counted, "observedGeneration": 1, **more},
        }
        state = {**now(settled()), ("floatingipranges", "", "r1"): made}
        return any("counts" in line for line in unsettled(state, {"c-m-a": frozenset({ADDRESS})}))

    assert miscounts(0, 0)
    assert not miscounts(1, 0)
    assert miscounts(1, 2)
    reported = [{"address": each, "guest": "c-m-b"} for each in ("10.0.0.7", ADDRESS, "10.0.0.8")]
    assert not miscounts(1, 2, reported=reported, reportedCount=3), "one of them is held"
    assert miscounts(1, 3, reported=reported, reportedCount=3)


def test_ends_differ_where_more_than_the_choice_differs() -> None:
    one = normalize(now(settled()), {"c-m-a": frozenset({ADDRESS})})
    other = normalize(now(released()), {"c-m-a": frozenset()})
    assert difference(one, one) == []
    assert difference(one, other)


def test_which_address_was_chosen_makes_no_difference() -> None:
    mine = settled()
    theirs = Story().reserve(reservation(A, address="10.0.0.9")).name(A, floating_ip(A, "10.0.0.9"))
    ends = [
        normalize(now(mine), {"c-m-a": frozenset({ADDRESS})}),
        normalize(now(theirs), {"c-m-a": frozenset({"10.0.0.9"})}),
    ]
    assert difference(*ends) == []


def test_what_is_in_quarantine_is_told_apart_from_what_is_held_and_from_the_time() -> None:
    held, early, late = (
        normalize(now(Story().reserve(reservation(A, **until))), {})
        for until in ({}, {"until": UNTIL}, {"until": "2026-01-01T09:09:09Z"})
    )
    assert difference(early, late) == []
    assert [line.partition(":")[0] for line in difference(held, early)] == ["/quarantine", "/reservations"]
    other = normalize(now(Story().reserve(reservation(B, until=UNTIL))), {})
    assert [line.partition(":")[0] for line in difference(early, other)] == ["/quarantine"]


def test_a_range_tells_what_is_reported_and_not_how_many_wait() -> None:
    def end(waiting: int, *reported: str) -> Any:
        capacity = {"total": 9, "used": 1, "free": 8 - waiting, "quarantined": waiting}
        status = {
            "capacity": {**capacity, "ipv4": capacity},
            "reported": [{"address": each, "guest": "c-m-a"} for each in reported],
        }
        return normalize({("floatingipranges", "", "r1"): {"metadata": {"name": "r1"}, "status": status}}, {})

    assert difference(end(0), end(2)) == []
    assert difference(end(0), end(0, ADDRESS))


def test_creations_and_allocations_are_counted() -> None:
    story = released().reserve(None, at=UNTIL_SECONDS).reserve(reservation(B))
    assert allocations(story.history) == 2
    assert given_out(story.history) == 2
    returned = released().reserve(reservation(A))
    assert (allocations(returned.history), given_out(returned.history)) == (2, 1)
    assert creations(story.history)["+floatingipreservations"] == 2
    assert creations(story.history)["-floatingips"] == 1


def test_two_writers_may_forget_whether_an_address_was_chosen_and_nothing_else() -> None:
    chosen = frozenset({A})
    asked = Story().reserve(reservation(A, requested="static")).name(A, floating_ip(A, ADDRESS))
    carried = {"c-m-a": frozenset({ADDRESS})}
    ends = [normalize(now(story), carried, chosen=chosen) for story in (settled(), asked)]
    assert difference(*ends) == []
    assert difference(normalize(now(settled()), carried), normalize(now(asked), carried))
    lost = normalize(now(Story().name(A, floating_ip(A, ADDRESS))), carried, chosen=chosen)
    assert difference(ends[0], lost)


def test_who_once_had_any_address_may_hold_a_wanted_one() -> None:
    moved = settled().reserve(reservation(A, until=UNTIL))
    moved.reserve_other(reservation(A, address="10.0.0.9", requested="static"))
    assert takes_any(now(settled())) == {A}
    assert takes_any(now(moved)) == frozenset()


def lease(at: float, *, holder: str = "somebody") -> Passed:
    seen = classify("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-fip/leases/fipop-operator", "")
    return Passed(seen=seen, at=at, status=200, struck=None, holder=holder)


def request(at: float, path: str = "/floatingipreservations/x", *, method: str = "PUT") -> Passed:
    seen = classify(method, f"/apis/kubefip.k8s.binbash.org/v1{path}", "")
    return Passed(seen=seen, at=at, status=200, struck=None)


def test_a_write_of_who_led_before_is_seen() -> None:
    mine, theirs = [lease(1.0), request(2.0), request(9.0)], [lease(8.0), request(8.5)]
    assert [line[:20] for line in led_by_two({"a": mine, "b": theirs})] == ["lease: a writes floa"]


def test_who_leads_again_may_write_and_everybody_may_read_or_release() -> None:
    mine = [
        lease(1.0),
        request(8.2),
        request(9.0, method="GET"),
        lease(9.5, holder=""),
        lease(20.0),
        request(21.0),
    ]
    assert led_by_two({"a": mine, "b": [lease(8.0), request(9.0)]}) == []


def use(since: float, *, until: float = float("inf"), address: str = ADDRESS) -> Use:
    return Use(service=("services", "shop", "web"), address=address, since=since, until=until)


@pytest.mark.parametrize(
    ("found", "is_wrong"),
    [
        (use(-10.0), True),
        (use(-1.0), False),  # it took the address while the floating IP was let go
        (use(-10.0, until=0.5), False),
        (use(-10.0, address="10.0.0.6"), False),
    ],
)
def test_no_floating_ip_is_let_go_that_a_service_uses(found: Use, *, is_wrong: bool) -> None:
    story = Story().name(A, floating_ip(A, ADDRESS)).name(A, None)
    wrong = let_go_in_use(story.history, {"c-m-a": [found]}, decided_ago_seconds=5.0)
    assert wrong == ([f"demand: c-m-a/fip is deleted while shop/web uses {ADDRESS}"] if is_wrong else [])


def test_services_of_two_guests_use_no_address_at_the_same_time() -> None:
    assert used_in_two({"c-m-a": [use(1.0, until=2.0), use(1.5)]}) == []
    assert used_in_two({"c-m-a": [use(1.0, until=2.0)], "c-m-b": [use(2.0)]}) == []
    assert used_in_two({"c-m-a": [use(1.0)], "c-m-b": [use(2.0)]}) == [
        f"demand: Services of c-m-a and c-m-b use {ADDRESS}"
    ]


def test_the_most_floating_ips_that_a_guest_had_are_counted() -> None:
    other = ("c-m-a", "other")
    story = (
        Story().name(A, floating_ip(A)).name(other, floating_ip(other)).name(A, None).name(B, floating_ip(B))
    )
    assert most_floating_ips(story.history, "c-m-a") == 2
