"""Ranges that serve only their own guests, and guests that may have only so much of a range."""

from datetime import timedelta

import pytest

from fipop.kube.resources import FLOATING_IPS
from tests.harness.history import Change
from tests.harness.small_cluster import WORKSPACE
from tests.harness.small_operator import SmallOperator

A, B = "c-m-a", "c-m-b"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
BLUE = {"matchLabels": {"net": "blue"}}


def build(**spec: object) -> SmallOperator:
    operator = SmallOperator()
    operator.add_range(**spec)  # type: ignore[arg-type]
    operator.add_guest(A)
    operator.add_guest(B)
    operator.label_guest(B, net="blue")
    return operator


def reason_of(operator: SmallOperator, guest_id: str) -> str:
    conditions = operator.memory.objects[FLOATING_IPS.plural, guest_id, "web"]["status"]["conditions"]
    return str(next(each["reason"] for each in conditions if each["type"] == "Allocated"))


@pytest.mark.parametrize("ipaddress", ["", Z])
async def test_a_restricted_range_serves_only_guests_that_it_would_be_chosen_for(ipaddress: str) -> None:
    """Four floating IPs of a tenant emptied a range whose selector excluded his guest."""
    operator = build(restrictToMatching=True, clusterSelector=BLUE)
    await operator.start()
    operator.ask(A, ipaddress)
    operator.ask(B)
    await operator.settle()
    assert operator.held() == {f"default.{X}": B}
    assert reason_of(operator, A) == "RangeRestricted"


async def test_without_the_restriction_the_word_of_whoever_names_it_counts() -> None:
    operator = build(clusterSelector=BLUE)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A}


async def test_a_restriction_moves_nobody_and_lets_a_guest_in_once_it_matches() -> None:
    operator = build(clusterSelector=BLUE)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.change_range(restrictToMatching=True)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A}
    operator.ask_for_another(A, Y)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A}, (
        "an address of the range that it does not have is a new one"
    )
    assert reason_of(operator, A) == "RangeRestricted"
    operator.label_guest(A, net="blue")
    await operator.settle()
    assert operator.held() == {f"default.{Y}": A}


async def test_a_range_that_names_nothing_serves_nobody_where_it_is_restricted() -> None:
    operator = build(restrictToMatching=True)
    await operator.start()
    operator.ask(B)
    await operator.settle()
    assert operator.held() == {}
    assert reason_of(operator, B) == "RangeRestricted"


async def test_making_and_deleting_floating_ips_does_not_empty_a_range() -> None:
    """What waits in quarantine counts: of ten rounds the third and all after it get nothing."""
    operator = build(maxPerGuest=2, quarantineSeconds=36000)
    await operator.start()
    for _ in range(10):
        operator.ask(
            A, X if len(operator.quarantined()) == 0 else Y if len(operator.quarantined()) == 1 else Z
        )
        await operator.settle()
        operator.give_up(A)
        await operator.settle()
    assert operator.quarantined() == {f"default.{X}", f"default.{Y}"}
    operator.ask(A, Z)
    operator.ask(B)
    await operator.settle()
    assert reason_of(operator, A) == "QuotaExceeded"
    assert operator.held() == {f"default.{Z}": B}


async def test_who_is_at_its_limit_gets_back_what_it_had_and_more_when_a_quarantine_ends() -> None:
    operator = build(maxPerGuest=1)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    operator.ask(A)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A}
    operator.give_up(A)
    await operator.settle()
    operator.ask(A, Y)
    await operator.settle()
    assert (operator.held(), reason_of(operator, A)) == ({}, "QuotaExceeded")
    await operator.pass_time(2000)
    assert operator.held() == {f"default.{Y}": A}


async def test_who_is_at_its_limit_gets_its_next_address_also_when_the_first_is_no_longer_of_the_range() -> (
    None
):
    operator = build(maxPerGuest=1)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.ask(A, name="second")
    operator.change_range(iprange=f"{Y}-{Z}")
    await operator.settle()
    assert operator.held() == {f"default.{X}": A}
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2000)
    assert operator.held() == {f"default.{Y}": A}


