"""The rule "demand": floating IPs for Services, made and let go without a person (FloatingIPRange.spec.perGuest)."""

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from fipop.api import names
from tests.harness.fleet import EVERY_GUEST, Fleet
from tests.harness.history import FLOATING_IPS, RANGES
from tests.harness.provider_stand_in import CONDITION, ProviderStandIn

A, B = "c-m-a", "c-m-b"
FIRST = f"cluster-{A}-kubevip"
SECOND, THIRD, FOURTH, FIFTH = (f"{FIRST}-{number}" for number in (2, 3, 4, 5))
SOON = 45.0
"""After so long a Service that waits has its address."""
FEW = 120
"""`releaseAfterSeconds` of these tests."""
LET_GO = FEW + 120.0
RELEASED = 1500.0
"""After so long an address that nobody uses has left its quarantine."""


def build(*guest_ids: str, iprange: str = "10.0.0.10-10.0.0.29", limits: Any = None, **spec: Any) -> Fleet:
    """Have guest clusters with a floating IP each, of a range with `perGuest`, and a provider in each of them."""
    fleet = Fleet()
    per_guest = {"minAllocate": 1, "maxAllocate": 4, "releaseAfterSeconds": FEW} | (limits or {})
    fleet.add_range(iprange=iprange, clusterSelector=EVERY_GUEST, perGuest=per_guest, **spec)
    for each in guest_ids or (A,):
        guest = fleet.add_guest(each, is_served=True)
        asyncio.get_running_loop().create_task(ProviderStandIn(guest).run())
    return fleet


async def started(*guest_ids: str, **spec: Any) -> Fleet:
    fleet = build(*guest_ids, **spec)
    await fleet.start()
    await fleet.pass_time(20)
    return fleet


def made(fleet: Fleet, guest_id: str = A) -> list[str]:
    """Return the names of the floating IPs of a guest cluster."""
    return sorted(key[2] for key in fleet.memory.of_kind(FLOATING_IPS) if key[1] == guest_id)


def addresses_of(fleet: Fleet, name: str, namespace: str = "default", guest_id: str = A) -> list[str]:
    """Return the addresses of a Service."""
    service = fleet.guests[guest_id].objects["services", namespace, name]
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return [each["ip"] for each in ingress]


async def with_services(count: int, **spec: Any) -> Fleet:
    """Have a guest cluster with so many Services that were served, or wait."""
    fleet = await started(**spec)
    for number in range(count):
        fleet.guests[A].add_service(name=f"web-{number}")
    await fleet.pass_time(2 * SOON)
    return fleet


# What is made


async def test_a_service_beyond_the_floating_ips_of_its_guest_cluster_gets_an_address_without_a_person() -> (
    None
):
    fleet = await started()
    fleet.guests[A].add_service(name="one")
    await fleet.pass_time(2)
    fleet.guests[A].add_service(name="two")
    await fleet.pass_time(SOON)
    assert (addresses_of(fleet, "one"), addresses_of(fleet, "two")) == (["10.0.0.10"], ["10.0.0.11"])
    assert made(fleet) == [FIRST, SECOND]
    assert fleet.condition(A, name=SECOND) == ("True", "Allocated")
    assert fleet.problems == []


async def test_a_guest_cluster_gets_no_more_floating_ips_than_the_range_allows_and_is_told_so() -> None:
    fleet = await with_services(6)
    assert made(fleet) == [FIRST, SECOND, THIRD, FOURTH]
    assert fleet.condition(A, "DemandMet", FIRST) == ("False", "LimitReached")
    message = fleet.message(A, "DemandMet", FIRST)
    assert message.startswith(
        f'Range "pool" allows guest cluster "cluster-{A}" no more FloatingIPs (maxAllocate)'
    )
    assert "Services wait: default/web-4, default/web-5." in message
    waiting = fleet.floating_ip(A, FIRST)["status"]["waiting"]
    assert [each["name"] for each in waiting["services"]] == ["default/web-4", "default/web-5"]
    assert (waiting["count"], all(each["since"] for each in waiting["services"])) == (2, True)
    for number in range(6):
        fleet.guests[A].remove_service(f"web-{number}")
    await fleet.pass_time(2 * SOON)
    assert "waiting" not in fleet.floating_ip(A, FIRST)["status"]


