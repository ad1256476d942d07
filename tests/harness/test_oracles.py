"""Each oracle can fail: for every rule a history that keeps it and one that breaks it."""

from typing import Any

import pytest

from localfleet.faultproxy.proxy import Passed
from localfleet.faultproxy.rules import classify
from tests.harness.ends import difference, normalize, takes_any, unsettled
from tests.harness.history import Carried, Change, History, Use, addresses_in
from tests.harness.oracles import (
    Setting,
    allocations,
    creations,
    given_out,
    led_by_two,
    let_go_in_use,
    most_floating_ips,
    replay,
    used_in_two,
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


def test_a_life_by_the_book_breaks_nothing() -> None:
    story = released().reserve(None, at=UNTIL_SECONDS + 1).reserve(reservation(B))
    story.name(B, floating_ip(B, ADDRESS)).carry("c-m-b", ADDRESS)
    assert story.broken() == []


def test_a_status_may_not_name_what_another_one_holds() -> None:
    assert "I1" in settled().name(B, floating_ip(B, ADDRESS)).broken()


def test_a_status_may_not_name_what_nobody_holds() -> None:
    assert "I1" in Story().name(A, floating_ip(A, ADDRESS)).broken()


def test_a_guest_may_not_be_written_what_nobody_holds_for_it() -> None:
    assert Story().carry("c-m-a", ADDRESS).broken() == ["I1"]
    assert Story().reserve(reservation(A)).carry("c-m-b", ADDRESS).broken() == ["I1"]


def test_a_guest_may_be_written_what_was_released_a_moment_ago_and_must_lose_it_before_another_has_it() -> (
    None
):
    story = Story().reserve(reservation(A)).reserve(reservation(A, until=UNTIL)).carry("c-m-a", ADDRESS)
    assert story.broken() == []
    assert story.reserve(None, at=UNTIL_SECONDS + 1).broken() == ["I3"]
    freed = Story().reserve(reservation(A, until=UNTIL)).reserve(None, at=UNTIL_SECONDS + 1)
    assert freed.carry("c-m-a", ADDRESS).broken() == ["I1"]


def test_what_an_admin_wrote_into_a_guest_is_no_fault_of_ours() -> None:
    assert Story().carry("c-m-a", ADDRESS, by_admin=True).broken() == []


def test_a_held_address_may_not_change_hands() -> None:
    assert "I3" in Story().reserve(reservation(A)).reserve(reservation(B)).broken()


def test_a_held_address_may_not_be_released_while_its_owner_names_it() -> None:
    assert settled().reserve(reservation(A, until=UNTIL)).broken() == ["I3"]
    assert "I3" in settled().reserve(None).broken()


def test_what_an_admin_deletes_is_no_fault_of_ours() -> None:
    setting = Setting(admin_freed=frozenset({f"default.{ADDRESS}"}))
    assert settled().reserve(None).reserve(reservation(A)).broken(setting) == []


def test_a_quarantine_may_not_end_early() -> None:
    assert released().reserve(None, at=UNTIL_SECONDS - 60).broken() == ["I3"]
    assert released().reserve(None, at=UNTIL_SECONDS).broken() == []


def test_a_quarantine_may_not_end_in_the_hands_of_another() -> None:
    assert released().reserve(reservation(B)).broken() == ["I3"]
    asked = released().name(B, floating_ip(B, ADDRESS) | {"status": {}}, by_people=True)
    assert asked.carry("c-m-b", ADDRESS, by_admin=True).reserve(
        reservation(B), at=UNTIL_SECONDS + 1
    ).broken() == ["I3"]


def test_a_quarantine_may_end_for_who_names_the_address_in_the_same_guest_cluster() -> None:
    sibling = ("c-m-a", "other")
    asked = released().name(sibling, floating_ip(sibling, ADDRESS) | {"status": {}}, by_people=True)
    assert asked.reserve(reservation(sibling)).broken() == []
    assert released().reserve(reservation(sibling)).broken() == ["I3"]


def test_an_address_may_go_back_to_who_had_it() -> None:
    assert released().reserve(reservation(A)).broken() == []
    again = reservation(("c-m-new", "fip"))
    again["spec"]["owner"]["cluster"] = "c-m-a"
    assert released().reserve(again).broken() == []


def test_an_address_may_not_be_freed_or_given_while_a_guest_carries_it() -> None:
    still = settled().name(A, None).reserve(reservation(A, until=UNTIL))
    assert still.reserve(None, at=UNTIL_SECONDS + 1).broken() == ["I3"]
    assert still.reserve(reservation(B)).broken() == ["I3", "I3"]


def test_the_same_address_of_two_spaces_has_two_owners_by_right() -> None:
    story = settled().reserve(reservation(B, space="blue"), space="blue")
    assert story.broken() == []


OTHER = "10.0.0.6"


def moved(story: Story) -> Story:
    """A holds two addresses; its status names the other one from now on."""
    story.reserve_other(reservation(A, address=OTHER))
    return story.name(A, floating_ip(A, OTHER))


def test_a_held_address_may_not_leave_a_status_by_itself() -> None:
    assert moved(settled()).broken() == ["I3"]


def test_a_held_address_may_leave_a_status_when_people_asked_for_that_and_not_when_a_range_changed() -> None:
    asked = settled().name(A, floating_ip(A, ADDRESS, generation=2), by_people=True)
    assert moved(asked).broken() == []
    assert moved(settled().define("10.0.0.6")).broken() == ["I3"]
    edited = floating_ip(A, ADDRESS, generation=2) | {"spec": {"ipaddress": ""}}
    once = moved(settled().name(A, edited, by_people=True))
    assert once.broken() == []
    assert once.name(A, floating_ip(A, ADDRESS)).broken() == ["I3"], "one edit moves it once"


def test_who_is_made_again_under_his_name_may_ask_for_another_range_once() -> None:
    """He goes on from where his address is, and may name another range than before."""

    def made_again(story: Story) -> Story:
        return story.name(A, None).name(A, floating_ip(A, ADDRESS))

    def moved_back(story: Story) -> Story:
        return moved(story).name(A, floating_ip(A, ADDRESS))

    def moved_on(story: Story) -> Story:
        return moved_back(story).name(A, floating_ip(A, OTHER))

    assert moved(made_again(settled())).broken() == []
    assert moved_on(made_again(settled())).broken() == ["I3"]


def test_who_gets_what_was_reserved_for_a_dead_object_of_his_name_may_ask_for_another_range() -> None:
    """The reservation came after he was made: an operator had not heard of him."""
    dead = reservation(A)
    dead["spec"]["owner"]["uid"] = "dead"
    story = (
        Story().name(A, floating_ip(A)).reserve(dead).reserve(reservation(A)).name(A, floating_ip(A, ADDRESS))
    )
    assert moved(story).broken() == []
    assert story.name(A, floating_ip(A, ADDRESS)).broken() == ["I3"], "once"


def test_a_wish_may_not_be_written_over_unless_it_was_fulfilled_once() -> None:
    wished = floating_ip(A, ADDRESS, generation=2) | {"spec": {"ipaddress": OTHER}}
    story = settled().name(A, wished, by_people=True)
    assert story.name(A, floating_ip(A, ADDRESS)).broken() == ["I3"]
    granted = settled().name(A, wished, by_people=True).reserve_other(reservation(A, address=OTHER))
    assert granted.name(A, floating_ip(A, ADDRESS)).broken() == []


def test_for_one_edit_each_of_two_families_may_move_once() -> None:
    """One may wait for an address where the other has got one."""
    here, there = ("fd00::5", "fd00::6")
    story = Story().name(A, floating_ip(A)).reserve(reservation(A))
    for address in (OTHER, here, there):
        story.reserve_other(reservation(A, address=address))
    edited = floating_ip(A, ADDRESS, here, generation=2) | {"spec": {"ipaddress": ""}}
    story.name(A, floating_ip(A, ADDRESS, here)).name(A, edited, by_people=True)
    story.name(A, floating_ip(A, OTHER, here)).name(A, floating_ip(A, OTHER, there))
    assert story.broken() == []
    assert story.name(A, floating_ip(A, OTHER, here)).broken() == ["I3"]


def test_a_held_address_may_leave_a_status_whenever_people_named_another() -> None:
    made = floating_ip(A, ADDRESS) | {"spec": {"ipaddress": OTHER}}
    story = Story().reserve(reservation(A)).name(A, made, by_people=True)
    assert moved(story).broken() == []


def test_a_quarantine_may_not_be_shorter_than_its_range_says() -> None:
    def waiting(seconds: float, **spec: Any) -> list[str]:
        story = Story().define("10.0.0.0/24", **spec).reserve(reservation(A))
        return story.reserve(reservation(A, until=UNTIL), at=UNTIL_SECONDS - seconds).broken()

    assert waiting(91) == ["I3"]
    assert waiting(91, quarantineSeconds=120) == ["I3"]
    assert waiting(91, quarantineSeconds=1) == []


def test_a_quarantine_may_not_be_shorter_than_90_s_whatever_its_range_says() -> None:
    story = Story().define("10.0.0.0/24", quarantineSeconds=1).reserve(reservation(A))
    assert story.reserve(reservation(A, until=UNTIL), at=UNTIL_SECONDS - 60).broken() == ["I3"]


def in_two_spaces(*, newer_until: str | None) -> Story:
    """A moved to another space: its guest carries the address for that one, where it may be released again."""
    story = settled().reserve(reservation(A, space="blue"), space="blue").name(A, None)
    story.reserve(reservation(A, until=UNTIL))
    return (
        story
        if newer_until is None
        else story.reserve(reservation(A, space="blue", until=newer_until), space="blue")
    )


@pytest.mark.parametrize("newer_until", [None, UNTIL], ids=["held", "released"])
def test_an_address_may_leave_the_old_space_while_the_new_one_keeps_it(newer_until: str | None) -> None:
    assert in_two_spaces(newer_until=newer_until).reserve(None, at=UNTIL_SECONDS + 1).broken() == []


def test_two_spaces_may_not_both_let_go_of_what_the_guest_carries() -> None:
    story = in_two_spaces(newer_until=UNTIL).reserve(None, at=UNTIL_SECONDS + 1)
    assert story.reserve(None, at=UNTIL_SECONDS + 1, space="blue").broken() == ["I3"]


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


def test_single_addresses_are_found_in_pools() -> None:
    assert addresses_in("10.0.0.1/32, fd00::1/128,10.0.0.0/24 10.0.0.9") == {
        "10.0.0.1",
        "fd00::1",
        "10.0.0.9",
    }


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
