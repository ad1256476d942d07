"""Whether an address is announced on the network, judged from what the API server of its guest cluster shows.

fipop sends no packet. kube-vip holds a Lease while it announces, and writes the status of a Service and its annotation
`kube-vip.io/vipHost` when it begins. So an address of a floating IP is judged by each Service of type LoadBalancer that
wants it. The first of these applies:

1. The Service has no endpoint (with `externalTrafficPolicy: Local`: none that serves): Unknown, `NoEndpoints`.
2. Neither its own Lease nor the one for all Services is live: False, `NoLeader`.
3. It has policy Local, and the node that holds the Lease has no endpoint of it: False, `LeaderHasNoEndpoint`.
4. Its status does not have the address: False, `NotTaken`.
5. `vipHost` names another node than the holder: False, `OtherNode`.
6. Otherwise the holder announces it: True.

Two holders are `SeveralNodes`. One is enough for True; without any, a False comes before an Unknown. A takeover of
kube-vip lasts up to 20 s. So True holds at once, and anything else only when two readings 30 s apart agree (`settle`).

docs/concepts/announced-addresses.md has what no object shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from fipop.api.codec import parse_time
from fipop.api.conditions import ConditionContent, ConditionType, Verdict, find_condition
from fipop.api.objects import FloatingIP, FloatingIPStatus
from fipop.api.service import Service
from fipop.helm.workloads import KUBE_VIP_CLASS, KubeVipMode
from fipop.ipam.addresses import Address, format_address
from fipop.jsons import Json, as_list, as_mapping, as_text
from fipop.texts import LONGEST_WORD, clean, is_object_name, read_name


class Reason(StrEnum):
    """The reason of a condition `Announced`."""

    ANNOUNCED = "Announced"
    NOT_USED = "NotUsed"
    NO_ENDPOINTS = "NoEndpoints"
    NO_LEADER = "NoLeader"
    LEADER_HAS_NO_ENDPOINT = "LeaderHasNoEndpoint"
    NOT_TAKEN = "NotTaken"
    OTHER_NODE = "OtherNode"
    SEVERAL_NODES = "SeveralNodes"
    MODE_NOT_SEEN = "ModeNotSeen"
    TOO_MANY_SERVICES = "TooManyServices"
    NOT_READ = "NotRead"


_DARK = frozenset({Reason.NO_LEADER, Reason.NOT_TAKEN, Reason.OTHER_NODE})
"""The reasons that can be the fault of what helm changed."""

MOST_SERVICES = 100
"""Of how many Services endpoints are read: their names are a part of one request."""
AGREE_SECONDS = 30.0
"""How far apart two readings are that agree: a takeover is over by then."""
AGAIN_SECONDS = 40.0
"""When a guest cluster is read again whose reading does not agree with its condition."""
COMPARED_SECONDS, COMPARED_MOST_SECONDS = 20.0, 50.0
"""How old a reading is that a Lease is compared with. kube-vip renews it every 2 s; a difference from an older reading
does not show that it was renewed lately."""
FRESH_SECONDS = 30.0
"""How old a renewal is at most if there is no such reading. A Lease lasts 15 s; clocks of nodes differ."""
_LONGEST_NAME = 253
"""Of an object: longer ones are cut before they are kept."""
_SERVICE_NAME = "kubernetes.io/service-name"
_NAMED = 3

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEndpoints:
    """Where the pods of a Service run, as one of its EndpointSlices, or all of them, show it."""

    has_any: bool = False
    """Whether there is an endpoint, ready or not."""
    serving: frozenset[str] = frozenset()
    """The nodes of those that serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A Lease of kube-vip."""

    namespace: str
    name: str
    holder: str
    renewed: str
    """The text of renewTime."""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReading:
    """What Leases showed once, to compare a later reading with."""

    at: float
    """By the loop's clock."""
    renewed: Mapping[Key, str]

    def is_comparable(self, at: float) -> bool:
        """Return whether a later reading shows by a difference that a Lease was renewed lately."""
        return COMPARED_SECONDS <= at - self.at <= COMPARED_MOST_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What the API server shows of who announces what."""

    holders: Mapping[Key, str] = field(default_factory=dict)
    """The holders of live Leases."""
    common_lease: Key = ("", "")
    """The Lease for all Services that have none of their own."""
    is_unsure: bool = False
    """Whether a Lease may be live that is none by the clock: a second reading shows it."""
    endpoints: Mapping[Key, ServiceEndpoints] = field(default_factory=dict)
    """By Service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A reading that does not agree with the condition."""

    verdict: Verdict
    reason: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedState:
    """What is remembered of one floating IP between two visits."""

    addresses: tuple[str, ...] = ()
    shown: ConditionContent | None = None
    """What its condition says; None if it has none."""
    doubt: Doubt | None = None


# What is read


def parse_lease(obj: Json) -> Lease:
    """Read a Lease."""
    meta, spec = as_mapping(obj.get("metadata")), as_mapping(obj.get("spec"))
    return Lease(
        namespace=_read_text(meta.get("namespace")),
        name=_read_text(meta.get("name")),
        holder=_read_text(spec.get("holderIdentity")),
        renewed=as_text(spec.get("renewTime"))[:LONGEST_WORD],
    )


def parse_endpoint_slice(obj: Json) -> tuple[Key, ServiceEndpoints]:
    """Read an EndpointSlice: of which Service it is, and what it adds. Endpoints serve unless they say otherwise."""
    meta = as_mapping(obj.get("metadata"))
    found = [as_mapping(each) for each in as_list(obj.get("endpoints"))]
    serving = (
        _read_text(each.get("nodeName"))
        for each in found
        if as_mapping(each.get("conditions")).get("serving") is not False
    )
    service = _read_text(as_mapping(meta.get("labels")).get(_SERVICE_NAME))
    endpoints = ServiceEndpoints(has_any=bool(found), serving=frozenset(filter(None, serving)))
    return (_read_text(meta.get("namespace")), service), endpoints


def _read_text(value: object) -> str:
    return as_text(value)[:_LONGEST_NAME]


def build_slice_selector(services: Iterable[Service]) -> str:
    """Return the label selector of the EndpointSlices of Services."""
    return f"{_SERVICE_NAME} in ({','.join(sorted({each.name for each in services}))})"


def join_endpoints(slices: Iterable[tuple[Key, ServiceEndpoints]]) -> dict[Key, ServiceEndpoints]:
    """Return the endpoints of each Service from all its slices."""
    joined: dict[Key, ServiceEndpoints] = {}
    for key, one in slices:
        before = joined.get(key, ServiceEndpoints())
        joined[key] = ServiceEndpoints(
            has_any=before.has_any or one.has_any, serving=before.serving | one.serving
        )
    return joined


def find_live(
    leases: Iterable[Lease], before: LeaseReading | None, *, at: float, guest_now: datetime
) -> dict[Key, str]:
    """Return the holders of the Leases that are live: renewed since a reading that is comparable.

    Without such a reading the time of the renewal is compared with that of the guest cluster's API server.
    """
    is_comparable = before is not None and before.is_comparable(at)
    holders = {}
    for each in leases:
        former = before.renewed.get(each.key) if before is not None and is_comparable else None
        if former is not None:
            is_live = former != each.renewed
        else:
            renewed = parse_time(each.renewed)
            is_live = renewed is not None and (guest_now - renewed).total_seconds() < FRESH_SECONDS
        if each.holder and is_live:
            holders[each.key] = each.holder
    return holders


def is_unsure(
    leases: Iterable[Lease], live: Mapping[Key, str], before: LeaseReading | None, at: float
) -> bool:
    """Return whether a Lease that is not live was renewed since the former reading: clocks may differ."""
    if before is not None and before.is_comparable(at):
        return False
    former = before.renewed if before is not None else {}
    stale = (each for each in leases if each.holder and each.key not in live)
    return any(former.get(each.key) != each.renewed for each in stale)


def keep_reading(leases: Iterable[Lease], before: LeaseReading | None, *, at: float) -> LeaseReading:
    """Return the reading that the next one is compared with: the former one, until it is old enough to be replaced."""
    if before is not None and at - before.at < COMPARED_SECONDS:
        return before
    return LeaseReading(at=at, renewed={each.key: each.renewed for each in leases})


# What is judged


@dataclass(frozen=True, kw_only=True)
class AnnouncedCheck:
    """What is asked of one guest cluster: whether the addresses of its floating IPs are announced."""

    mode: KubeVipMode | None
    """How fipop's kube-vip announces there; None if there is none."""
    users: Mapping[Key, Mapping[Address, tuple[Service, ...]]]
    """By floating IP, the Services that want each of its addresses."""

    @cached_property
    def services(self) -> tuple[Service, ...]:
        """All these Services, each once."""
        found = {each.key: each for one in self.users.values() for those in one.values() for each in those}
        return tuple(found.values())

    @property
    def lease_keys(self) -> frozenset[Key]:
        """The Leases that show who announces these Services; empty without kube-vip."""
        if self.mode is None:
            return frozenset()
        own = (each.lease_key for each in self.services if self.mode.elects_each)
        return frozenset((self.mode.common_lease, *own))

    @property
    def needs_network(self) -> bool:
        """Whether Leases and EndpointSlices tell more."""
        is_seen = self.mode is not None and self.mode.writes_leases
        return is_seen and 0 < len(self.services) <= MOST_SERVICES

    def judge(self, network: Network | None, problem: str = "") -> dict[Key, ConditionContent]:
        """Return what is found of each floating IP. `problem`: why there is no network, a sentence."""
        return {key: self._judge(users, network, problem) for key, users in self.users.items()}

    def _judge(
        self, users: Mapping[Address, tuple[Service, ...]], network: Network | None, problem: str
    ) -> ConditionContent:
        if not any(users.values()):
            message = f"No Service of type LoadBalancer uses {_list(users)}."
            return build_unknown(Reason.NOT_USED, message)
        if problem:
            return build_unknown(Reason.NOT_READ, problem)
        if self.mode is None or not self.mode.writes_leases:
            return build_unknown(Reason.MODE_NOT_SEEN, _describe_mode(self.mode))
        if len(self.services) > MOST_SERVICES:
            message = (
                f"{len(self.services)} Services of the guest cluster use addresses of its FloatingIPs. fipop checks "
                f"up to {MOST_SERVICES}."
            )
            return build_unknown(Reason.TOO_MANY_SERVICES, message)
        assert network is not None, "without a problem it was read"
        return judge_addresses(users, network, self.mode)


