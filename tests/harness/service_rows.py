"""What becomes of a Service: the rows of section 2 of the contract of the cloud provider, for any API server.

Addresses of the pools are 10.0.0.* and 2001:db8::*. A world whose Services are in another namespace than "shop", or
that plays many rows at once, puts its own in their place.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]
A = "kube-vip.io/loadbalancerIPs"
INTERFACE = "kube-vip.io/serviceInterface"
NOTE = "kubefip.k8s.binbash.org/assigned"
VIP_HOST = "kube-vip.io/vipHost"
IGNORE = "kube-vip.io/ignore"
POOL = "kubefip.k8s.binbash.org/pool"
SHARE = "kubefip.k8s.binbash.org/share"
LEASE_NAME = "kube-vip.io/leaseName"
LEASE_NOTE = "kubefip.k8s.binbash.org/shared-lease"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"

BOTH = {"cidr-global": "10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9", "interface-global": "eth1"}
ONE = {"cidr-global": "10.0.0.1-10.0.0.1"}
SHARED = {"cidr-global": "10.0.0.1-10.0.0.1", "allow-share-shop": "true"}
DUAL = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
SIX_FIRST = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}
CLOSED = {
    "cidr-global": "10.0.0.1-10.0.0.5",
    "interface-global": "eth1",
    "cidr-dmz": "10.0.0.7-10.0.0.8",
    "interface-dmz": "eth2",
    "search-order-dmz": "desc",
}
DMZ = {**CLOSED, "allow-pool-dmz": "lab, shop"}
LEASE = "kube-system/kubevip-10.0.0.1"
OTHER_CLASS = "example.org/other"
FIRST, SECOND, FIVE, SEVEN, EIGHT = "10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.7", "10.0.0.8"
SIX = "2001:db8::1"


class World(Protocol):
    """What users of Services, and the administrator, do; None removes an annotation or a field of the spec."""

    def add(
        self,
        name: str = "web",
        *,
        ports: Iterable[int] = (80,),
        a: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """Create a Service of type LoadBalancer; `a` is its annotation."""

    def leave_behind(self, name: str, a: str, **spec: Any) -> None:
        """Have a Service as kube-vip-cloud-provider left it, announced by kube-vip."""

    def change(
        self,
        name: str = "web",
        *,
        ports: Iterable[int] | None = None,
        a: str | None = None,
        annotations: Mapping[str, str | None] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """Change a Service. `a` "" removes the annotation; `metadata` replaces whole fields."""

    def delete(self, name: str = "web") -> None:
        """Delete a Service: it is gone when it has no finalizer."""

    def set_keys(self, data: Mapping[str, str]) -> None:
        """Have the ConfigMap of the pools hold these keys and no others."""


Act = Callable[[World], Any]
Shown = Mapping[str, Any]


def show(service: Json) -> Json:
    """Return what matters of a Service, without what it does not have.

    A: the annotation, L: spec.loadBalancerIP, I: the label is there, F: the finalizer is there, N: the note, interface,
    lease: the Lease of Services that share an address, "noted" if fipop's note says the same.
    """
    meta, annotations = service["metadata"], service["metadata"].get("annotations") or {}
    shown = {
        "A": annotations.get(A),
        "L": service["spec"].get("loadBalancerIP"),
        "I": (meta.get("labels") or {}).get("implementation") == "kube-vip",
        "F": FINALIZER in (meta.get("finalizers") or ()),
        "N": annotations.get(NOTE),
        "interface": annotations.get(INTERFACE),
        "lease": annotations.get(LEASE_NAME),
        "noted": annotations.get(LEASE_NOTE) is not None
        and annotations.get(LEASE_NOTE) == annotations.get(LEASE_NAME),
    }
    return {key: value for key, value in shown.items() if value}


def assigned(a: str, *, interface: str = "eth1", requested: str = "", note: str | None = None) -> Shown:
    """What a Service shows whose addresses a provider chose; without a `note` of its own that is fipop."""
    shown = {"A": a, "L": requested or a.partition(",")[0], "I": True, "F": True}
    noted = {"N": a if note is None else note, "interface": interface}
    return shown | {key: value for key, value in noted.items() if value}


def copied(a: str, *, requested: str = "") -> Shown:
    """What a Service shows whose annotation fipop made from spec.loadBalancerIP."""
    return {"A": a, "L": requested or a, "F": True, "N": a}


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is there and served first (`given`), what happens `then`, and what Services show in the end.

    `condition` is that of Service web; None: whatever it is. `events` are the reasons of the events after `then`.
    """

    given: Act | None = None
    then: Act
    becomes: Mapping[str, Shown]
    data: Mapping[str, str] = field(default_factory=lambda: BOTH)
    condition: tuple[str, str] | None = None
    events: tuple[tuple[str, str], ...] = ()


