"""The rules "use", "decision", "who can take" and "inheritance": which address a floating IP gets, keeps and takes."""

import pytest

from tests.harness.fleet import EVERY_GUEST, Fleet, build_fleet

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
V6 = "fd00::10"
RETRY = 65
"""Seconds after which all floating IPs that wait were tried again."""
AFTER_QUARANTINE = 1200
"""Seconds: the quarantine of 600, and a visit."""


def build(*guest_ids: str, **spec: object) -> Fleet:
    return build_fleet(*guest_ids, **{"clusterSelector": EVERY_GUEST, **spec})


async def started(*guest_ids: str, **spec: object) -> Fleet:
    fleet = build(*guest_ids, **spec)
    await fleet.start(leader_election=False)
    return fleet


async def holding(*guest_ids: str, **spec: object) -> Fleet:
    """Have the floating IP of the first guest cluster hold X, the first address of the range."""
    fleet = await started(*guest_ids, **spec)
    fleet.ask(guest_ids[0])
    await fleet.settle()
    assert fleet.addresses(guest_ids[0]) == [X]
    return fleet


# What it gets


async def test_each_floating_ip_gets_an_address_of_its_own_in_status_spec_reservation_and_guest_cluster() -> (
    None
):
    fleet = await started(A, B)
    fleet.ask(A)
    fleet.ask(B)
    await fleet.settle()
    assert fleet.held() == {f"default.{X}": A, f"default.{Y}": B}
    for guest_id, address in ((A, X), (B, Y)):
        assert fleet.addresses(guest_id) == [address]
        assert fleet.asked_for(guest_id) == address
        assert fleet.guests[guest_id].addresses == {address}
        assert fleet.condition(guest_id, "Ready")[0] == "True"
    assert fleet.problems == []


async def test_a_floating_ip_that_names_an_address_gets_that_one_and_waits_while_another_holds_it() -> None:
    fleet = await started(A, B)
    fleet.ask(A, Y)
    await fleet.settle()
    fleet.ask(B, Y)
    await fleet.settle()
    assert fleet.held() == {f"default.{Y}": A}
    assert fleet.condition(B) == ("False", "AddressInUse")
    fleet.change(B, ipaddress="")
    await fleet.settle()
    assert fleet.held() == {f"default.{Y}": A, f"default.{X}": B}
    assert fleet.problems == []


async def test_a_move_claims_the_new_address_and_puts_the_old_one_into_quarantine() -> None:
    fleet = await holding(A)
    fleet.change(A, ipaddress=Y)
    await fleet.pass_time(RETRY)
    assert (fleet.addresses(A), fleet.guests[A].addresses) == ([Y], {Y})
    assert (fleet.held(), fleet.quarantined()) == ({f"default.{Y}": A}, {f"default.{X}"})
    fleet.change(A, ipaddress=X)
    await fleet.settle()
    assert (fleet.held(), fleet.quarantined()) == ({f"default.{X}": A}, {f"default.{Y}"})
    assert fleet.problems == []


@pytest.mark.parametrize("range_name", ["pool", ""])
async def test_an_emptied_spec_keeps_the_address(range_name: str) -> None:
    fleet = await started(A)
    fleet.ask(A, Y, range_name=range_name)
    await fleet.settle()
    fleet.change(A, ipaddress="")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == [Y]
    assert fleet.held() == {f"default.{Y}": A}
    assert fleet.condition(A) == ("True", "Allocated")


# All that it asks for, or exactly what it has