async def test_a_service_that_counts_on_a_floating_ip_that_was_refused_is_named_among_those_that_wait() -> (
    None
):
    fleet = await started(limits={"maxAllocate": 2})
    fleet.ask(A, "10.9.9.9", name="refused")
    for number in range(3):
        fleet.guests[A].add_service(name=f"web-{number}")
    await fleet.pass_time(2 * SOON)
    waiting = fleet.floating_ip(A, FIRST)["status"]["waiting"]["services"]
    assert [each["name"] for each in waiting] == ["default/web-1", "default/web-2"]
    message = fleet.message(A, "DemandMet", FIRST)
    assert "Services wait: default/web-1, default/web-2." in message


async def test_spare_floating_ips_are_made_before_a_service_waits() -> None:
    fleet = await started(limits={"minAllocate": 2, "preAllocate": 1})
    await fleet.pass_time(SOON)
    assert made(fleet) == [FIRST, SECOND]
    for number in range(2):
        fleet.guests[A].add_service(name=f"web-{number}")
    await fleet.pass_time(2)
    assert all(addresses_of(fleet, f"web-{number}") for number in range(2))
    await fleet.pass_time(SOON)
    assert made(fleet) == [FIRST, SECOND, THIRD]


async def test_a_service_that_waits_for_a_moment_is_no_demand() -> None:
    fleet = await started()
    guest = fleet.guests[A]
    guest.add_service("10.0.0.10", name="one")
    for number in range(60):
        guest.add_service(name=f"web-{number}")
        await fleet.pass_time(3)
        guest.remove_service(f"web-{number}")
    assert made(fleet) == [FIRST]


NO_DEMAND: dict[str, dict[str, Any]] = {
    "another class": {"spec": {"loadBalancerClass": "example.com/other"}},
    "an address by name": {"spec": {"loadBalancerIP": "192.0.2.1"}},
    "ignored": {"metadata": {"annotations": {"kube-vip.io/ignore": "true"}}},
    "being deleted": {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    "no load balancer, which a ResourceQuota refused": {"spec": {"type": "NodePort"}},
    "another problem": {
        "status": {"conditions": [{"type": CONDITION, "status": "False", "reason": "AddressInUse"}]}
    },
}


@pytest.mark.parametrize("why", NO_DEMAND)
async def test_a_service_that_no_floating_ip_would_help_is_no_demand(why: str) -> None:
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST, perGuest={"maxAllocate": 4})
    guest = fleet.add_guest(A, is_served=True)
    await fleet.start()
    guest.add_service("10.0.0.10", name="one")
    key, changed = ("services", "default", "two"), NO_DEMAND[why]
    spec = {"type": "LoadBalancer", **changed.get("spec", {})}
    metadata = {"name": "two", "namespace": "default", **changed.get("metadata", {})}
    guest.put(key, {"metadata": metadata, "spec": spec, "status": changed.get("status", {})})
    await fleet.pass_time(200)
    assert made(fleet) == [FIRST]


async def test_services_of_the_class_that_the_chart_values_name_are_a_demand_and_others_are_not() -> None:
    fleet = Fleet()
    values = """
extraEnv:
  - name: KUBEVIP_ENABLE_LOADBALANCERCLASS
    value: "true"
  - name: KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME
    value: example.com/edge
"""
    fleet.set_options(kubevipCloudProviderChartValues=values)
    fleet.add_range(clusterSelector=EVERY_GUEST, perGuest={"maxAllocate": 4})
    guest = fleet.add_guest(A, is_served=True)
    await fleet.start()
    guest.add_service("10.0.0.10", name="one")
    guest.add_service(name="two")
    await fleet.pass_time(100)
    assert made(fleet) == [FIRST]
    guest.add_service(name="three", loadBalancerClass="example.com/edge")
    await fleet.pass_time(SOON)
    assert made(fleet) == [FIRST, SECOND]