def add(**options: Any) -> Act:
    return lambda world: world.add(**options)


def change(**options: Any) -> Act:
    return lambda world: world.change(**options)


def annotate(annotations: Mapping[str, str | None], **spec: Any) -> Act:
    return lambda world: world.change(annotations=annotations, **spec)


def delete(world: World) -> None:
    world.delete()


def leave_behind(a: str, **options: Any) -> Act:
    return lambda world: world.leave_behind("web", a, **options)


def add_web_and_other(world: World) -> None:
    world.add()
    world.add("other", loadBalancerIP=FIVE)


def add_five_and_seven(world: World) -> None:
    world.add(loadBalancerIP=FIVE)
    world.add("other", loadBalancerIP=SEVEN)


def add_sharers(world: World) -> None:
    world.add()
    world.add("tls", ports=(443,))


def shared(a: str = FIRST, *, interface: str = "eth1") -> Shown:
    """What a Service shows whose addresses a provider chose, and that shares the IPv4 address with others."""
    return {**assigned(a, interface=interface), "lease": LEASE, "noted": True}


def choose(pool: str | None, **spec: Any) -> Act:
    return annotate({POOL: pool}, **spec)


def add_to(pool: str, **spec: Any) -> Act:
    return add(metadata={"annotations": {POOL: pool}}, **spec)


