"""Which floating IPs a guest cluster needs for its Services: values in, values out.

A floating IP is busy if a Service uses one of its addresses, or waits for one that it has free. Each Service that waits
beyond that wants another floating IP; then `preAllocate` are not busy, and there are `minAllocate` in all. At most
`maxAllocate` are made, within `maxPerGuest`. One of fipop's making that is not busy, and not wanted, is let go.

Pools are apart: a Service that chooses one waits for floating IPs of that pool alone, if there are some and the pool is
open to its namespace.

A Service waits since it was created, or since our cloud provider said that its pool has no address for it. Other
providers say nothing: there a Service waits that has no address, and asks for none by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from fipop.addresses.claims import read_addresses
from fipop.addresses.request import AddressRequest, read_request
from fipop.api import names
from fipop.api.codec import parse_time
from fipop.api.conditions import ConditionContent, ConditionType, Verdict
from fipop.api.names import parse_go_bool
from fipop.api.objects import EPOCH, FloatingIP, PerGuest
from fipop.api.service import Service, split_classes
from fipop.guests.in_use import find_in_use
from fipop.ipam.addresses import Address, Family, FamilyPolicy
from fipop.jsons import as_list, as_mapping, as_text
from fipop.texts import list_some, read_name

WAIT = timedelta(seconds=5)
"""How long a Service has no address until it counts as waiting: its provider may be about to serve it."""
_FULL = frozenset({"PoolFull", "NoPool"})
MOST_NAMED = 3
"""How many Services that wait a message names."""
MET = ConditionContent(
    verdict=Verdict.TRUE, reason="DemandMet", message="No Service waits for another FloatingIP."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUse:
    """A Service that uses addresses, or waits for some; its names are fit for a condition."""

    namespace: str
    name: str
    pool: str | None = None
    """The pool that it chooses; None if it leaves that to its namespace."""
    addresses: frozenset[Address] = frozenset()
    lacking: tuple[Family, ...] = ()
    """The families of which it waits for an address."""
    is_flexible: bool = False
    """Whether one of them is enough (PreferDualStack)."""
    since: datetime | None = None
    """Since when it waits; None if it does not."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFloatingIP:
    """A floating IP to make."""

    service: ServiceUse | None = None
    """The Service that waits for it; None for a spare one."""
    scope: str = ""
    """The namespace or pool whose Services can use it; "" for all."""
    is_pool: bool = False
    """Whether that is the pool of a floating IP."""
    families: tuple[Family, ...] = ()
    """Empty for those that the range has."""
    addresses: tuple[Address, ...] = ()
    """Those of a floating IP that is gone, and that Services use."""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandPlan:
    """What to do for the Services of a guest cluster."""

    makes: tuple[NewFloatingIP, ...] = ()
    delete: FloatingIP | None = None
    unused: frozenset[str] = frozenset()
    """The uids of those that are let go once their time is over."""
    busy: frozenset[str] = frozenset()
    """The names of the floating IPs that Services use, or wait for."""
    unserved: tuple[NewFloatingIP, ...] = ()
    """What is not made, for Services."""
    waiting: tuple[ServiceUse, ...] = ()
    """The Services for which there is no floating IP that has an address."""
    limit: str = ""
    """The field of the range that forbids it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandInput:
    """What is known of a guest cluster and of the range of its oldest floating IP."""

    cluster: str
    per_guest: PerGuest
    families: frozenset[Family]
    """Those of the range."""
    floating_ips: Sequence[FloatingIP]
    """Those from the range, the oldest first."""
    taken: frozenset[str] = frozenset()
    """The names of all floating IPs of the guest cluster."""
    services: Sequence[ServiceUse] = ()
    """Those that use addresses, or have waited for some time."""
    foreign_pools: frozenset[str] = frozenset()
    """The namespaces whose pool is none of fipop's; "global" stands for all others."""
    pool_namespaces: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By pool, the namespaces whose Services may choose it; without an entry that of its name."""
    former: Mapping[Address, str] = field(default_factory=dict)
    """The addresses of the guest cluster that are in quarantine, with the names of their floating IPs."""
    room: int | None = None
    """How many more addresses `maxPerGuest` allows, beside those in quarantine; None without it."""
    idle_seconds: Mapping[str, float] = field(default_factory=dict)
    """For how long no Service has used a floating IP, by its uid."""


def plan_floating_ips(given: DemandInput) -> DemandPlan:
    """Return which floating IPs to make, and which one to let go."""
    wants, busy, waiting = _find_wants(given)
    per_guest, number = given.per_guest, len(given.floating_ips)
    spare = [each for each in given.floating_ips if each.name not in busy and not each.spec.scope]
    if "global" not in given.foreign_pools:
        missing = max(per_guest.pre_allocate - len(spare), per_guest.min_allocate - number - len(wants), 0)
        wants += [NewFloatingIP()] * missing
    makes, limit = _admit(given, wants)
    unused = tuple(_list_unused(given, busy, spares=len(spare)))
    is_over = unused and given.idle_seconds.get(unused[0].uid, 0.0) >= per_guest.release_after_seconds
    unserved = tuple(each for each in wants[len(makes) :] if each.service is not None)
    return DemandPlan(
        makes=makes,
        delete=unused[0] if is_over and not makes else None,
        unused=frozenset(each.uid for each in unused),
        busy=frozenset(busy),
        unserved=unserved,
        waiting=waiting,
        limit=limit if unserved else "",
    )


def judge_demand(given: DemandInput, plan: DemandPlan, range_name: str) -> ConditionContent:
    """Return whether all Services that wait have a floating IP, or get one."""
    if plan.unserved:
        # Also those that wait for a floating IP which has no address.
        unserved = [each.service for each in plan.unserved]
        services = list(dict.fromkeys(str(each) for each in (*plan.waiting, *unserved)))
        message = (
            f'Range "{range_name}" allows guest cluster "{given.cluster}" no more FloatingIPs ({plan.limit}); '
            f"{len(given.former)} of its addresses are in quarantine. Services wait: "
            f"{list_some(services, MOST_NAMED)}. Delete unused Services, or raise {plan.limit}."
        )
        return ConditionContent(verdict=Verdict.FALSE, reason="LimitReached", message=message)
    for each in given.floating_ips:
        for condition in (
            each.status.conditions if each.name in plan.busy and not each.status.addresses else ()
        ):
            if condition.type == ConditionType.ALLOCATED and not condition.is_true:
                reason = "LimitReached" if condition.reason == "QuotaExceeded" else condition.reason
                return ConditionContent(verdict=Verdict.FALSE, reason=reason, message=condition.message)
    return MET


def _find_wants(given: DemandInput) -> tuple[list[NewFloatingIP], set[str], tuple[ServiceUse, ...]]:
    """Return what Services want beside the floating IPs that there are, and the names of those that are busy.

    And the Services that wait: those for which there is no floating IP that has an address.
    """
    in_use = {address: each for each in given.services for address in each.addresses}
    free: defaultdict[str, list[tuple[str, Family]]] = defaultdict(list)
    busy, named = set(), set[Address]()
    for each in given.floating_ips:
        has = read_addresses(each.status.addresses or each.spec.ipaddress.split(","))
        named |= has
        families = [one.family for one in sorted(has) if one not in in_use] if has else _expect(given, each)
        free[each.spec.scope] += [(each.name, family) for family in families]
        if any(one in in_use for one in has):
            busy.add(each.name)
    gone: defaultdict[str, list[Address]] = defaultdict(list)
    for address in sorted((given.former.keys() & in_use.keys()) - named):
        gone[given.former[address]].append(address)

    pools = {each.spec.pool for each in given.floating_ips} - {""}

    def build_want(service: ServiceUse, **fields: Any) -> NewFloatingIP:
        scope = _find_scope(service, free)
        return NewFloatingIP(service=service, scope=scope, is_pool=scope in pools, **fields)

    wants = [build_want(in_use[each[0]], addresses=tuple(each)) for each in gone.values()]
    without = {each.name for each in given.floating_ips if not each.status.addresses}
    waiting: list[ServiceUse] = []
    needy = [each for each in given.services if each.lacking]
    for service in sorted(needy, key=lambda each: (each.since or EPOCH, str(each))):
        if not _is_helped(given, service, scope := _find_scope(service, free)):
            continue
        lacking, taken = _take(free[scope], busy, service)
        if lacking:
            wants.append(build_want(service, families=lacking))
        if lacking or taken & without:
            waiting.append(service)
    return wants, busy, tuple(waiting)


def _find_scope(service: ServiceUse, scopes: Container[str]) -> str:
    """Return the pool or namespace whose floating IPs serve a Service; "" if those for all Services do."""
    scope = service.namespace if service.pool is None else service.pool
    return scope if scope in scopes else ""


def _is_helped(given: DemandInput, service: ServiceUse, scope: str) -> bool:
    """Return whether a floating IP of a scope would help a Service: its pool is fipop's, and open to its namespace."""
    if service.pool is None:
        return given.foreign_pools.isdisjoint({service.namespace, scope or "global"})
    allowed = given.pool_namespaces.get(service.pool, {service.pool})
    is_allowed = not allowed.isdisjoint({service.namespace, names.EVERY_NAMESPACE})
    return scope == service.pool and scope not in given.foreign_pools and is_allowed


