"""A floating IP that waits is served as soon as it can be, and its conditions say what it waits for."""

from tests.harness.fleet import Fleet

A, B = "c-m-a", "c-m-b"
X = "10.0.0.10"
QUARANTINE = 600


async def test_an_address_goes_to_the_one_that_waits_after_its_quarantine() -> None:
    fleet = Fleet()
    fleet.add_range(iprange=f"{X}-{X}")
    fleet.add_guest(A)
    fleet.add_guest(B)
    await fleet.start()
    fleet.ask(A)
    await fleet.settle()
    fleet.ask(B)
    await fleet.settle()
    assert (fleet.holders(X), fleet.guests[A].addresses) == ({A}, {X})
    fleet.give_up(A)
    await fleet.pass_time(QUARANTINE - 10)
    assert fleet.holders(X) == set()
    await fleet.pass_time(QUARANTINE)
    assert (fleet.holders(X), fleet.guests[B].addresses) == ({B}, {X})
    assert fleet.problems == []


async def test_an_opted_in_guest_cluster_gets_both_releases() -> None:
    fleet = Fleet()
    fleet.add_range()
    fleet.add_guest(A)
    fleet.opt_in(A)
    await fleet.start()
    fleet.ask(A)
    await fleet.pass_time(30)
    assert fleet.guests[A].releases == {"kube-vip": "deployed", "kube-vip-cloud-provider": "deployed"}
    assert fleet.condition(A, "KubeVipReady") == ("True", "Ready")