@pytest.mark.parametrize(
    "data", [{"cidr_shop": "192.0.2.0/28"}, {"namespaces_own": "shop", "cidr_own": "192.0.2.0/28"}]
)
async def test_a_service_whose_namespace_has_a_pool_of_another_writer_is_no_demand(
    data: dict[str, str],
) -> None:
    fleet = build()
    guest = fleet.guests[A]
    guest.write_config_map(**data)
    await fleet.start()
    for number in range(40):  # more than the pool has
        guest.add_service(name=f"web-{number}", namespace="shop", loadBalancerIP="")
    fleet.guests[A].add_service("10.0.0.10", name="one")
    await fleet.pass_time(200)
    assert made(fleet) == [FIRST]


async def test_a_full_range_is_told_by_the_oldest_floating_ip_and_served_once_there_is_room() -> None:
    fleet = await with_services(3, iprange="10.0.0.10-10.0.0.11")
    assert made(fleet) == [FIRST, SECOND, THIRD]
    assert fleet.condition(A, "DemandMet", FIRST) == ("False", "RangeFull")
    assert [reason for what, reason, _ in fleet.events(THIRD)] == ["FloatingIPCreated", "RangeFull"]
    (waiting,) = fleet.floating_ip(A, FIRST)["status"]["waiting"]["services"]
    assert waiting["name"] == "default/web-2"
    fleet.change_range(iprange="10.0.0.10-10.0.0.12")
    await fleet.pass_time(180)
    assert addresses_of(fleet, "web-2") == ["10.0.0.12"]
    assert fleet.condition(A, "DemandMet", FIRST) == ("True", "DemandMet")


async def test_addresses_in_quarantine_count_for_max_per_guest() -> None:
    fleet = await with_services(4, maxPerGuest=3)
    assert made(fleet) == [FIRST, SECOND, THIRD]
    assert fleet.condition(A, "DemandMet", FIRST) == ("False", "LimitReached")
    assert "maxPerGuest" in fleet.message(A, "DemandMet", FIRST)


async def test_the_operator_makes_no_floating_ip_where_an_administrator_wants_none() -> None:
    fleet = build(B)
    fleet.add_guest(A)  # floating-ip: "false"
    fleet.ask(A)
    await fleet.start()
    for each in (A, B):
        fleet.guests[each].add_service(name="one")
        fleet.guests[each].add_service(name="two")
    await fleet.pass_time(200)
    assert (made(fleet), len(made(fleet, B))) == (["web"], 2)
    fleet.set_options(createFloatingIPs="false")
    fleet.guests[B].add_service(name="three")
    await fleet.pass_time(200)
    assert len(made(fleet, B)) == 2


# What is let go


async def test_a_floating_ip_that_no_service_uses_is_let_go_one_after_the_other_the_youngest_first() -> None:
    fleet = await with_services(4)
    for number in (0, 1, 2):
        fleet.guests[A].remove_service(f"web-{number}")
    await fleet.pass_time(FEW - 30)
    assert made(fleet) == [FIRST, SECOND, THIRD, FOURTH]
    await fleet.pass_time(30 + 180)
    assert addresses_of(fleet, "web-3") == ["10.0.0.13"]
    assert made(fleet) == [FIRST, FOURTH]
    await fleet.pass_time(RELEASED)
    assert fleet.held() == {"default.10.0.0.10": A, "default.10.0.0.13": A}
    assert fleet.quarantined() == set()
    assert fleet.problems == []


async def test_what_is_made_and_let_go_has_an_event() -> None:
    fleet = await with_services(2)
    fleet.guests[A].remove_service("web-1")
    await fleet.pass_time(LET_GO)
    told = [each for each in fleet.events(SECOND) if each[1].startswith("FloatingIP")]
    assert [(what, reason) for what, reason, _ in told] == [
        (f"FloatingIP/{SECOND}", "FloatingIPCreated"),
        (f"FloatingIP/{SECOND}", "FloatingIPDeleted"),
    ]
    assert "Service default/web-1 needs an address" in told[0][2]
    assert "no Service has used it for 1" in told[1][2]