async def test_a_limit_that_comes_later_moves_nobody() -> None:
    operator = build(ipFamilies=None)
    operator.ask(A, has=X)
    operator.reserve(X, A)
    operator.reserve(Y, A, until=operator.memory.now + timedelta(hours=1))
    await operator.start()
    operator.change_range(maxPerGuest=1)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A}
    assert reason_of(operator, A) == "Allocated"


async def test_what_was_only_found_in_a_guest_cluster_does_not_count_until_a_floating_ip_has_it() -> None:
    """A Service there had an address of the range by hand, and the floating IP waited for ever."""
    operator = build(maxPerGuest=1, clusterSelector={"matchLabels": {}})
    operator.carried.services[A] = X
    await operator.start()
    assert operator.quarantined() == {f"default.{X}"}
    operator.ask(A)
    await operator.settle()
    operator.ask(A, X, name="api")
    await operator.settle()
    assert operator.held() == {f"default.{Y}": A}


async def test_what_is_found_in_a_guest_cluster_is_no_way_around_the_limit() -> None:
    """It was found for the floating IP that asks for it, which got it beyond the limit after a restart."""
    operator = build(maxPerGuest=1, clusterSelector={"matchLabels": {}})
    operator.ask(A, has=Y)
    operator.reserve(Y, A)
    operator.ask_for_another(A, X)
    operator.carried.services[A] = X
    await operator.start()
    assert operator.quarantined() == {f"default.{X}"}
    await operator.pass_time(2000)
    assert (operator.held(), reason_of(operator, A)) == ({f"default.{Y}": A}, "QuotaExceeded")


@pytest.mark.parametrize(
    "spec",
    [
        {"ipFamilyPolicy": "RequireDualStack"},
        {"ipFamilies": ["IPv4", "IPv6"]},
        {"ipaddress": f"{X},fd00::12"},
        {"ipaddress": X, "ipFamilyPolicy": "RequireDualStack"},
    ],
)
async def test_who_may_have_one_address_and_asks_for_two_gets_none_and_causes_no_writes(
    spec: dict[str, object],
) -> None:
    """The first was claimed, the second refused, the first given back, freed and claimed again, for ever."""
    operator = build(maxPerGuest=1, iprange=f"{X}-{Z},fd00::10-fd00::12", quarantineSeconds=60)
    await operator.start()
    operator.ask(A, str(spec.get("ipaddress", "")), **{key: spec[key] for key in spec if key != "ipaddress"})
    await operator.settle()
    await operator.pass_time(60)
    assert (operator.held(), operator.quarantined()) == ({}, set())
    assert reason_of(operator, A) == "QuotaExceeded"
    writes: list[Change] = []
    operator.memory.listeners.append(writes.append)
    await operator.pass_time(24 * 3600)
    assert writes == []
    operator.change_range(maxPerGuest=2)
    await operator.settle()
    assert set(operator.held().values()) == {A}
    assert len(operator.held()) == 2


async def test_a_guest_at_its_limit_in_one_range_is_served_from_the_next_that_has_room() -> None:
    """A floating IP that names no range waited at the first match."""
    everything = {"matchLabels": {}}
    operator = build(maxPerGuest=1, clusterSelector=everything)
    await operator.pass_time(10)
    operator.add_range("next", "10.0.9.10-10.0.9.13", clusterSelector=everything, maxPerGuest=1)
    await operator.start()
    for name in ("web", "api", "third"):
        operator.ask(A, name=name, range_name="")
        await operator.settle()
    assert operator.held() == {f"default.{X}": A, "default.10.0.9.10": A}
    third = operator.memory.objects[FLOATING_IPS.plural, A, "third"]["status"]["conditions"]
    assert "QuotaExceeded" in {each["reason"] for each in third}
    operator.give_up(A)
    await operator.settle()
    operator.ask(A, range_name="")
    await operator.settle()
    assert operator.held() == {f"default.{X}": A, "default.10.0.9.10": A}, "it gets back what it had"


