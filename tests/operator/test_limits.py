"""The rule "range", limits: restrictToMatching, allowedClusters, allowedWorkspaces and maxPerGuest of a range."""

import pytest

from tests.harness.fleet import EVERY_GUEST, WORKSPACE, Fleet, build_fleet

A, B = "c-m-a", "c-m-b"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
BLUE = {"matchLabels": {"net": "blue"}}
BOTH = f"{X}-{Z},fd00::10-fd00::12"
RETRY = 65
AFTER_QUARANTINE = 1200


def build(**spec: object) -> Fleet:
    """Have a range with this spec, and two guest clusters of which B has the label net=blue."""
    fleet = build_fleet(A, **spec)
    fleet.add_guest(B, labels={"net": "blue"})
    return fleet


async def started(**spec: object) -> Fleet:
    fleet = build(**spec)
    await fleet.start(leader_election=False)
    return fleet


def reason_of(fleet: Fleet, guest_id: str, name: str = "web") -> str:
    return fleet.condition(guest_id, name=name)[1]


# Who is served


@pytest.mark.parametrize(
    ("limits", "served"),
    [
        ({"clusterSelector": BLUE}, {A, B}),
        ({"clusterSelector": BLUE, "restrictToMatching": True}, {B}),
        ({"restrictToMatching": True}, set()),
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
        "a selector alone",
        "a selector and the restriction",
        "the restriction without a selector",
        "a cluster",
        "parts of names",
        "a workspace",
        "another workspace",
        "a cluster of another workspace",
        "both",
        "empty lists",
        "a cluster that does not match",
    ],
)
async def test_a_range_that_a_floating_ip_names_serves_only_the_guest_clusters_that_it_allows(
    limits: dict[str, object], served: set[str]
) -> None:
    fleet = await started(**limits)
    fleet.ask(A)
    fleet.ask(B, Z)
    await fleet.settle()
    assert set(fleet.held().values()) == served
    for guest_id in {A, B} - served:
        assert fleet.condition(guest_id) == ("False", "RangeRestricted")


async def test_a_range_that_does_not_allow_a_guest_cluster_is_not_selected_for_it() -> None:
    fleet = build(clusterSelector=EVERY_GUEST, allowedClusters=["cluster-c-m-b"])
    await fleet.pass_time(10)
    fleet.add_range("rest", "10.0.9.10-10.0.9.13", clusterSelector=EVERY_GUEST)
    await fleet.start(leader_election=False)
    fleet.ask(A, range_name="")
    fleet.ask(B, range_name="")
    await fleet.settle()
    assert fleet.held() == {f"default.{X}": B, "default.10.0.9.10": A}


@pytest.mark.parametrize(
    ("limits", "widened"),
    [
        ({"restrictToMatching": True, "clusterSelector": BLUE}, {"restrictToMatching": False}),
        ({"allowedClusters": ["another"]}, {"allowedClusters": ["another", "cluster-c-m-a"]}),
        ({"allowedWorkspaces": ["another"]}, {"allowedWorkspaces": []}),
    ],
)
async def test_a_later_limit_takes_no_address_away_refuses_another_and_serves_once_it_allows(
    limits: dict[str, object], widened: dict[str, object]
) -> None:
    fleet = await started()
    fleet.ask(A)
    await fleet.settle()
    fleet.change_range(**limits)
    await fleet.settle()
    assert fleet.condition(A) == ("True", "Allocated")
    fleet.change(A, ipaddress=Y)
    await fleet.settle()
    assert (fleet.held(), reason_of(fleet, A)) == ({f"default.{X}": A}, "RangeRestricted")
    fleet.change_range(**widened)
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{Y}": A}
    assert fleet.problems == []


@pytest.mark.parametrize("ipaddress", ["", X])
async def test_a_cluster_of_the_same_name_gets_no_address_of_a_range_that_does_not_allow_its_workspace(
    ipaddress: str,
) -> None:
    fleet = await started(allowedWorkspaces=[WORKSPACE])
    fleet.ask(A)
    await fleet.settle()
    fleet.give_up(A)
    fleet.remove_guest(A)
    await fleet.settle()
    fleet.add_guest("c-m-c", named=f"cluster-{A}", workspace="other")
    fleet.ask("c-m-c", ipaddress)
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert (fleet.held(), reason_of(fleet, "c-m-c")) == ({}, "RangeRestricted")


# How many addresses


async def test_a_guest_cluster_gets_at_most_max_per_guest_addresses_and_another_after_a_quarantine() -> None:
    fleet = await started(maxPerGuest=1)
    fleet.ask(A)
    await fleet.settle()
    fleet.ask(A, name="second")
    fleet.ask(B)
    await fleet.settle()
    assert fleet.held() == {f"default.{X}": A, f"default.{Y}": B}
    assert reason_of(fleet, A, "second") == "QuotaExceeded"
    fleet.give_up(A)
    await fleet.settle()
    assert fleet.held() == {f"default.{Y}": B}
    await fleet.pass_time(AFTER_QUARANTINE)
    assert set(fleet.held().values()) == {A, B}
    assert fleet.condition(A, name="second")[0] == "True"
    assert fleet.problems == []


