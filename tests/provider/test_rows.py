"""What becomes of a Service: the rows of section 2 of the contract of the cloud provider, in the end of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.harness.service_cluster import FINALIZER, INTERFACE, A, ServiceCluster

BOTH = {"cidr-global": "10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9", "interface-global": "eth1"}
ONE = {"cidr-global": "10.0.0.1-10.0.0.1"}
SHARED = {"cidr-global": "10.0.0.1-10.0.0.1", "allow-share-shop": "true"}
DUAL = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
SIX_FIRST = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}
IGNORE = "kube-vip.io/ignore"
NOTE = "kubefip.k8s.binbash.org/assigned"
CLASS = "kube-vip.io/kube-vip-class"
OTHER_CLASS = "example.org/other"
FIRST, SECOND, FIVE, SEVEN = "10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.7"
SIX = "2001:db8::1"

Act = Callable[[ServiceCluster], Any]
Shown = Mapping[str, Any]


def assigned(a: str, *, interface: str = "eth1", requested: str = "") -> Shown:
    """What a Service shows whose addresses fipop chose."""
    shown = {"A": a, "L": requested or a.partition(",")[0], "I": True, "F": True}
    return shown | ({"interface": interface} if interface else {})


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is there and served first (`given`), what happens `then`, and what Services show in the end.

    `condition` is that of Service web; None: whatever it is. `events` are the reasons of the events after `then`.
    """

    given: Act | None = None
    then: Act
    becomes: Mapping[str, Shown]
    data: Mapping[str, str] = field(default_factory=lambda: BOTH)
    classes: frozenset[str] = frozenset({""})
    condition: tuple[str, str] | None = None
    events: tuple[tuple[str, str], ...] = ()


def add(**options: Any) -> Act:
    return lambda cluster: cluster.add(**options)


def change(**options: Any) -> Act:
    return lambda cluster: cluster.change(**options)


def annotate(annotations: Mapping[str, str | None], **spec: Any) -> Act:
    return lambda cluster: cluster.change(annotations=annotations, **spec)


def delete(cluster: ServiceCluster) -> None:
    cluster.delete()


def leave_behind(a: str, **options: Any) -> Act:
    return lambda cluster: cluster.leave_behind("web", a, **options)


def add_web_and_other(cluster: ServiceCluster) -> None:
    cluster.add()
    cluster.add("other", loadBalancerIP=FIVE)


def add_five_and_seven(cluster: ServiceCluster) -> None:
    cluster.add(loadBalancerIP=FIVE)
    cluster.add("other", loadBalancerIP=SEVEN)


def add_sharers(cluster: ServiceCluster) -> None:
    cluster.add()
    cluster.add("tls", ports=(443,))


STATIC: Shown = {"A": FIVE, "L": FIVE, "F": True}
ASSIGNED = (("web", "AddressAssigned"),)
FAILED = (("web", "SyncLoadBalancerFailed"),)