def _expect(given: DemandInput, floating_ip: FloatingIP) -> tuple[Family, ...]:
    """Return the families that a floating IP without addresses gets."""
    request = read_request(floating_ip)
    return request.wanted(given.families, frozenset()) if isinstance(request, AddressRequest) else ()


def _take(
    free: list[tuple[str, Family]], busy: set[str], service: ServiceUse
) -> tuple[tuple[Family, ...], set[str]]:
    """Take free addresses for a Service, first of busy floating IPs.

    Return the families that it still needs, and the names of the floating IPs.
    """
    missing, taken = [], set[str]()
    for family in service.lacking:
        fitting = (each for each in free if each[1] is family)
        found = min(fitting, key=lambda each: each[0] not in busy, default=None)
        if found is None:
            missing.append(family)
        else:
            free.remove(found)
            busy.add(found[0])
            taken.add(found[0])
    is_content = service.is_flexible and len(missing) < len(service.lacking)
    return () if is_content else tuple(missing), taken


def _admit(given: DemandInput, wants: Sequence[NewFloatingIP]) -> tuple[tuple[NewFloatingIP, ...], str]:
    """Return what is made, with names, and the limit that forbids the rest."""
    makes: list[NewFloatingIP] = []
    free_names, room = _name(given), given.room
    for want in wants:
        if len(given.floating_ips) + len(makes) >= given.per_guest.max_allocate:
            return tuple(makes), "maxAllocate"
        name = next(free_names)
        is_back = want.addresses or name in given.former.values()
        is_single = want.service is None or want.service.is_flexible
        needed = 0 if is_back else 1 if is_single else len(want.families)
        if room is not None and needed > room:
            return tuple(makes), "maxPerGuest"
        room = room - needed if room is not None else None
        makes.append(replace(want, name=name))
    return tuple(makes), ""