def build_unknown(reason: Reason, message: str) -> ConditionContent:
    """Build what is said of addresses of which it is not known whether they are announced."""
    return ConditionContent(verdict=Verdict.UNKNOWN, reason=reason.value, message=message)


def build_check(
    services: Sequence[Service], addresses: Mapping[Key, Iterable[Address]], mode: KubeVipMode | None
) -> AnnouncedCheck:
    """Build the check of a guest cluster from its Services, and the addresses of each floating IP."""
    classes = mode.classes if mode is not None else frozenset({"", KUBE_VIP_CLASS})
    by_address = find_users(services, classes)
    users = {
        key: {address: tuple(by_address.get(address, ())) for address in those}
        for key, those in addresses.items()
    }
    return AnnouncedCheck(mode=mode, users=users)


def _describe_mode(mode: KubeVipMode | None) -> str:
    if mode is None:
        return "fipop has no kube-vip in this guest cluster, so it does not know what announces the address."
    return (
        f"DaemonSet {mode.namespace}/{mode.name} announces by BGP or a routing table, which no object of the guest "
        "cluster shows."
    )


def _list(addresses: Iterable[Address]) -> str:
    return ", ".join(map(format_address, addresses)) or "the FloatingIP"


def find_users(services: Iterable[Service], classes: frozenset[str]) -> dict[Address, list[Service]]:
    """Return which Services want each address to be announced, by what kube-vip itself goes by.

    Their names become a part of a request: one that is no name is left out.
    """
    found: dict[Address, list[Service]] = {}
    for each in services:
        is_served = each.is_load_balancer and not each.is_ignored and each.class_name in classes
        for address in dict.fromkeys(each.wanted) if is_served and is_object_name(each.name) else ():
            found.setdefault(address, []).append(each)
    return found