@pytest.mark.parametrize(
    "wish",
    [
        {"ipaddress": f"{Y},{V6}", "ipFamilyPolicy": "SingleStack"},
        {"ipaddress": Y, "ipFamilyPolicy": "RequireDualStack"},
        {"ipaddress": "10.0.0.99"},
        {"ipaddress": "10.0.0.13"},
        {"range_name": "missing", "ipaddress": Y},
        {"range_name": "far", "ipaddress": Y},
        {"range_name": "far", "ipFamilyPolicy": "RequireDualStack"},
        {"range_name": "drained", "ipaddress": ""},
        {"range_name": "invalid", "ipaddress": ""},
    ],
    ids=[
        "two addresses with SingleStack",
        "a family that the range lacks",
        "an address beyond the range",
        "an address that another holds",
        "a range that does not exist",
        "an address of another range",
        "both families of a range with one",
        "a draining range",
        "a range that cannot be read",
    ],
)
async def test_a_floating_ip_that_cannot_have_all_that_it_asks_for_keeps_exactly_what_it_has(
    wish: dict[str, object],
) -> None:
    fleet = await holding(A, B)
    fleet.add_range("far", "10.0.9.10-10.0.9.13")
    fleet.add_range("drained", "10.0.8.10-10.0.8.13", draining=True)
    fleet.add_range("invalid", "10.0.7.13-10.0.7.10")
    fleet.ask(B, "10.0.0.13")
    await fleet.settle()
    fleet.move(A, **{"range_name": "pool", **wish})
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == [X]
    assert fleet.held() == {f"default.{X}": A, "default.10.0.0.13": B}
    assert fleet.quarantined() == set()
    assert fleet.condition(A)[0] == "False"
    assert fleet.guests[A].addresses == {X}
    fleet.move(A, "pool", ipaddress=Y, ipFamilyPolicy="SingleStack")
    await fleet.settle()
    assert (fleet.addresses(A), fleet.condition(A)[0]) == ([Y], "True")
    assert fleet.problems == []


# Who can take an address out of its quarantine


@pytest.mark.parametrize("asks_for", ["", X])
async def test_a_floating_ip_that_is_created_again_gets_its_address_back(asks_for: str) -> None:
    fleet = await holding(A, B)
    fleet.give_up(A)
    await fleet.settle()
    assert fleet.quarantined() == {f"default.{X}"}
    fleet.ask(B)
    fleet.ask(A, asks_for)
    await fleet.settle()
    assert fleet.held() == {f"default.{X}": A, f"default.{Y}": B}
    assert fleet.problems == []


async def test_a_floating_ip_that_is_created_again_gets_its_address_back_though_that_fills_the_range() -> (
    None
):
    """The older range is full by this quarantine alone, and floating IPs of other names are served by the next."""
    fleet = build(A, B, iprange=X)
    await fleet.pass_time(5)
    fleet.add_range("next", "10.0.1.10-10.0.1.20", clusterSelector=EVERY_GUEST)
    await fleet.start(leader_election=False)
    fleet.ask(A, range_name="")
    await fleet.settle()
    fleet.give_up(A)
    await fleet.settle()
    fleet.ask(B, range_name="")
    await fleet.settle()
    fleet.ask(A, range_name="")
    await fleet.settle()
    assert fleet.held() == {f"default.{X}": A, "default.10.0.1.10": B}
    assert fleet.problems == []


async def test_a_former_owner_does_not_get_back_what_the_range_excludes_since() -> None:
    fleet = await holding(A)
    fleet.give_up(A)
    await fleet.settle()
    fleet.change_range(exclude=[X])
    fleet.ask(A)
    await fleet.settle()
    assert fleet.held() == {f"default.{Y}": A}


@pytest.mark.parametrize("order", ["created first", "created later", "created after the time"])
async def test_another_floating_ip_of_the_same_guest_cluster_takes_the_address_that_it_names(
    order: str,
) -> None:
    """As when a floating IP that fipop created moves into Git, under a name of its own, while a Service uses it."""
    fleet = await holding(A, B)
    fleet.guests[A].add_service(X)
    if order == "created first":
        fleet.ask(A, X, name="from-git")
        await fleet.settle()
        assert fleet.condition(A, name="from-git") == ("False", "AddressInUse")
    fleet.give_up(A)
    await fleet.settle()
    if order == "created after the time":
        await fleet.pass_time(AFTER_QUARANTINE)
    fleet.ask(B, X)
    if order != "created first":
        fleet.ask(A, X, name="from-git")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{X}": A}
    assert fleet.condition(A, name="from-git") == ("True", "Allocated")
    assert fleet.condition(B)[0] == "False"
    assert fleet.problems == []


async def test_a_guest_cluster_that_is_created_again_under_its_name_gets_its_address_back() -> None:
    fleet = await started(A, B, iprange=f"{X}-{Y}")
    fleet.ask(A, Y)
    await fleet.settle()
    fleet.give_up(A)
    fleet.remove_guest(A)
    await fleet.pass_time(30)
    fleet.add_guest("c-m-new", named=f"cluster-{A}")
    fleet.ask("c-m-new")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{Y}": "c-m-new"}
    assert fleet.guests["c-m-new"].addresses == {Y}
    assert fleet.problems == []