def add_group(world: World) -> None:
    group = {"annotations": {SHARE: "front"}}
    world.add(metadata=group)
    world.add("tls", ports=(443,), metadata=group)


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
    "L only": Row(then=add(loadBalancerIP=FIVE), becomes={"web": copied(FIVE)}),
    "L only, outside of the pool": Row(
        then=add(loadBalancerIP="192.0.2.1"), becomes={"web": copied("192.0.2.1")}
    ),
    "L only, no address": Row(
        then=add(loadBalancerIP="10.21.5.300"),
        becomes={"web": copied("10.21.5.300")},
        events=(("web", "InvalidAddress"),),
    ),
    "L only, then L changed": Row(
        given=add(loadBalancerIP=FIVE),
        then=change(loadBalancerIP=SEVEN),
        becomes={"web": copied(SEVEN)},
    ),
    "L only, then L names the address of another Service": Row(
        given=add_five_and_seven,
        then=change(loadBalancerIP=SEVEN),
        becomes={
            "web": copied(FIVE, requested=SEVEN),
            "other": copied(SEVEN),
        },
        condition=("True", "AddressInUse"),
        events=(("web", "AddressInUse"),),
    ),
    "L only, then L is no address": Row(
        given=add(loadBalancerIP=FIVE),
        then=change(loadBalancerIP="lb.example.org"),
        becomes={"web": copied(FIVE, requested="lb.example.org")},
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
        then=add(loadBalancerIP=FIVE, **DUAL),
        becomes={"web": copied(FIVE)},
        events=(("web", "FamilyMissing"),),
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
        becomes={"web": {"A": FIVE, "I": True, "F": True, "interface": "eth1"}, "other": copied(FIVE)},
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
        becomes={"web": assigned(SEVEN, requested=FIVE, note="")},
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
        becomes={"web": assigned(FIVE, interface="", requested=SEVEN, note="")},
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
        then=change(metadata={"annotations": {}}),
        becomes={"web": assigned(FIRST, interface="")},
    ),
    "label removed": Row(
        given=add(),
        then=change(metadata={"labels": {}}),
        becomes={"web": {"A": FIRST, "L": FIRST, "F": True, "N": FIRST, "interface": "eth1"}},
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
    "announced by kube-vip, then the type left LoadBalancer": Row(
        given=add(metadata={"annotations": {VIP_HOST: "n1"}}),
        then=change(type="ClusterIP"),
        becomes={"web": {"N": FIRST}},
    ),
    "announced by kube-vip, the type left LoadBalancer and came back": Row(
        given=lambda world: (
            world.add(metadata={"annotations": {VIP_HOST: "n1"}}),
            world.change(type="ClusterIP"),
        ),
        then=change(type="LoadBalancer"),
        becomes={"web": assigned(FIRST)},
    ),
    "no LoadBalancer, with the finalizer of others": Row(
        then=add(type="ClusterIP", metadata={"finalizers": [FINALIZER]}), becomes={"web": {"F": True}}
    ),
    "being deleted, the finalizer of somebody else": Row(
        then=lambda world: (
            world.add(metadata={"finalizers": [FINALIZER], "annotations": {IGNORE: "true"}}),
            world.delete(),
        ),
        becomes={},
    ),
    "being deleted, no LoadBalancer any more and without a sign of a provider": Row(
        then=lambda world: (
            world.add(type="ClusterIP", metadata={"finalizers": [FINALIZER]}),
            world.delete(),
        ),
        becomes={},
    ),
    "being deleted, of another class and nobody's": Row(
        then=lambda world: (
            world.add(metadata={"finalizers": [FINALIZER]}, loadBalancerClass=OTHER_CLASS),
            world.delete(),
        ),
        becomes={"web": {"F": True}},
    ),
    "A only": Row(then=add(a=FIVE), becomes={"web": {"A": FIVE, "I": True, "F": True}}),
    "A and L of the user": Row(
        then=add(a=FIVE, loadBalancerIP=FIVE), becomes={"web": {"A": FIVE, "L": FIVE, "F": True}}
    ),
    "A and L as kube-vip-cloud-provider leaves them": Row(
        then=leave_behind(FIVE),
        becomes={"web": assigned(FIVE, interface="", note="")},
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
        becomes={"web": assigned(FIRST, requested=FIVE), "other": copied(FIVE)},
    ),
    "L changed to a family that the Service does not have": Row(
        given=add(),
        then=change(loadBalancerIP=SIX),
        becomes={"web": assigned(FIRST, requested=SIX)},
        condition=("True", "InvalidAddress"),
        events=(("web", "InvalidAddress"),),
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
        becomes={"web": shared(interface=""), "tls": shared(interface="")},
        events=(("tls", "AddressInUse"), ("web", "AddressInUse")),
    ),
    "sharers whose consent goes": Row(
        data=SHARED,
        given=add_sharers,
        then=lambda world: world.set_keys({"cidr-global": "10.0.0.1-10.0.0.1"}),
        becomes={"web": shared(interface=""), "tls": shared(interface="")},
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
        given=leave_behind(FIVE, loadBalancerClass=OTHER_CLASS),
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
    "a pool that is open to the namespace": Row(
        data=DMZ, then=add_to("dmz"), becomes={"web": assigned(EIGHT, interface="eth2")}, events=ASSIGNED
    ),
    "a pool that is open to every namespace": Row(
        data={**CLOSED, "allow-pool-dmz": "*"},
        then=add_to(" dmz "),
        becomes={"web": assigned(EIGHT, interface="eth2")},
    ),
    "a pool that is closed to the namespace": Row(
        data=CLOSED,
        then=add_to("dmz"),
        becomes={"web": {}},
        condition=("False", "PoolNotAllowed"),
        events=FAILED,
    ),
    "a pool that is closed to the namespace, then opened": Row(
        data=CLOSED,
        given=add_to("dmz"),
        then=lambda world: world.set_keys(DMZ),
        becomes={"web": assigned(EIGHT, interface="eth2")},
        condition=("True", "Assigned"),
    ),
    "a pool that is closed, and L": Row(
        data=CLOSED, then=add_to("dmz", loadBalancerIP=FIVE), becomes={"web": copied(FIVE)}
    ),
    "a pool that is closed, then L is the user's own": Row(
        data=DMZ,
        given=add_to("dmz"),
        then=lambda world: (world.set_keys(CLOSED), world.change(loadBalancerIP=FIVE)),
        becomes={"web": assigned(FIVE, interface="eth2")},
    ),
    "a pool without keys": Row(
        data={**BOTH, "allow-pool-dmz": "shop"},
        then=add_to("dmz"),
        becomes={"web": {}},
        condition=("False", "NoPool"),
        events=FAILED,
    ),
    "a pool of no name": Row(
        data=DMZ, then=add_to(""), becomes={"web": {}}, condition=("False", "InvalidPool"), events=FAILED
    ),
    "a pool of a name that is no part of a key": Row(
        data=DMZ, then=add_to("dmz/1"), becomes={"web": {}}, condition=("False", "InvalidPool"), events=FAILED
    ),
    "a pool that is full": Row(
        data={**DMZ, "exclude-dmz": "10.0.0.7-10.0.0.8"},
        then=add_to("dmz"),
        becomes={"web": {}},
        condition=("False", "PoolFull"),
    ),
    "assigned, then a pool is chosen": Row(
        data=DMZ, given=add(), then=choose("dmz"), becomes={"web": assigned(FIRST)}
    ),
    "assigned from a pool, then another one is chosen": Row(
        data=DMZ,
        given=add_to("dmz"),
        then=choose("other"),
        becomes={"web": assigned(EIGHT, interface="eth2")},
    ),
    "assigned from a pool, then none is chosen": Row(
        data=DMZ,
        given=add_to("dmz"),
        then=choose(None),
        becomes={"web": assigned(EIGHT, interface="eth2")},
    ),
    "assigned from a pool, then it is closed": Row(
        data=DMZ,
        given=add_to("dmz"),
        then=lambda world: world.set_keys(CLOSED),
        becomes={"web": assigned(EIGHT, interface="eth2")},
        condition=("", ""),
    ),
    "assigned, then a pool is chosen, and A and L removed": Row(
        data=DMZ,
        given=add(),
        then=annotate({POOL: "dmz", A: None}, loadBalancerIP=None),
        becomes={"web": assigned(EIGHT, interface="eth2")},
        events=ASSIGNED,
    ),
    "assigned from a pool, then none is chosen, and A and L removed": Row(
        data=DMZ,
        given=add_to("dmz"),
        then=annotate({POOL: None, A: None}, loadBalancerIP=None),
        becomes={"web": assigned(FIRST)},
        events=ASSIGNED,
    ),
    "assigned from a pool, then none is chosen, and the type left LoadBalancer": Row(
        data=DMZ, given=add_to("dmz"), then=choose(None, type="ClusterIP"), becomes={"web": {}}
    ),
    "a group": Row(then=add_group, becomes={"web": shared(), "tls": shared()}),
    "a group, and a port in common": Row(
        given=add_group,
        then=add(name="more", ports=(443,), metadata={"annotations": {SHARE: "front"}}),
        becomes={"web": shared(), "tls": shared(), "more": assigned(SECOND)},
    ),
    "a group in two pools": Row(
        data=DMZ,
        given=add_group,
        then=add(name="more", ports=(81,), metadata={"annotations": {SHARE: "front", POOL: "dmz"}}),
        becomes={"web": shared(), "tls": shared(), "more": assigned(EIGHT, interface="eth2")},
    ),
    "a group beside Services that share by a key": Row(
        data={**BOTH, "allow-share-shop": "true"},
        given=add_group,
        then=lambda world: (world.add("one", ports=(81,)), world.add("two", ports=(82,))),
        becomes={
            "web": shared(),
            "tls": shared(),
            "one": {**assigned(SECOND), "lease": LEASE[:-1] + "2", "noted": True},
            "two": {**assigned(SECOND), "lease": LEASE[:-1] + "2", "noted": True},
        },
    ),
    "a group that one of it left": Row(
        given=add_group,
        then=annotate({SHARE: None}),
        becomes={"web": shared(), "tls": shared()},
        events=(("tls", "AddressInUse"), ("web", "AddressInUse")),
    ),
    "sharers, and one becomes Local": Row(
        given=add_group,
        then=change(externalTrafficPolicy="Local"),
        becomes={"web": assigned(FIRST), "tls": assigned(FIRST)},
    ),
    "sharers, and one was Local": Row(
        given=lambda world: (add_group(world), world.change(externalTrafficPolicy="Local")),
        then=change(externalTrafficPolicy="Cluster"),
        becomes={"web": shared(), "tls": shared()},
    ),
    "sharers, and a user names a Lease": Row(
        given=add_group,
        then=annotate({LEASE_NAME: "mine"}),
        becomes={"web": {**assigned(FIRST), "lease": "mine"}, "tls": assigned(FIRST)},
    ),
    "sharers, and somebody removes the Lease": Row(
        given=add_group, then=annotate({LEASE_NAME: None}), becomes={"web": shared(), "tls": shared()}
    ),
    "sharers, and the other is deleted": Row(
        given=add_group, then=lambda world: world.delete("tls"), becomes={"web": assigned(FIRST)}
    ),
    "sharers, and the type of one left LoadBalancer": Row(
        given=add_group, then=change(type="ClusterIP"), becomes={"web": {}, "tls": assigned(FIRST)}
    ),
    "sharers, and one is ignored": Row(
        given=add_group, then=annotate({IGNORE: "true"}), becomes={"web": {}, "tls": assigned(FIRST)}
    ),
    "sharers, and L of one changed": Row(
        given=add_group,
        then=change(loadBalancerIP=FIVE),
        becomes={"web": assigned(FIVE), "tls": assigned(FIRST)},
    ),
    "sharers left by kube-vip-cloud-provider": Row(
        data=SHARED,
        then=lambda world: (
            world.leave_behind("web", FIRST),
            world.leave_behind("tls", FIRST, ports=(443,)),
        ),
        becomes={
            "web": assigned(FIRST, interface="", note=""),
            "tls": assigned(FIRST, interface="", note=""),
        },
    ),
    "sharers left by kube-vip-cloud-provider, and another one": Row(
        data=SHARED,
        given=lambda world: (
            world.leave_behind("web", FIRST),
            world.leave_behind("tls", FIRST, ports=(443,)),
        ),
        then=add(name="more", ports=(8443,)),
        becomes={
            "web": {**assigned(FIRST, interface="", note=""), "lease": LEASE, "noted": True},
            "tls": {**assigned(FIRST, interface="", note=""), "lease": LEASE, "noted": True},
            "more": shared(interface=""),
        },
    ),
    "another class": Row(then=add(loadBalancerClass=OTHER_CLASS), becomes={"web": {}}, condition=("", "")),
    "no LoadBalancer": Row(then=add(type="ClusterIP"), becomes={"web": {}}, condition=("", "")),
}