async def test_a_service_that_takes_the_address_of_a_floating_ip_that_is_let_go_keeps_it() -> None:
    fleet = await with_services(2)
    guest = fleet.guests[A]
    guest.remove_service("web-1")
    while SECOND in made(fleet):
        await fleet.pass_time(1)
    guest.add_service("10.0.0.11", name="late")  # chosen before its key was changed
    await fleet.pass_time(180)
    assert made(fleet) == [FIRST, SECOND]
    assert (fleet.addresses(A, SECOND), fleet.asked_for(A, SECOND)) == (["10.0.0.11"], "10.0.0.11")
    assert fleet.problems == []


async def test_what_people_made_or_changed_is_never_let_go() -> None:
    fleet = await with_services(4)
    fleet.change(A, SECOND, allowShare=True)
    fleet.ask(A, name="by-hand")
    for number in range(4):
        fleet.guests[A].remove_service(f"web-{number}")
    await fleet.pass_time(2 * LET_GO)
    assert made(fleet) == ["by-hand", FIRST, SECOND]


async def test_floating_ips_that_people_made_count() -> None:
    fleet = build(limits={"maxAllocate": 2})
    fleet.ask(A, name="by-hand")
    await fleet.start()
    for number in range(4):
        fleet.guests[A].add_service(name=f"web-{number}")
    await fleet.pass_time(2 * SOON)
    assert made(fleet) == ["by-hand", SECOND]


async def test_a_floating_ip_that_names_another_guest_cluster_hinders_no_service() -> None:
    fleet = await started()
    fleet.ask(A, name="stranger")
    fleet.annotate((FLOATING_IPS, A, "stranger"), {"clustername": "another"})
    await fleet.pass_time(20)
    for number in range(2):
        fleet.guests[A].add_service(name=f"web-{number}")
    await fleet.pass_time(2 * SOON)
    assert made(fleet) == [FIRST, SECOND, "stranger"]
    assert len(addresses_of(fleet, "web-1")) == 1


@pytest.mark.parametrize("how", ["silent", "paused", "disconnected"])
async def test_nothing_is_made_or_let_go_in_a_guest_cluster_that_is_out_of_reach_or_paused(how: str) -> None:
    fleet = await with_services(2)
    fleet.guests[A].remove_service("web-1")
    await fleet.pass_time(60)
    if how == "silent":
        fleet.guests[A].silent = True
    elif how == "paused":
        fleet.annotate((FLOATING_IPS, A, FIRST), {names.ANNOTATION_PAUSED: "true"})
    else:
        fleet.disconnect(A)
    await fleet.pass_time(2 * LET_GO)
    assert made(fleet) == [FIRST, SECOND]


async def test_a_new_leader_goes_on_counting_for_how_long_a_floating_ip_was_not_used() -> None:
    fleet = await with_services(2)
    fleet.guests[A].remove_service("web-1")
    await fleet.pass_time(FEW - 20)
    since = fleet.status(A, SECOND)["unused"]["since"]
    await fleet.restart()
    assert fleet.status(A, SECOND)["unused"]["since"] == since
    await fleet.pass_time(90)
    assert made(fleet) == [FIRST]


async def test_a_floating_ip_that_would_be_let_go_says_since_when_and_when() -> None:
    limits = {"preAllocate": 1, "maxAllocate": 5, "releaseAfterSeconds": 600}
    fleet = await with_services(3, limits=limits)
    assert not any(fleet.status(A, each).get("unused") for each in made(fleet)), "the spare one is needed"
    fleet.guests[A].remove_service("web-2")
    await fleet.pass_time(100)
    unused = {each: found for each in made(fleet) if (found := fleet.status(A, each).get("unused"))}
    assert len(unused) == 1, "one of both spare ones is needed"
    ((name, found),) = unused.items()
    since, until = (datetime.fromisoformat(found[each]) for each in ("since", "until"))
    assert (until - since).total_seconds() == 600
    fleet.change_range(perGuest={"minAllocate": 1, **limits, "preAllocate": 2})
    await fleet.pass_time(100)
    assert name in made(fleet)
    assert not fleet.status(A, name).get("unused")