async def test_a_guest_cluster_that_is_created_again_gets_no_address_that_another_uses() -> None:
    fleet = build("c-m-user", quarantineSeconds=86400)
    fleet.add_guest("c-m-old", named="demo")
    await fleet.start(leader_election=False)
    fleet.ask("c-m-old")
    await fleet.settle()
    fleet.give_up("c-m-old")
    fleet.remove_guest("c-m-old", named="demo")
    fleet.guests["c-m-user"].add_service(X)
    await fleet.pass_time(600)
    await fleet.restart(leader_election=False)
    fleet.add_guest("c-m-new", named="demo")
    fleet.ask("c-m-new")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{Y}": "c-m-new"}


async def test_an_address_of_a_namespace_without_a_guest_cluster_is_free_after_its_quarantine() -> None:
    fleet = await started(C)
    fleet.ask("c-m-never")
    await fleet.settle()
    assert fleet.holders(X) == {"c-m-never"}
    fleet.give_up("c-m-never")
    await fleet.settle()
    fleet.ask(C)
    await fleet.settle()
    assert fleet.held() == {f"default.{Y}": C}
    fleet.ask(B, X)
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.holders(X) == {B}


# What kube-fip-operator assigned


@pytest.mark.parametrize("address", [X, "10.0.0.253"], ids=["in the range", "beyond the range"])
@pytest.mark.parametrize("policy", ["", "RequireDualStack"])
async def test_a_floating_ip_of_kube_fip_operator_keeps_what_its_spec_names(
    address: str, policy: str
) -> None:
    fleet = build(A, B)
    fleet.ask(A, address, **({"ipFamilyPolicy": policy} if policy else {}))
    fleet.guests[A].write_config_map(cidr_global=f"{address}/32")
    await fleet.pass_time(10)
    fleet.install_crds()
    await fleet.start(leader_election=False)
    fleet.ask(B, address)
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{address}": A}
    assert fleet.guests[A].addresses == {address}


async def test_of_two_floating_ips_of_kube_fip_operator_that_name_an_address_the_older_keeps_it() -> None:
    """The other one gets it once it is deleted and its guest cluster does not use it any more."""
    fleet = build(A, B)
    for guest_id in (A, B):
        fleet.ask(guest_id, X)
        fleet.guests[guest_id].add_service(X)
        await fleet.pass_time(10)
    fleet.install_crds()
    await fleet.start(leader_election=False)
    assert fleet.held() == {f"default.{X}": A}
    assert fleet.condition(B) == ("False", "AddressInUse")
    fleet.give_up(A)
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.held() == {}
    fleet.guests[A].remove_service()
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.held() == {f"default.{X}": B}
    assert fleet.condition(B) == ("True", "Allocated")


async def test_a_floating_ip_of_kube_fip_operator_gets_what_it_names_later_only_from_its_range() -> None:
    fleet = build(A)
    fleet.ask(A)
    await fleet.pass_time(10)
    fleet.install_crds()
    await fleet.start(leader_election=False)
    assert fleet.held() == {f"default.{X}": A}
    fleet.ask_for_another(A, "10.0.0.254")
    await fleet.settle()
    assert fleet.held() == {f"default.{X}": A}
    assert fleet.condition(A) == ("False", "AddressOutOfRange")


async def test_a_floating_ip_that_is_younger_than_fipop_gets_no_address_beyond_its_range() -> None:
    """As one that kube-fip-operator creates after a way back to it; its key stays as it wrote it."""
    fleet = build(A, B)
    await fleet.pass_time(100)
    for guest_id, address in ((A, X), (B, "10.0.0.253")):
        fleet.ask(guest_id, address)
        fleet.guests[guest_id].write_config_map(cidr_global=f"{address}/32")
    await fleet.start(leader_election=False)
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{X}": A}
    assert fleet.condition(B) == ("False", "AddressOutOfRange")
    assert (fleet.guests[A].addresses, fleet.guests[B].addresses) == ({X}, {"10.0.0.253"})