async def test_a_floating_ip_at_the_limit_that_is_created_again_gets_its_address_back() -> None:
    fleet = await started(maxPerGuest=1)
    fleet.ask(A)
    await fleet.settle()
    fleet.give_up(A)
    await fleet.settle()
    fleet.ask(A)
    await fleet.settle()
    assert fleet.held() == {f"default.{X}": A}
    fleet.give_up(A)
    await fleet.settle()
    fleet.ask(A, Y)
    await fleet.settle()
    assert (fleet.held(), reason_of(fleet, A)) == ({}, "QuotaExceeded")
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.held() == {f"default.{Y}": A}


async def test_creating_and_deleting_floating_ips_does_not_empty_a_range() -> None:
    """Addresses in quarantine count."""
    fleet = await started(maxPerGuest=2, quarantineSeconds=36000)
    for _ in range(10):
        fleet.ask(A, (X, Y, Z)[len(fleet.quarantined())])
        await fleet.settle()
        fleet.give_up(A)
        await fleet.settle()
    assert fleet.quarantined() == {f"default.{X}", f"default.{Y}"}
    fleet.ask(A, Z)
    fleet.ask(B)
    await fleet.settle()
    assert reason_of(fleet, A) == "QuotaExceeded"
    assert set(fleet.held().values()) == {B}


async def test_an_address_that_is_no_longer_in_the_range_does_not_keep_the_next_floating_ip_waiting_for_good() -> (
    None
):
    fleet = await started(maxPerGuest=1)
    fleet.ask(A)
    await fleet.settle()
    fleet.ask(A, name="second")
    fleet.change_range(iprange=f"{Y}-{Z}")
    await fleet.settle()
    assert fleet.addresses(A) == [X]
    fleet.give_up(A)
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.held() == {f"default.{Y}": A}


async def test_a_later_quota_takes_no_address_away() -> None:
    fleet = await started()
    fleet.ask(A)
    fleet.ask(A, name="second")
    await fleet.settle()
    fleet.change_range(maxPerGuest=1)
    await fleet.settle()
    await fleet.restart(leader_election=False)
    assert set(fleet.held()) == {f"default.{X}", f"default.{Y}"}
    assert reason_of(fleet, A) == reason_of(fleet, A, "second") == "Allocated"


@pytest.mark.parametrize("name", ["web", "api"])
async def test_what_a_guest_cluster_uses_by_hand_counts_only_once_a_floating_ip_has_it(name: str) -> None:
    fleet = build(maxPerGuest=1, clusterSelector=EVERY_GUEST)
    fleet.guests[A].add_service(X)
    await fleet.start(leader_election=False)
    fleet.ask(A, Y)
    await fleet.settle()
    assert fleet.held() == {f"default.{Y}": A}
    if name == "web":
        fleet.change(A, ipaddress=X)
    else:
        fleet.ask(A, X, name=name)
    await fleet.pass_time(RETRY)
    assert (fleet.held(), reason_of(fleet, A, name)) == ({f"default.{Y}": A}, "QuotaExceeded")


@pytest.mark.parametrize(
    "spec",
    [
        {"ipFamilyPolicy": "RequireDualStack"},
        {"ipFamilies": ["IPv4", "IPv6"]},
        {"ipaddress": f"{X},fd00::12"},
        {"ipaddress": X, "ipFamilyPolicy": "RequireDualStack"},
    ],
)
async def test_a_floating_ip_that_asks_for_two_addresses_under_a_quota_of_one_gets_none_and_causes_no_writes(
    spec: dict[str, str],
) -> None:
    fleet = await started(maxPerGuest=1, iprange=BOTH, quarantineSeconds=60)
    fleet.ask(A, **spec)
    await fleet.pass_time(RETRY)
    assert (fleet.held(), fleet.quarantined(), reason_of(fleet, A)) == ({}, set(), "QuotaExceeded")
    version = fleet.memory.version
    await fleet.pass_time(1800)
    assert fleet.commits_since(version) == []
    fleet.change_range(maxPerGuest=2)
    await fleet.settle()
    assert len(fleet.held()) == len(fleet.addresses(A)) == 2


async def test_a_floating_ip_that_prefers_two_addresses_under_a_quota_of_one_is_content_with_one() -> None:
    fleet = await started(maxPerGuest=1, iprange=BOTH)
    fleet.ask(A, ipFamilyPolicy="PreferDualStack")
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{X}": A}
    assert fleet.condition(A) == ("True", "Allocated")


async def test_a_guest_cluster_at_the_limit_of_one_range_is_served_from_the_next() -> None:
    fleet = build(maxPerGuest=1, clusterSelector=EVERY_GUEST)
    await fleet.pass_time(10)
    fleet.add_range("next", "10.0.9.10-10.0.9.13", clusterSelector=EVERY_GUEST, maxPerGuest=1)
    await fleet.start(leader_election=False)
    for name in ("web", "api", "third"):
        fleet.ask(A, name=name, range_name="")
        await fleet.settle()
    assert fleet.held() == {f"default.{X}": A, "default.10.0.9.10": A}
    assert reason_of(fleet, A, "third") == "QuotaExceeded"
    fleet.replace(A)
    await fleet.settle()
    assert (fleet.addresses(A), len(fleet.held())) == ([X], 2)


async def test_a_range_with_a_quota_serves_no_namespace_without_a_guest_cluster() -> None:
    """Whoever can create namespaces would have no limit."""
    fleet = await started(maxPerGuest=1)
    fleet.ask("anything")
    await fleet.settle()
    assert (fleet.held(), reason_of(fleet, "anything")) == ({}, "GuestNotFound")
    fleet.add_guest("anything")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{X}": "anything"}