async def test_a_demand_that_comes_and_goes_costs_one_write_for_each_change() -> None:
    fleet = await with_services(2)
    fleet.guests[A].remove_service("web-1")
    await fleet.pass_time(60)
    fleet.guests[A].add_service(name="web-1")
    await fleet.pass_time(SOON)
    version = fleet.memory.version
    for _ in range(6):  # each time back before `releaseAfterSeconds`
        fleet.guests[A].remove_service("web-1")
        await fleet.pass_time(75)
        fleet.guests[A].add_service(name="web-1")
        await fleet.pass_time(75)
    written = Counter(each.key[0] for each in fleet.commits_since(version))
    assert made(fleet) == [FIRST, SECOND]
    assert written.pop(FLOATING_IPS) <= 12  # who uses it
    assert written == {}


# Families and namespaces


async def test_the_families_of_the_service_decide_what_is_made() -> None:
    fleet = await started(iprange="10.0.0.10-10.0.0.19,fd00::10-fd00::19")
    guest = fleet.guests[A]
    guest.add_service(name="four")
    guest.add_service(name="six", ipFamilies=["IPv6"])
    guest.add_service(name="both", ipFamilies=["IPv6", "IPv4"], ipFamilyPolicy="RequireDualStack")
    guest.add_service(name="any", ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack")
    await fleet.pass_time(2 * SOON)
    assert [len(addresses_of(fleet, each)) for each in ("four", "six", "both")] == [1, 1, 2]
    assert len(addresses_of(fleet, "any")) >= 1
    assert len(made(fleet)) == 4


async def test_a_namespace_with_a_pool_of_fipop_gets_a_floating_ip_of_its_own() -> None:
    fleet = build()
    fleet.ask(A, name="shop", serviceNamespace="shop")
    await fleet.start()
    guest = fleet.guests[A]
    for number in range(2):
        guest.add_service(name=f"web-{number}", namespace="shop")
    await fleet.pass_time(2 * SOON)
    assert made(fleet) == [SECOND, "shop"]
    assert fleet.floating_ip(A, SECOND)["spec"]["serviceNamespace"] == "shop"
    assert addresses_of(fleet, "web-1", "shop") != []
    guest.remove_service("web-1", "shop")
    await fleet.pass_time(LET_GO)
    assert made(fleet) == ["shop"]


async def test_a_service_whose_floating_ip_is_gone_gets_one_of_its_namespace() -> None:
    """The namespace has another one of its own."""
    fleet = await started()
    for name in ("shop-1", "shop-2"):
        fleet.ask(A, name=name, serviceNamespace="shop")
    await fleet.pass_time(20)
    for number in range(2):
        fleet.guests[A].add_service(name=f"web-{number}", namespace="shop")
    await fleet.pass_time(60)
    address = fleet.addresses(A, "shop-2")
    fleet.give_up(A, "shop-2")
    await fleet.pass_time(300)
    (back,) = [name for name in made(fleet) if fleet.addresses(A, name) == address]
    assert fleet.floating_ip(A, back)["spec"].get("serviceNamespace") == "shop"


# Who has it


async def test_a_floating_ip_names_the_services_that_use_it() -> None:
    fleet = await with_services(1)
    assert fleet.status(A, FIRST)["services"] == {"names": ["default/web-0"], "count": 1}
    for number in range(20):
        fleet.guests[A].add_service("10.0.0.10", name=f"shared-{number:02}")
    await fleet.pass_time(150)
    services = fleet.status(A, FIRST)["services"]
    assert (len(services["names"]), services["count"]) == (8, 21)


async def test_what_is_told_of_services_changes_at_most_once_a_minute() -> None:
    fleet = await with_services(1)
    version = fleet.memory.version
    for number in range(100):
        fleet.guests[A].add_service("10.0.0.10", name=f"shared-{number}")
        await fleet.pass_time(3)
    assert len(fleet.commits_since(version)) <= 6


async def test_two_leaders_write_what_each_of_them_found_and_not_again_and_again() -> None:
    fleet = build()
    for _ in range(2):
        await fleet.start(leader_election=False)
        await fleet.pass_time(25)
    version = fleet.memory.version
    for number in range(10):
        fleet.guests[A].add_service("10.0.0.10", name=f"shared-{number}")
        await fleet.pass_time(30)
    assert len(fleet.commits_since(version)) <= 2 * 6
    await fleet.pass_time(120)
    assert fleet.status(A, FIRST)["services"]["count"] == 10


async def test_nothing_is_told_of_services_any_more_once_the_range_does_not_ask_for_it() -> None:
    fleet = await with_services(6)
    fleet.change_range(perGuest=None)
    await fleet.pass_time(100)
    assert made(fleet) == [FIRST, SECOND, THIRD, FOURTH]
    assert fleet.condition(A, "DemandMet", FIRST) == ("", "")
    assert not fleet.status(A, FIRST).get("services")
    asked = fleet.guests[A].asked
    await fleet.pass_time(200)
    assert fleet.guests[A].asked - asked <= 5


# What it costs


POLLS = (("replace", "leases"), ("get", "configmaps"), ("list", "deployments"))
"""The Lease, the options, and whether kube-fip-operator runs: every few seconds, whatever guest clusters there are."""


async def count_costs(*waiting: str, **spec: Any) -> tuple[int, Counter[Any], Counter[str], list[str]]:
    """Return what is asked in 500 s of a guest cluster and of the management cluster, what is written and made."""
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST, **spec)
    guest = fleet.add_guest(A, is_served=True)
    guest.add_service("10.0.0.10", name="one")
    for name in waiting:
        guest.add_service(name=name)
    await fleet.start()
    asked, before, version = guest.asked, Counter(fleet.link.requests), fleet.memory.version
    await fleet.pass_time(500)  # one visit or two
    written = Counter(each.key[0] for each in fleet.commits_since(version))
    requests = fleet.link.requests - before
    for each in POLLS:
        del requests[each]
    return guest.asked - asked, requests, written, made(fleet)


