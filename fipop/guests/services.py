"""Which floating IPs a guest cluster needs for its Services: values in, values out.

A floating IP is busy if a Service uses one of its addresses, or waits for one that it has free. Each Service that waits
beyond that wants another floating IP; then `preAllocate` are not busy, and there are `minAllocate` in all. At most
`maxAllocate` are made, within `maxPerGuest`. One of fipop's making that is not busy, and not wanted, is let go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fipop.addresses.claims import read_addresses
from fipop.addresses.request import AddressRequest, read_request
from fipop.api import names
from fipop.api.conditions import ConditionType, Finding, Verdict
from fipop.api.objects import EPOCH, FloatingIP, PerGuest
from fipop.guests.service_uses import ServiceUse
from fipop.ipam.addresses import Address, Family

MOST_NAMED = 3
"""How many Services that wait a message names."""
MET = Finding(verdict=Verdict.TRUE, reason="DemandMet", message="No Service waits for another FloatingIP.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A floating IP to make."""

    service: ServiceUse | None = None
    """The Service that waits for it; None for a spare one."""
    namespace: str = ""
    """The namespace whose Services can use it; "" for all."""
    families: tuple[Family, ...] = ()
    """Empty for those that the range has."""
    addresses: tuple[Address, ...] = ()
    """Those of a floating IP that is gone, and that Services use."""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do for the Services of a guest cluster."""

    makes: tuple[Want, ...] = ()
    lets_go: FloatingIP | None = None
    busy: frozenset[str] = frozenset()
    """The names of the floating IPs that Services use, or wait for."""
    unserved: tuple[Want, ...] = ()
    """What is not made, for Services."""
    waiting: tuple[ServiceUse, ...] = ()
    """The Services for which there is no floating IP that has an address."""
    limit: str = ""
    """The field of the range that forbids it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
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
    former: Mapping[Address, str] = field(default_factory=dict)
    """The addresses of the guest cluster that are in quarantine, with the names of their floating IPs."""
    room: int | None = None
    """How many more addresses `maxPerGuest` allows, beside those in quarantine; None without it."""
    idle_seconds: Mapping[str, float] = field(default_factory=dict)
    """For how long no Service has used a floating IP, by its uid."""


def plan_floating_ips(seen: Seen) -> Plan:
    """Return which floating IPs to make, and which one to let go."""
    wants, busy, waiting = _find_wants(seen)
    per_guest, number = seen.per_guest, len(seen.floating_ips)
    spare = [each for each in seen.floating_ips if each.name not in busy and not each.spec.service_namespace]
    if "global" not in seen.foreign_pools:
        missing = max(per_guest.pre_allocate - len(spare), per_guest.min_allocate - number - len(wants), 0)
        wants += [Want()] * missing
    makes, limit = _admit(seen, wants)
    unserved = tuple(each for each in wants[len(makes) :] if each.service is not None)
    return Plan(
        makes=makes,
        lets_go=None if makes else _find_idle(seen, busy, spares=len(spare)),
        busy=frozenset(busy),
        unserved=unserved,
        waiting=waiting,
        limit=limit if unserved else "",
    )


def judge_demand(seen: Seen, plan: Plan, range_name: str) -> Finding:
    """Return whether all Services that wait have a floating IP, or get one."""
    if plan.unserved:
        services = [str(each.service) for each in plan.unserved]
        more = f" and {len(services) - MOST_NAMED} more" if len(services) > MOST_NAMED else ""
        message = (
            f'Range "{range_name}" allows guest cluster "{seen.cluster}" no more FloatingIPs ({plan.limit}); '
            f"{len(seen.former)} of its addresses are in quarantine. Services wait: "
            f"{', '.join(services[:MOST_NAMED])}{more}. Delete unused Services, or raise {plan.limit}."
        )
        return Finding(verdict=Verdict.FALSE, reason="LimitReached", message=message)
    for each in seen.floating_ips:
        for condition in (
            each.status.conditions if each.name in plan.busy and not each.status.addresses else ()
        ):
            if condition.type == ConditionType.ALLOCATED and not condition.is_true:
                reason = "LimitReached" if condition.reason == "QuotaExceeded" else condition.reason
                return Finding(verdict=Verdict.FALSE, reason=reason, message=condition.message)
    return MET