def judge_addresses(
    users: Mapping[Address, Sequence[Service]], network: Network, mode: KubeVipMode
) -> ConditionContent:
    """Return whether the addresses of one floating IP, at least one, are announced.

    An address that is not announced decides, then one that is.
    """
    found = [_judge_address(address, those, network, mode) for address, those in users.items()]
    order = (Verdict.FALSE, Verdict.TRUE, Verdict.UNKNOWN)
    verdict = min((each.verdict for each in found), key=order.index)
    chosen = [each for each in found if each.verdict is verdict]
    return ConditionContent(
        verdict=verdict,
        reason=chosen[0].reason,
        message=" ".join(dict.fromkeys(each.message for each in chosen)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    verdict: Verdict
    reason: Reason
    service: Service
    node: str = ""


def _judge_address(
    address: Address, users: Sequence[Service], network: Network, mode: KubeVipMode
) -> ConditionContent:
    if not users:
        message = f"No Service of type LoadBalancer uses {format_address(address)}."
        return build_unknown(Reason.NOT_USED, message)
    found = [_judge_service(address, each, network) for each in users]
    announcing = [each for each in found if each.verdict is Verdict.TRUE]
    nodes = sorted({each.node for each in announcing})
    if len(nodes) > 1:
        return _describe_several(address, announcing, nodes)
    chosen = announcing or [each for each in found if each.verdict is Verdict.FALSE] or found
    message = _describe(address, chosen[0], mode)
    return ConditionContent(verdict=chosen[0].verdict, reason=chosen[0].reason.value, message=message)


def _judge_service(address: Address, service: Service, network: Network) -> _Judgement:
    endpoints = network.endpoints.get(service.key, ServiceEndpoints())
    has_endpoint = bool(endpoints.serving) if service.is_local else endpoints.has_any
    if not has_endpoint and (service.is_local or not service.needs_no_endpoints):
        return _Judgement(verdict=Verdict.UNKNOWN, reason=Reason.NO_ENDPOINTS, service=service)
    own = service.lease_key
    lease = own if own in network.holders else network.common_lease
    node = network.holders.get(lease, "")
    reason = Reason.ANNOUNCED
    if not node:
        reason = Reason.NO_LEADER
    elif service.is_local and node not in endpoints.serving:
        reason = Reason.LEADER_HAS_NO_ENDPOINT
    elif address not in service.announced:
        reason = Reason.NOT_TAKEN
    elif service.vip_host != node:
        reason = Reason.OTHER_NODE
    verdict = Verdict.TRUE if reason is Reason.ANNOUNCED else Verdict.FALSE
    return _Judgement(verdict=verdict, reason=reason, service=service, node=node)


def _describe_several(
    address: Address, announcing: Sequence[_Judgement], nodes: Sequence[str]
) -> ConditionContent:
    services = ", ".join(sorted({_name(each.service) for each in announcing})[:_NAMED])
    names = ", ".join(map(read_name, nodes[:_NAMED]))
    message = (
        f"Nodes {names} announce {format_address(address)} at the same time, for Services {services}. Set the "
        "annotation kube-vip.io/leaseName of these Services to one name, with externalTrafficPolicy Cluster."
    )
    return ConditionContent(verdict=Verdict.FALSE, reason=Reason.SEVERAL_NODES.value, message=message)


def _describe(address: Address, judged: _Judgement, mode: KubeVipMode) -> str:
    text, service, node = format_address(address), _name(judged.service), read_name(judged.node)
    restart = f"Run kubectl --namespace {mode.namespace} rollout restart daemonset {mode.name} there."
    match judged.reason:
        case Reason.ANNOUNCED:
            return f"Node {node} announces {text} for Service {service}."
        case Reason.NO_ENDPOINTS:
            return (
                f"Service {service} has no endpoint that kube-vip counts, so {text} is not announced, or was not when "
                "it was read last. Start a pod of the Service."
            )
        case Reason.NO_LEADER:
            lease = judged.service.lease_key if mode.elects_each else mode.common_lease
            where = "/".join(map(read_name, lease))
            own = (
                ", and the annotations kube-vip.io/serviceInterface and kube-vip.io/leaseName of the Service"
            )
            return (
                f"No kube-vip announces {text} for Service {service}: Lease {where} has no holder that renews it. "
                f"Check the pods of DaemonSet {mode.namespace}/{mode.name} in the guest cluster"
                f"{own if mode.elects_each else ''}."
            )
        case Reason.LEADER_HAS_NO_ENDPOINT:
            return (
                f"Node {node} announces for Service {service}, which has externalTrafficPolicy Local and no ready pod "
                f'there, so {text} is not announced. Set svc_election to "true" in the values of kube-vip and let it '
                "run on the nodes of the pods, or set externalTrafficPolicy to Cluster."
            )
        case Reason.NOT_TAKEN:
            interface = judged.service.interface
            hint = (
                f"Check that nodes have the interface {clean(interface, 15)} of its annotation. "
                if interface
                else ""
            )
            return (
                f"kube-vip on node {node} has not taken {text} for Service {service}: the status of the Service lacks "
                f"it. {hint}{restart}"
            )
        case _:
            former = judged.service.vip_host
            was = f"was announced by node {read_name(former)} last" if former else "was never announced"
            return (
                f"{text} of Service {service} {was}, but node {node} holds the Lease now and has not taken it. "
                f"{restart} If no pod of kube-vip runs on that node, stop the program that renews the Lease instead."
            )


def _name(service: Service) -> str:
    return f"{read_name(service.namespace)}/{read_name(service.name)}"


# What is shown


def find_dark_since(
    floating_ip: FloatingIP, state: AnnouncedState | None, *, now: datetime, at: float
) -> float | None:
    """Return when the addresses of a floating IP were announced last that are not any more, by the loop's clock.

    One reading is enough, so that a rollout waits for the second one. None if they are announced, if they never were,
    or if the reason is none that a change of kube-vip can have. `now` is the management cluster's clock, `at` the
    loop's.
    """
    condition = find_condition(floating_ip.status.conditions, ConditionType.ANNOUNCED)
    doubt = state.doubt if state is not None else None
    if condition is not None and condition.is_true:
        if doubt is not None and doubt.reason in _DARK:
            return doubt.since
        # Two readings agreed, and the status is not written yet.
        return at if state is not None and state.shown is not None and state.shown.reason in _DARK else None
    left, is_false = floating_ip.status.last_announced, condition is not None and condition.reason in _DARK
    return at - (now - left).total_seconds() if left is not None and is_false else None


def settle(state: AnnouncedState, found: ConditionContent, *, at: float) -> AnnouncedState:
    """Return what a floating IP shows after a reading.

    True holds at once, and so does what is not known any better. Otherwise the condition stays as it was, until a
    second reading at least AGREE_SECONDS later has the same verdict.
    """
    shown, doubt = state.shown, state.doubt
    is_same = shown is not None and shown.verdict is found.verdict
    knows_nothing = found.verdict is Verdict.UNKNOWN and shown is None
    is_agreed = doubt is not None and doubt.verdict is found.verdict and at - doubt.since >= AGREE_SECONDS
    if found.verdict is Verdict.TRUE or is_same or knows_nothing or is_agreed:
        return AnnouncedState(addresses=state.addresses, shown=found)
    since = doubt.since if doubt is not None and doubt.verdict is found.verdict else at
    doubt = Doubt(verdict=found.verdict, reason=found.reason, since=since)
    return AnnouncedState(addresses=state.addresses, shown=shown, doubt=doubt)


def restore_state(status: FloatingIPStatus) -> AnnouncedState:
    """Return what a floating IP shows, as its status says: a new leader knows no more."""
    condition = find_condition(status.conditions, ConditionType.ANNOUNCED)
    shown = None
    if condition is not None:
        shown = ConditionContent(verdict=condition.status, reason=condition.reason, message=condition.message)
    return AnnouncedState(addresses=status.addresses, shown=shown)