async def test_a_range_without_it_makes_no_request_and_no_object_more() -> None:
    calm, waiting = await count_costs(), await count_costs("two", "three")
    assert waiting == calm
    assert calm[2:] == (Counter(), [FIRST])
    assert calm[0] <= 2 * 7


async def test_a_range_with_it_costs_a_list_every_30_s() -> None:
    without, with_it = await count_costs("two"), await count_costs("two", perGuest={"maxAllocate": 1})
    assert 12 <= with_it[0] - without[0] <= 20


async def test_a_guest_cluster_costs_rancher_two_requests_a_minute() -> None:
    fleet = await with_services(2)
    asked = fleet.guests[A].asked
    await fleet.pass_time(300)
    assert fleet.guests[A].asked - asked <= 12 + 7
    fleet.set_options(serviceVisitSeconds="100")
    await fleet.pass_time(60)
    asked = fleet.guests[A].asked
    await fleet.pass_time(300)
    assert fleet.guests[A].asked - asked <= 4 + 7


async def test_a_guest_cluster_that_lies_exhausts_its_own_share_alone() -> None:
    fleet = await started(A, B, iprange="10.0.0.10-10.0.0.30")
    for number in range(60):
        fleet.guests[A].add_service(name=f"lie-{number}")
    fleet.guests[B].add_service(name="one")
    fleet.guests[B].add_service(name="two")
    await fleet.pass_time(3 * SOON)
    assert (len(made(fleet)), len(made(fleet, B))) == (4, 2)
    assert addresses_of(fleet, "two", guest_id=B) != []
    assert fleet.problems == []
    assert fleet.memory.objects[RANGES, "", "pool"]["status"]["capacity"]["used"] == 6