async def test_who_prefers_two_addresses_and_may_have_one_has_one() -> None:
    operator = build(maxPerGuest=1, iprange=f"{X}-{Z},fd00::10-fd00::12")
    await operator.start()
    operator.ask(A, ipFamilyPolicy="PreferDualStack")
    await operator.settle()
    await operator.pass_time(24 * 3600)
    assert operator.held() == {f"default.{X}": A}
    assert reason_of(operator, A) == "Allocated"


@pytest.mark.parametrize(
    ("allowed", "served"),
    [
        ({"allowedClusters": ["cluster-c-m-b"]}, {B}),
        ({"allowedClusters": ["cluster-c-m", "cluster-c-m-*"]}, set()),
        ({"allowedWorkspaces": [WORKSPACE]}, {A, B}),
        ({"allowedWorkspaces": ["other"]}, set()),
        ({"allowedWorkspaces": ["other"], "allowedClusters": ["cluster-c-m-b"]}, set()),
        ({"allowedWorkspaces": [WORKSPACE], "allowedClusters": ["cluster-c-m-a"]}, {A}),
        ({"allowedWorkspaces": [], "allowedClusters": []}, {A, B}),
        ({"allowedClusters": ["cluster-c-m-a"], "restrictToMatching": True, "clusterSelector": BLUE}, set()),
    ],
    ids=[
        "a cluster",
        "parts of names",
        "a workspace",
        "another workspace",
        "a cluster of another workspace",
        "both",
        "empty lists",
        "a cluster that would not be chosen",
    ],
)
async def test_a_range_serves_only_the_workspaces_and_clusters_that_the_admin_lists(
    allowed: dict[str, object], served: set[str]
) -> None:
    """Labels may be set by the owner of a cluster, its name and workspace may not."""
    operator = build(**allowed)
    await operator.start()
    operator.ask(A)
    operator.ask(B, Z)
    await operator.settle()
    assert set(operator.held().values()) == served
    for guest_id in {A, B} - served:
        assert reason_of(operator, guest_id) == "RangeRestricted"


@pytest.mark.parametrize("ipaddress", ["", X])
async def test_a_cluster_of_the_same_name_inherits_no_address_of_a_range_that_does_not_list_its_workspace(
    ipaddress: str,
) -> None:
    """The former owner is known by the names of cluster and floating IP; what the range allows comes first."""
    operator = build(allowedWorkspaces=[WORKSPACE])
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.give_up(A)
    operator.remove_guest(A)
    await operator.settle()
    operator.add_guest("c-m-c", named=f"cluster-{A}", workspace="other")
    operator.ask("c-m-c", ipaddress)
    await operator.settle()
    await operator.pass_time(1)
    assert (operator.held(), reason_of(operator, "c-m-c")) == ({}, "RangeRestricted")
    assert operator.quarantined() == {f"default.{X}"}


async def test_no_range_that_lists_others_is_chosen_for_a_guest() -> None:
    everything = {"matchLabels": {}}
    operator = build(clusterSelector=everything, allowedClusters=["cluster-c-m-b"])
    await operator.pass_time(10)
    operator.add_range("rest", "10.0.9.10-10.0.9.13", clusterSelector=everything)
    await operator.start()
    for guest_id in (A, B):
        operator.ask(guest_id)
        operator.ask_for_range(guest_id, "")
    await operator.settle()
    assert operator.held() == {f"default.{X}": B, "default.10.0.9.10": A}


async def test_a_list_that_comes_later_takes_nothing_away_and_one_that_grows_lets_in_who_waits() -> None:
    operator = build()
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.change_range(allowedClusters=["cluster-c-m-c"])
    operator.ask(B)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A}
    operator.change_range(allowedClusters=["cluster-c-m-c", "cluster-c-m-b"])
    await operator.settle()
    assert operator.held() == {f"default.{X}": A, f"default.{Y}": B}


async def test_where_guests_are_limited_a_namespace_that_is_no_guests_gets_nothing() -> None:
    """Each namespace had its own limit, and who may make namespaces had no limit."""
    operator = build(maxPerGuest=1)
    await operator.start()
    operator.ask("anything")
    await operator.settle()
    assert operator.held() == {}
    assert reason_of(operator, "anything") == "GuestNotFound"
    operator.add_guest("anything")
    await operator.settle()
    assert operator.held() == {f"default.{X}": "anything"}