def _name(given: DemandInput) -> Iterator[str]:
    """Yield names, the lowest first: who had an address under one gets it back from quarantine."""
    number = 1
    while True:
        number += 1
        name = f"{given.cluster}{names.FLOATING_IP_SUFFIX}-{number}"
        if name not in given.taken:
            yield name


def _list_unused(given: DemandInput, busy: set[str], *, spares: int) -> Iterator[FloatingIP]:
    """Yield the floating IPs of fipop's making that are not needed, in the order in which they are let go.

    That is the youngest of those whose time is over, then those that have been unused for longest.
    """
    left, per_guest = len(given.floating_ips), given.per_guest

    def count_seconds(each: FloatingIP) -> float:
        return min(given.idle_seconds.get(each.uid, 0.0), per_guest.release_after_seconds)

    youngest_first = given.floating_ips[::-1]
    for each in sorted(youngest_first, key=lambda each: -count_seconds(each)):
        is_spare = not each.spec.scope
        is_kept = each.name in busy or each.is_deleting or (is_spare and spares <= per_guest.pre_allocate)
        if each.is_made_for_services and not is_kept and left > per_guest.min_allocate:
            left, spares = left - 1, spares - is_spare
            yield each


# What Services use and wait for


def read_classes(values: Mapping[str, Any]) -> frozenset[str]:
    """Return the classes that the cloud provider serves by the values of its chart; "" stands for none."""
    extra = values.get("extraEnv")
    entries = map(as_mapping, as_list(extra))
    env = {**as_mapping(extra), **{as_text(each.get("name")): each.get("value") for each in entries}}
    if not parse_go_bool(str(env.get("KUBEVIP_ENABLE_LOADBALANCERCLASS"))):
        return frozenset({""})
    return split_classes(as_text(env.get("KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME")))


def read_uses(services: Iterable[Service], classes: frozenset[str], now: datetime) -> tuple[ServiceUse, ...]:
    """Return the Services that use addresses, or have waited for some; the cloud provider serves `classes`.

    Raises: TooManyAddressesError.
    """
    ripe = now - WAIT
    return tuple(
        each if each.since is None or each.since <= ripe else replace(each, lacking=())
        for each in (read_use(service, classes=classes) for service in services)
        if each is not None
    )


def read_use(service: Service, *, classes: frozenset[str]) -> ServiceUse | None:
    """Return how a Service uses addresses; None if it uses none and waits for none. Raises: TooManyAddressesError."""
    parts = find_in_use((), (service,), announces_on=False).parts
    addresses = frozenset(Address(each.part.family, each.part.first) for each in parts if not each.is_pool)
    since = _find_since(service) if _is_served(service, classes) else None
    if not addresses and since is None:
        return None
    wanted = service.families if service.policy is not FamilyPolicy.SINGLE_STACK else service.families[:1]
    has = {each.family for each in addresses}
    return ServiceUse(
        namespace=read_name(service.namespace),
        name=read_name(service.name),
        pool=service.pool,
        addresses=addresses,
        lacking=tuple(each for each in wanted if each not in has) if since is not None else (),
        is_flexible=service.policy is FamilyPolicy.PREFER_DUAL_STACK,
        since=since,
    )


def _is_served(service: Service, classes: frozenset[str]) -> bool:
    is_ours = service.is_load_balancer and service.class_name in classes
    return is_ours and not (service.is_ignored or service.is_deleting)


def _find_since(service: Service) -> datetime | None:
    """Return since when a Service waits for an address of its pool; None if it does not."""
    created = parse_time(service.created)
    if service.finding is not None:
        found = parse_time(service.finding_since)
        is_full = service.finding.reason in _FULL
        return max(created, found) if created is not None and found is not None and is_full else None
    return None if service.annotation or service.request or service.ingress else created
