"""A Service of type LoadBalancer: what it says of its addresses, and what is written to it. Values in, values out.

What it has tells who chose: annotation A (`kube-vip.io/loadbalancerIPs`), L (`spec.loadBalancerIP`), label I
(`implementation=kube-vip`), finalizer F. I with A and L = first of A is the mark of "chosen by the provider", unless A
says what no provider writes; where a part of it was taken away, the ledger knows that it was (`was_chosen`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from functools import cached_property
from itertools import islice

from fipop.api.conditions import Verdict, parse_time
from fipop.cloudprovider.conditions import Word, read_word
from fipop.ipam.addresses import DHCP, Address, Family, FamilyPolicy, parse_address
from fipop.ipam.allocator import Port
from fipop.ipam.errors import IpamError
from fipop.jsons import JsonView, as_list, as_mapping, as_text

ADDRESSES = "kube-vip.io/loadbalancerIPs"
INTERFACE = "kube-vip.io/serviceInterface"
IMPLEMENTATION = "implementation"
KUBE_VIP = "kube-vip"
LEGACY_LABEL = "ipam-address"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
FORWARD_METHOD = "k8s.co/keepalived-forward-method"
LEDGER = "kubefip.k8s.binbash.org/ledger"
"""Annotation of a Service that was not settled, or is about to be written: the uid of the ledger that knows of it."""
LOAD_BALANCER = "LoadBalancer"
ANOTHER_CONTROLLER = "AnotherController"
"""The reason of a Service that is left alone: see `quarrels`."""
MOST_ADDRESSES = 16
"""So many parts of A, and of the status, count: each takes memory, and room in the ledger."""
MOST_PORTS = 256
"""Who has more ports shares an address with nobody: ports take memory, too."""


class State(Enum):
    """What a Service has, and so what is to be done about it."""

    NEW = auto()
    """Neither A nor L: an address is chosen."""
    LEGACY = auto()
    """L alone: A is made from it."""
    ANNOTATED = auto()
    """A alone, by a user: it gets F and I."""
    STATIC = auto()
    """A and L, not chosen by the provider: it gets F."""
    CHOSEN = auto()
    MOVING = auto()
    """Chosen, and L names another address: the user asks for that one."""
    STRIPPED = auto()
    """Chosen, and A or L was taken away: it is restored from the ledger."""
    LEFT = auto()
    """Chosen, and no LoadBalancer any more: all of ours is cleared."""
    LEFT_STATIC = auto()
    """Its addresses were a user's, and it is no LoadBalancer any more: F goes, what the user wrote stays."""
    DELETING = auto()
    FOREIGN = auto()
    """No LoadBalancer, or another provider's, and nothing of ours is on it."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A Service as it was read; `version` is its resourceVersion then.

    `annotated` are the addresses of A in its order, `requested` that of L; what is no address, a host name say, is left
    out. `has_annotation` and `has_request` tell whether there was any text. `announced` are those of its status.
    """

    namespace: str
    name: str
    uid: str
    version: str
    is_load_balancer: bool
    class_name: str | None
    is_deleting: bool
    deleted: datetime | None
    policy: FamilyPolicy
    families: tuple[Family, ...]
    ports: frozenset[Port]
    annotated: tuple[Address, ...]
    parts: int
    """How many parts A has, host names and repeated ones too."""
    has_annotation: bool
    requested: Address | None
    has_request: bool
    announced: tuple[Address, ...]
    is_marked: bool
    has_finalizer: bool
    is_local: bool
    """externalTrafficPolicy: Local."""
    created: str
    ledger: str
    forward_method: str
    """What its annotation asks for in keepalived mode; empty where nothing is asked."""
    word: Word | None
    """What our condition says."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def resource_version(self) -> int:
        """The version as a number."""
        return int(self.version)

    @cached_property
    def carried(self) -> frozenset[Address]:
        """The addresses that it has by whatever it says; 0.0.0.0 is none."""
        own = () if self.requested is None else (self.requested,)
        return frozenset((*self.annotated, *own, *self.announced)) - {DHCP}

    @property
    def is_holder(self) -> bool:
        """Whether what it carries is in use: also that of one that is no LoadBalancer any more, until it is cleared."""
        return self.is_load_balancer or self.has_finalizer

    @property
    def has_own_first(self) -> bool:
        """Whether L is the first address of A."""
        return self.requested is not None and self.annotated[:1] == (self.requested,)

    @property
    def has_one_of_each_family(self) -> bool:
        """Whether it has one address of each family that its policy asks for, and no other."""
        if DHCP in self.annotated:
            return len(self.annotated) == 1
        first = self.families[0] if self.families else None
        found = [address.family for address in self.annotated]
        if self.policy is FamilyPolicy.SINGLE_STACK:
            return len(found) == 1 and first in (None, found[0])
        return sorted(found) == sorted(Family) and first in (None, found[0])

    @property
    def lacks_nothing(self) -> bool:
        """Whether it has all that it must have, as a provider writes it; that a second family is preferred can wait."""
        has_families = self.has_one_of_each_family or self.policy is FamilyPolicy.PREFER_DUAL_STACK
        return self.has_own_first and self.has_finalizer and has_families

    @property
    def is_chosen(self) -> bool:
        """Whether it has the mark of one whose addresses a provider chose, and A is such as a provider writes it.

        kube-vip-cloud-provider puts I on Services whose A is their user's, too. Our condition is on chosen ones alone.
        """
        may_lack_one = self.policy is not FamilyPolicy.SINGLE_STACK and len(self.annotated) == 1
        is_fitting = self.parts == len(self.annotated) and (self.has_one_of_each_family or may_lack_one)
        return self.is_marked and self.has_own_first and (is_fitting or self.was_assigned)

    @property
    def was_assigned(self) -> bool:
        """Whether our condition says that it was given an address, whoever overwrites it."""
        return self.is_left_alone or (self.word is not None and self.word.verdict is Verdict.TRUE)

    @property
    def is_left_alone(self) -> bool:
        """Whether our condition says that it is left to another controller."""
        return self.word is not None and self.word.reason == ANOTHER_CONTROLLER

    @property
    def shows_claim(self) -> bool:
        """Whether it shows that a provider may be about to write an address into it.

        Of one that does not the status is written first (`AddressAssigner.write`). One of a class that has an address
        by its status alone is served by another.
        """
        is_bare = not self.has_annotation and not (self.class_name and self.announced)
        return is_bare or self.was_assigned or bool(self.ledger)

    @property
    def may_be_written(self) -> bool:
        """Whether a provider may be about to write an address into it that it does not carry, as far as it shows."""
        wanted = set(Family) if self.policy is not FamilyPolicy.SINGLE_STACK else {*self.families[:1]}
        lacks_family = not (wanted or {Family.IPV4}) <= {address.family for address in self.annotated}
        is_settled = self.annotated == (DHCP,) or (self.has_own_first and not lacks_family)
        return self.is_load_balancer and not self.is_deleting and self.shows_claim and not is_settled


def parse_service(obj: JsonView) -> Service:
    """Read a Service. People write what they like: what cannot be read is as if it were not there."""
    meta, spec = as_mapping(obj.get("metadata")), as_mapping(obj.get("spec"))
    annotation = as_text(as_mapping(meta.get("annotations")).get(ADDRESSES)).strip()
    request = as_text(spec.get("loadBalancerIP")).strip()
    balancer = as_mapping(as_mapping(obj.get("status")).get("loadBalancer"))
    return Service(
        namespace=as_text(meta.get("namespace")),
        name=as_text(meta.get("name")),
        uid=as_text(meta.get("uid")),
        version=as_text(meta.get("resourceVersion")),
        is_load_balancer=spec.get("type") == LOAD_BALANCER,
        class_name=as_text(spec.get("loadBalancerClass")) or None,
        is_deleting=bool(meta.get("deletionTimestamp")),
        deleted=parse_time(meta.get("deletionTimestamp")),
        policy=_read_policy(spec.get("ipFamilyPolicy")),
        families=_read_families(spec.get("ipFamilies")),
        ports=few_ports(_read_ports(spec.get("ports"))),
        annotated=_read_addresses(annotation.split(",", MOST_ADDRESSES)[:MOST_ADDRESSES]),
        parts=annotation.count(",") + 1,
        has_annotation=bool(annotation),
        requested=next(iter(_read_addresses([request])), None),
        has_request=bool(request),
        announced=_read_addresses(
            as_text(as_mapping(each).get("ip")) for each in as_list(balancer.get("ingress"))[:MOST_ADDRESSES]
        ),
        is_marked=as_mapping(meta.get("labels")).get(IMPLEMENTATION) == KUBE_VIP,
        has_finalizer=FINALIZER in as_list(meta.get("finalizers")),
        is_local=spec.get("externalTrafficPolicy") == "Local",
        created=as_text(meta.get("creationTimestamp")),
        ledger=as_text(as_mapping(meta.get("annotations")).get(LEDGER)),
        forward_method=as_text(as_mapping(meta.get("annotations")).get(FORWARD_METHOD)).strip(),
        word=read_word(obj),
    )


def classify(service: Service, *, class_name: str | None, was_chosen: bool) -> State:
    """Tell what a Service has; `class_name` is the class that is served, None: only Services without one.

    `was_chosen`: the ledger has an address of it that the provider chose.
    """
    if not service.is_load_balancer:
        return _classify_left(service, was_chosen=was_chosen)
    if service.class_name != class_name:
        # Cloud providers have the same finalizer, for Services without a class: theirs is for them to remove.
        is_ours = was_chosen or service.is_marked or service.class_name is not None
        is_held = service.is_deleting and service.has_finalizer and is_ours
        return State.DELETING if is_held else State.FOREIGN
    if service.is_deleting:
        return State.DELETING
    if was_chosen and (not service.annotated or service.requested is None):
        return State.STRIPPED
    if not service.has_annotation:
        return State.LEGACY if service.has_request else State.NEW
    if not service.has_request:
        return State.ANNOTATED
    if service.is_chosen or (was_chosen and service.is_marked and service.has_own_first):
        return State.CHOSEN
    return State.MOVING if was_chosen else State.STATIC


def _classify_left(service: Service, *, was_chosen: bool) -> State:
    """Tell what is left on a Service that is no LoadBalancer: with F of ours on it nobody could delete it."""
    is_stripped = service.requested is not None and not service.has_annotation
    is_chosen = was_chosen or service.is_chosen or (service.is_marked and is_stripped)
    is_held = service.has_finalizer and (service.has_annotation or service.is_marked)
    if not is_chosen and not is_held:
        return State.FOREIGN
    if service.is_deleting:
        return State.DELETING
    return State.LEFT if is_chosen else State.LEFT_STATIC


def order_addresses(addresses: Iterable[Address], families: Sequence[Family]) -> tuple[Address, ...]:
    """Put addresses in the order of A: IPv6 first exactly when it is the first of `ipFamilies`."""
    first = families[0] if families else Family.IPV4
    return tuple(sorted(addresses, key=lambda each: (each.family is not first, each)))


def few_ports(ports: Iterable[Port]) -> frozenset[Port]:
    """Return these ports, none if there are more than MOST_PORTS; only so many are asked for."""
    found = frozenset(islice(ports, MOST_PORTS + 1))
    return found if len(found) <= MOST_PORTS else frozenset()


def _read_policy(value: object) -> FamilyPolicy:
    try:
        return FamilyPolicy(as_text(value))
    except ValueError:
        return FamilyPolicy.SINGLE_STACK


def _read_families(items: object) -> tuple[Family, ...]:
    by_label = {family.label: family for family in Family}
    return tuple(dict.fromkeys(by_label[item] for item in as_list(items) if item in by_label))


def _read_ports(items: object) -> Iterable[Port]:
    for item in map(as_mapping, as_list(items)):
        port = item.get("port")
        if isinstance(port, int):
            yield port, as_text(item.get("protocol")) or "TCP"


def _read_addresses(texts: Iterable[str]) -> tuple[Address, ...]:
    found = []
    for text in texts:
        try:
            found.append(parse_address(text))
        except IpamError:
            continue
    return tuple(dict.fromkeys(found))