ROWS = {
    "neither A nor L": Row(then=add(), becomes={"web": assigned(FIRST)}, events=ASSIGNED),
    "neither A nor L, dual stack, IPv6 first": Row(
        then=add(**SIX_FIRST), becomes={"web": assigned(f"{SIX},{FIRST}")}, events=ASSIGNED
    ),
    "neither A nor L, an interface of the user": Row(
        then=add(metadata={"annotations": {INTERFACE: "bond0"}}),
        becomes={"web": assigned(FIRST, interface="bond0")},
        events=ASSIGNED,
    ),
    "L only": Row(then=add(loadBalancerIP=FIVE), becomes={"web": STATIC}),
    "L only, outside of the pool": Row(
        then=add(loadBalancerIP="192.0.2.1"), becomes={"web": {"A": "192.0.2.1", "L": "192.0.2.1", "F": True}}
    ),
    "L only, no address": Row(
        then=add(loadBalancerIP="10.21.5.300"),
        becomes={"web": {"A": "10.21.5.300", "L": "10.21.5.300", "F": True}},
        events=(("web", "InvalidAddress"),),
    ),
    "L only, then L changed": Row(
        given=add(loadBalancerIP=FIVE),
        then=change(loadBalancerIP=SEVEN),
        becomes={"web": {"A": SEVEN, "L": SEVEN, "F": True}},
    ),
    "L only, then L names the address of another Service": Row(
        given=add_five_and_seven,
        then=change(loadBalancerIP=SEVEN),
        becomes={
            "web": {"A": FIVE, "L": SEVEN, "F": True},
            "other": {"A": SEVEN, "L": SEVEN, "F": True},
        },
        condition=("True", "AddressInUse"),
        events=(("web", "AddressInUse"),),
    ),
    "L only, then L is no address": Row(
        given=add(loadBalancerIP=FIVE),
        then=change(loadBalancerIP="lb.example.org"),
        becomes={"web": {"A": FIVE, "L": "lb.example.org", "F": True}},
        condition=("True", "InvalidAddress"),
    ),
    "L only, then L removed": Row(
        given=add(loadBalancerIP=FIVE),
        then=change(loadBalancerIP=None),
        becomes={"web": assigned(FIRST)},
        events=ASSIGNED,
    ),
    "L only, then L removed without a pool": Row(
        data={},
        given=add(loadBalancerIP=FIVE),
        then=change(loadBalancerIP=None),
        becomes={"web": {}},
        condition=("False", "NoPool"),
    ),
    "L only, then the type left LoadBalancer": Row(
        given=add(loadBalancerIP=FIVE), then=change(type="ClusterIP"), becomes={"web": {"L": FIVE}}
    ),
    "L only, required dual stack": Row(
        then=add(loadBalancerIP=FIVE, **DUAL), becomes={"web": STATIC}, events=(("web", "FamilyMissing"),)
    ),
    "L only, then A changed": Row(
        given=add(loadBalancerIP=FIVE),
        then=change(a=SEVEN),
        becomes={"web": {"A": SEVEN, "L": FIVE, "F": True}},
    ),
    "A changed": Row(
        given=add(),
        then=change(a=SEVEN),
        becomes={"web": {"A": SEVEN, "I": True, "F": True, "interface": "eth1"}},
    ),
    "A changed to the address of another Service": Row(
        given=add_web_and_other,
        then=change(a=FIVE),
        becomes={"web": {"A": FIVE, "I": True, "F": True, "interface": "eth1"}, "other": STATIC},
        events=(("web", "AddressInUse"), ("other", "AddressInUse")),
    ),
    "A changed to what is no address": Row(
        given=add(),
        then=change(a="lb.example.org"),
        becomes={"web": {"A": "lb.example.org", "I": True, "F": True, "interface": "eth1"}},
        events=(("web", "InvalidAddress"),),
    ),
    "A and L changed": Row(
        given=add(),
        then=change(a=SEVEN, loadBalancerIP=FIVE),
        becomes={"web": assigned(SEVEN, requested=FIVE)},
    ),
    "A only, outside of every pool": Row(
        then=add(a="172.19.3.7"),
        becomes={"web": {"A": "172.19.3.7", "I": True, "F": True}},
        events=(("web", "AddressOutsidePools"),),
    ),
    "assigned, L is no address": Row(
        given=add(),
        then=change(loadBalancerIP="10.0.0.300"),
        becomes={"web": assigned(FIRST, requested="10.0.0.300")},
        condition=("True", "InvalidAddress"),
    ),
    "left by kube-vip-cloud-provider, and L changed": Row(
        given=leave_behind(FIVE),
        then=change(loadBalancerIP=SEVEN),
        becomes={"web": assigned(FIVE, interface="", requested=SEVEN)},
    ),
    "left by kube-vip-cloud-provider, policy became dual": Row(
        given=leave_behind(FIVE), then=change(**DUAL), becomes={"web": assigned(f"{FIVE},{SIX}")}
    ),
    "left by kube-vip-cloud-provider, the type left LoadBalancer": Row(
        given=leave_behind(FIVE), then=change(type="ClusterIP"), becomes={"web": {}}
    ),
    "left by kube-vip-cloud-provider, A removed": Row(
        given=leave_behind(FIVE), then=change(a=""), becomes={"web": assigned(FIVE, interface="")}
    ),
    "all annotations removed, L stays": Row(
        given=add(),
        then=lambda cluster: cluster.change(metadata={"annotations": {}}),
        becomes={"web": assigned(FIRST, interface="")},
    ),
    "label removed": Row(
        given=add(),
        then=change(metadata={"labels": {}}),
        becomes={"web": {"A": FIRST, "L": FIRST, "F": True, "interface": "eth1"}},
    ),
    "ignored": Row(
        then=add(metadata={"annotations": {IGNORE: "true"}}), becomes={"web": {}}, condition=("", "")
    ),
    "ignored, after it was assigned": Row(given=add(), then=annotate({IGNORE: "true"}), becomes={"web": {}}),
    "ignored, A and L of the user": Row(
        given=add(a=FIVE, loadBalancerIP=FIVE),
        then=annotate({IGNORE: "true"}),
        becomes={"web": {"A": FIVE, "L": FIVE}},
    ),
    "ignored no longer": Row(
        given=add(metadata={"annotations": {IGNORE: "true"}}),
        then=annotate({IGNORE: "false"}),
        becomes={"web": assigned(FIRST)},
        events=ASSIGNED,
    ),
    "type left LoadBalancer, an interface of the user": Row(
        given=add(metadata={"annotations": {INTERFACE: "bond0"}}),
        then=change(type="ClusterIP"),
        becomes={"web": {"interface": "bond0"}},
    ),
    "no LoadBalancer, with the finalizer of others": Row(
        then=add(type="ClusterIP", metadata={"finalizers": [FINALIZER]}), becomes={"web": {"F": True}}
    ),
    "being deleted, the finalizer of somebody else": Row(
        then=lambda cluster: (
            cluster.add(metadata={"finalizers": [FINALIZER], "annotations": {IGNORE: "true"}}),
            cluster.delete(),
        ),
        becomes={},
    ),
    "being deleted, of another class and nobody's": Row(
        then=lambda cluster: (
            cluster.add(metadata={"finalizers": [FINALIZER]}, loadBalancerClass=OTHER_CLASS),
            cluster.delete(),
        ),
        becomes={"web": {"F": True}},
    ),
    "A only": Row(then=add(a=FIVE), becomes={"web": {"A": FIVE, "I": True, "F": True}}),
    "A and L of the user": Row(then=add(a=FIVE, loadBalancerIP=FIVE), becomes={"web": STATIC}),
    "A and L as kube-vip-cloud-provider leaves them": Row(
        then=lambda cluster: cluster.leave_behind("web", FIVE),
        becomes={"web": assigned(FIVE, interface="")},
    ),
    "L changed": Row(
        given=add(), then=change(loadBalancerIP=SEVEN), becomes={"web": assigned(SEVEN)}, events=ASSIGNED
    ),
    "L changed, dual stack": Row(
        given=add(**DUAL),
        then=change(loadBalancerIP=SEVEN),
        becomes={"web": assigned(f"{SEVEN},{SIX}")},
        events=ASSIGNED,
    ),
    "L names the address of another Service": Row(
        given=add_web_and_other,
        then=change(loadBalancerIP=FIVE),
        becomes={"web": assigned(FIRST, requested=FIVE), "other": STATIC},
    ),
    "L removed, fipop chose": Row(
        given=add(), then=change(loadBalancerIP=None), becomes={"web": assigned(FIRST)}
    ),
    "L emptied, fipop chose": Row(
        given=add(), then=change(loadBalancerIP=""), becomes={"web": assigned(FIRST)}
    ),
    "A removed, L stays": Row(given=add(), then=change(a=""), becomes={"web": assigned(FIRST)}),
    "A and L removed": Row(
        given=add(), then=change(a="", loadBalancerIP=None), becomes={"web": assigned(FIRST)}
    ),
    "policy became dual": Row(
        given=add(), then=change(**DUAL), becomes={"web": assigned(f"{FIRST},{SIX}")}, events=ASSIGNED
    ),
    "policy became single": Row(
        given=add(**DUAL),
        then=change(ipFamilyPolicy="SingleStack", ipFamilies=["IPv4"]),
        becomes={"web": assigned(FIRST)},
    ),
    "sharers whose ports clash later": Row(
        data=SHARED,
        given=add_sharers,
        then=change(name="tls", ports=(80,)),
        becomes={"web": assigned(FIRST, interface=""), "tls": assigned(FIRST, interface="")},
        events=(("tls", "AddressInUse"), ("web", "AddressInUse")),
    ),
    "sharers whose consent goes": Row(
        data=SHARED,
        given=add_sharers,
        then=lambda cluster: cluster.set_keys({"cidr-global": "10.0.0.1-10.0.0.1"}),
        becomes={"web": assigned(FIRST, interface=""), "tls": assigned(FIRST, interface="")},
        events=(("tls", "AddressInUse"), ("web", "AddressInUse")),
    ),
    "type left LoadBalancer": Row(given=add(), then=change(type="ClusterIP"), becomes={"web": {}}),
    "type left LoadBalancer, A and L of the user": Row(
        given=add(a=FIVE, loadBalancerIP=FIVE),
        then=change(type="ClusterIP"),
        becomes={"web": {"A": FIVE, "L": FIVE}},
    ),
    "being deleted": Row(given=add(), then=delete, becomes={}),
    "being deleted, another class by now": Row(
        given=lambda cluster: cluster.leave_behind("web", FIVE, loadBalancerClass=OTHER_CLASS),
        then=delete,
        becomes={},
    ),
    "no pool": Row(
        data={"search-order": "asc"},
        then=add(),
        becomes={"web": {}},
        condition=("False", "NoPool"),
        events=FAILED,
    ),
    "full": Row(
        data=ONE,
        given=add(name="first"),
        then=add(),
        becomes={"web": {}, "first": assigned(FIRST, interface="")},
        condition=("False", "PoolFull"),
        events=FAILED,
    ),
    "family missing": Row(
        data=ONE, then=add(**DUAL), becomes={"web": {}}, condition=("False", "PoolFull"), events=FAILED
    ),
    "another class": Row(then=add(loadBalancerClass=OTHER_CLASS), becomes={"web": {}}, condition=("", "")),
    "no class, if one is served": Row(
        classes=frozenset({CLASS}), then=add(), becomes={"web": {}}, condition=("", "")
    ),
    "the class that is served": Row(
        classes=frozenset({CLASS}),
        then=add(loadBalancerClass=CLASS),
        becomes={"web": assigned(FIRST)},
        events=ASSIGNED,
    ),
    "no LoadBalancer": Row(then=add(type="ClusterIP"), becomes={"web": {}}, condition=("", "")),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_what_a_service_has_decides_what_it_gets(row: Row) -> None:
    cluster = ServiceCluster(row.data)
    if row.given is not None:
        row.given(cluster)
    await cluster.start(classes=row.classes)
    known = len(cluster.events())
    row.then(cluster)
    await cluster.settle()
    assert {name: cluster.shown(name) for name in cluster.names()} == row.becomes
    if row.condition is not None:
        assert cluster.condition() == row.condition
    found = [(name, reason) for name, reason, _ in cluster.events()[known:]]
    assert set(row.events) <= set(found)
    assert cluster.problems == []


async def test_what_fipop_wrote_is_noted_until_another_writer_decides() -> None:
    cluster = ServiceCluster(BOTH)
    cluster.add(**DUAL)
    cluster.add("copied", loadBalancerIP=FIVE)
    cluster.add("static", a=SEVEN, loadBalancerIP=SEVEN)
    await cluster.start()
    assert [cluster.annotation(NOTE, name) for name in ("web", "copied", "static")] == [
        f"{FIRST},{SIX}",
        FIVE,
        "",
    ]
    cluster.change(a=SECOND)
    await cluster.settle()
    assert (cluster.addresses(), cluster.annotation(NOTE)) == (SECOND, "")


async def test_a_service_that_left_its_type_and_its_address_does_not_get_it_back_from_another() -> None:
    cluster = ServiceCluster(BOTH)
    cluster.add(loadBalancerIP=FIRST)
    await cluster.start()
    cluster.change(type="ClusterIP", loadBalancerIP=None)
    await cluster.settle()
    cluster.add("other")
    await cluster.settle()
    cluster.change(type="LoadBalancer")
    await cluster.settle()
    assert (cluster.addresses("other"), cluster.addresses()) == (FIRST, SECOND)
    assert cluster.problems == []


async def test_an_ordinary_assignment_writes_the_service_once() -> None:
    cluster = ServiceCluster(BOTH)
    await cluster.start()
    cluster.add(**DUAL)
    version = cluster.memory.version
    await cluster.pass_time(60)
    assert len(cluster.writes_of_services(version)) == 1


@pytest.mark.parametrize("served", [{}, DUAL, {"loadBalancerIP": FIVE}, {"a": FIVE}], ids=str)
async def test_a_restart_writes_no_service_that_has_its_addresses(served: dict[str, Any]) -> None:
    cluster = ServiceCluster(BOTH)
    cluster.add(**served)
    await cluster.start()
    version = cluster.memory.version
    await cluster.restart()
    await cluster.pass_time(600)
    assert cluster.writes_of_services(version) == []


async def test_a_service_that_becomes_a_load_balancer_again_gets_an_address_again() -> None:
    cluster = ServiceCluster(BOTH)
    cluster.add()
    await cluster.start()
    for kind, shown in (("ClusterIP", {}), ("LoadBalancer", assigned(FIRST))):
        cluster.change(type=kind)
        await cluster.settle()
        assert cluster.shown() == shown


async def test_the_judge_of_this_harness_finds_an_address_that_was_assigned_twice() -> None:
    cluster = ServiceCluster(BOTH)
    cluster.add()
    cluster.add("other")
    await cluster.start()
    body = cluster.service("other")
    metadata = {**body["metadata"], "annotations": {A: cluster.addresses()}}
    cluster.memory.put(("services", "shop", "other"), {**body, "metadata": metadata})
    assert len(cluster.problems) == 1