def _find_wants(seen: Seen) -> tuple[list[Want], set[str], tuple[ServiceUse, ...]]:
    """Return what Services want beside the floating IPs that there are, and the names of those that are busy.

    And the Services that wait: those for which there is no floating IP that has an address.
    """
    in_use = {address: each for each in seen.services for address in each.addresses}
    free: defaultdict[str, list[tuple[str, Family]]] = defaultdict(list)
    busy, named = set(), set[Address]()
    for each in seen.floating_ips:
        has = read_addresses(each.status.addresses or each.spec.ipaddress.split(","))
        named |= has
        families = [one.family for one in sorted(has) if one not in in_use] if has else _expect(seen, each)
        free[each.spec.service_namespace] += [(each.name, family) for family in families]
        if any(one in in_use for one in has):
            busy.add(each.name)
    gone: defaultdict[str, list[Address]] = defaultdict(list)
    for address in sorted((seen.former.keys() & in_use.keys()) - named):
        gone[seen.former[address]].append(address)

    def find_namespace(service: ServiceUse) -> str:
        return service.namespace if service.namespace in free else ""

    wants = []
    for addresses in gone.values():
        service = in_use[addresses[0]]
        wants.append(Want(service=service, namespace=find_namespace(service), addresses=tuple(addresses)))
    without = {each.name for each in seen.floating_ips if not each.status.addresses}
    waiting: list[ServiceUse] = []
    needy = [each for each in seen.services if each.lacking]
    for service in sorted(needy, key=lambda each: (each.since or EPOCH, str(each))):
        namespace = find_namespace(service)
        if not seen.foreign_pools.isdisjoint({service.namespace, namespace or "global"}):
            continue  # no floating IP would help
        lacking, taken = _take(free[namespace], busy, service)
        if lacking:
            wants.append(Want(service=service, namespace=namespace, families=lacking))
        if lacking or taken & without:
            waiting.append(service)
    return wants, busy, tuple(waiting)


def _expect(seen: Seen, floating_ip: FloatingIP) -> tuple[Family, ...]:
    """Return the families that a floating IP without addresses gets."""
    request = read_request(floating_ip)
    return request.wanted(seen.families, frozenset()) if isinstance(request, AddressRequest) else ()


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


def _admit(seen: Seen, wants: Sequence[Want]) -> tuple[tuple[Want, ...], str]:
    """Return what is made, with names, and the limit that forbids the rest."""
    makes: list[Want] = []
    free_names, room = _name(seen), seen.room
    for want in wants:
        if len(seen.floating_ips) + len(makes) >= seen.per_guest.max_allocate:
            return tuple(makes), "maxAllocate"
        name = next(free_names)
        is_back = want.addresses or name in seen.former.values()
        is_single = want.service is None or want.service.is_flexible
        needed = 0 if is_back else 1 if is_single else len(want.families)
        if room is not None and needed > room:
            return tuple(makes), "maxPerGuest"
        room = room - needed if room is not None else None
        makes.append(replace(want, name=name))
    return tuple(makes), ""


def _name(seen: Seen) -> Iterator[str]:
    """Yield names, the lowest first: who had an address under one gets it back from quarantine."""
    number = 1
    while True:
        number += 1
        name = f"{seen.cluster}{names.FLOATING_IP_SUFFIX}-{number}"
        if name not in seen.taken:
            yield name


def _find_idle(seen: Seen, busy: set[str], *, spares: int) -> FloatingIP | None:
    """Return the youngest floating IP of fipop's making that is not needed."""
    if len(seen.floating_ips) <= seen.per_guest.min_allocate:
        return None
    for each in reversed(seen.floating_ips):
        is_idle = seen.idle_seconds.get(each.uid, 0.0) >= seen.per_guest.release_after_seconds
        is_needed = each.name in busy or (
            not each.spec.service_namespace and spares <= seen.per_guest.pre_allocate
        )
        if each.is_made_for_services and is_idle and not is_needed and not each.is_deleting:
            return each
    return None