async def test_no_floating_ip_is_made_for_an_address_that_the_range_does_not_assign_any_more() -> None:
    fleet = await with_services(2)
    fleet.give_up(A, SECOND)
    fleet.change_range(iprange="10.0.0.10-10.0.0.10")
    await fleet.pass_time(60)
    version = fleet.memory.version
    await fleet.pass_time(3 * LET_GO)
    assert (made(fleet), fleet.quarantined()) == ([FIRST], {"default.10.0.0.11"})
    assert fleet.commits_since(version) == []


@pytest.mark.parametrize("takes", [True, False], ids=["on", "off"])
async def test_services_that_harvester_s_controller_takes_are_no_demand(takes: bool) -> None:
    fleet = Fleet()
    fleet.set_options(kubevipGuestInstall="enabled")
    fleet.add_range(harvester="harv", perGuest={"maxAllocate": 4})
    guest = fleet.add_guest(A, is_served=True)
    fleet.put_on_harvester(A, "harv")
    controllers = "*" if takes else "cloud-node-controller"
    container = {"image": "rancher/harvester-cloud-provider:v0.2.4", "args": [f"--controllers={controllers}"]}
    key = ("deployments", "kube-system", "harvester-cloud-provider")
    pod = {"spec": {"containers": [container]}}
    guest.put(
        key, {"metadata": {"name": key[2], "namespace": key[1]}, "spec": {"template": pod}, "status": {}}
    )
    await fleet.start()
    await fleet.pass_time(30)
    guest.add_service("10.0.0.10", name="one")
    guest.add_service(name="two")
    await fleet.pass_time(100)
    assert made(fleet) == ([FIRST] if takes else [FIRST, SECOND])


async def test_names_of_a_guest_cluster_that_lies_fit_into_the_status() -> None:
    fleet = await started()
    long = "a" * 253
    key = ("services", long, long)
    ingress = {"loadBalancer": {"ingress": [{"ip": "10.0.0.10"}]}}
    metadata = {"name": long, "namespace": long}
    fleet.guests[A].objects[key] = {
        "metadata": {
            **metadata,
            "resourceVersion": "1",
            "uid": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"type": "LoadBalancer"},
        "status": ingress,
    }
    await fleet.pass_time(60)
    (name,) = fleet.status(A, FIRST)["services"]["names"]
    assert len(name) <= 512


async def test_services_that_servicelb_of_k3s_takes_are_no_demand_and_the_conditions_have_the_remedy() -> (
    None
):
    fleet = Fleet()
    fleet.set_options(kubevipGuestInstall="enabled", operateGuestClusterInterval="60")
    fleet.add_range(clusterSelector=EVERY_GUEST, perGuest={"maxAllocate": 4})
    guest = fleet.add_guest(A, is_served=True)
    key = ("daemonsets", "kube-system", "svclb-traefik-1")
    guest.put_workload(key, "rancher/klipper-lb:v0.4.13")
    found = guest.objects[key]
    labels = {"svccontroller.k3s.cattle.io/svcname": "traefik"}
    guest.put(key, {**found, "metadata": {**found["metadata"], "labels": labels}})
    await fleet.start()
    await fleet.pass_time(60)
    for name in ("one", "two", "three"):
        guest.add_service("192.168.1.5", name=name)
    await fleet.pass_time(200)
    assert made(fleet) == [FIRST]
    assert fleet.condition(A, "CloudProviderReady", FIRST) == ("False", "ServiceLbTakesServices")
    assert "disable: [servicelb]" in fleet.message(A, "CloudProviderReady", FIRST)
    assert fleet.condition(A, "DemandMet", FIRST) == ("True", "ServiceLbTakesServices")
    guest.remove(key)
    for name in ("four", "five"):
        guest.add_service(name=name)
    await fleet.pass_time(200)
    assert fleet.condition(A, "CloudProviderReady", FIRST) == ("True", "Ready")
    assert made(fleet) == [FIRST, SECOND]
