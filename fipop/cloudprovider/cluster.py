"""What the leader knows of the cluster: the keys, who uses which address, and which of its writes are under way.

A write without an answer stays under way until the Service has another version: by then it was done, or fails. Until
then its addresses are in use. What changes here changes something for other users of the same addresses: each method
returns the uids of those Services.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fipop.api.service import Service
from fipop.cloudprovider.allocate import ServiceRequest
from fipop.cloudprovider.needs import Need, find_asked, find_need
from fipop.cloudprovider.pools import NamespacePool, PoolKeys
from fipop.cloudprovider.usage import Usage, User
from fipop.ipam.addresses import DHCP_ADDRESSES, Address, Family, format_address


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSample:
    """One family of one pool, by the key that it stands in."""

    key: str
    family: str
    total: int
    used: int


class UnderWay(NamedTuple):
    """Writes of a Service without an answer: the version that they are tested on, and their addresses."""

    version: str = ""
    addresses: frozenset[Address] = frozenset()


class Cluster:
    """Services of `classes` are served; `identity` is that of this leader, `namespace` that of its ConfigMap."""

    def __init__(self, *, classes: frozenset[str], identity: str, namespace: str) -> None:
        self.keys = PoolKeys({})
        self.usage = Usage()
        self._classes = classes
        self._identity = identity
        self._namespace = namespace
        self._under_way: dict[str, UnderWay] = {}
        self._machines: dict[User, frozenset[Address]] = {}

    def enter(self, service: Service) -> frozenset[str]:
        """Take in what a Service has now."""
        writes = self.find_writes(service)
        if writes.version != service.version:
            self._under_way.pop(service.uid, None)
            writes = UnderWay()
        return self.usage.enter(self.build_user(service), service.used | writes.addresses - {*DHCP_ADDRESSES})

    def remove(self, service: Service) -> frozenset[str]:
        """Take in that a Service is gone."""
        self._under_way.pop(service.uid, None)
        return self.usage.enter(self.build_user(service), ())

    def enter_machines(self, found: Mapping[User, frozenset[Address]]) -> frozenset[str]:
        """Take in which machines there are now."""
        gone = dict.fromkeys(self._machines.keys() - found.keys(), frozenset[Address]())
        self._machines = dict(found)
        concerned = (self.usage.enter(user, each) for user, each in {**gone, **found}.items())
        return frozenset[str]().union(*concerned)

    def find_writes(self, service: Service) -> UnderWay:
        """Return the writes of a Service that are under way."""
        return self._under_way.get(service.uid, UnderWay())

    def put_writes(self, service: Service, writes: UnderWay) -> frozenset[str]:
        """Take in that these writes of a Service are under way, and no others."""
        self._under_way[service.uid] = writes
        return self.enter(service)

    def find_need(self, service: Service) -> Need:
        """Return what a Service needs."""
        return find_need(service, self._classes)

    def is_served(self, service: Service) -> bool:
        """Return whether a Service gets addresses from this provider."""
        return self._is_announced(service) and not service.is_deleting

    def _is_announced(self, service: Service) -> bool:
        """Return whether a Service is one of this provider, until it is gone."""
        is_ours = service.is_load_balancer and service.class_name in self._classes
        return is_ours and not service.is_ignored

    def is_open(self, service: Service) -> bool:
        """Return whether a former leader could still write an address into a Service.

        It lacks an address that its pool could assign, or asks for another one, and has no stamp of this leader.
        """
        if self.find_need(service) is not Need.ASSIGN or service.leader == self._identity:
            return False
        request, pool = self.build_request(service), self.pool_of(service)
        if request.asked is not None or not request.kept:
            return True
        served = set(Family if pool is None or pool.problem or pool.dhcp else pool.families)
        lacking = served.intersection(request.needed) - {each.family for each in request.kept}
        return bool(lacking) and not any(each in DHCP_ADDRESSES for each in request.kept)

    def pool_of(self, service: Service) -> NamespacePool | None:
        """Return the pool that a Service gets its addresses from."""
        return self.keys.pool_of(service.namespace, service.pool)

    def find_lease(self, service: Service) -> str:
        """Return the Lease by which one node announces all Services of an address; "" if fipop names none for it.

        They begin to have one if fipop wrote the address of one of them, and if they may share it: so taking over
        writes no Service. They have it while they are several, and fipop can name one for each.
        """
        user = self.build_user(service)
        if not user.lease:
            return ""
        address = next(each for each in service.annotated if each.family is Family.IPV4)
        others = [each for each in self.usage.find_others(address, user) if each.is_announced]
        leases = {each.lease for each in others}
        can_stay = service.has_lease_as_noted and None not in leases
        has_noted = any(each.is_noted for each in (user, *others))
        can_begin = leases == {user.lease} and has_noted and not self.usage.find_conflicting(address, user)
        return user.lease if others and (can_stay or can_begin) else ""

    def _name_lease(self, service: Service) -> str | None:
        found = [each for each in service.annotated if each.family is Family.IPV4]
        name = f"{self._namespace}/kubevip-{format_address(found[0])}" if found else ""
        is_free = service.has_lease_as_noted or service.lease_name in ("", name)
        if len(found) > 1 or not is_free or service.is_local or not self._is_announced(service):
            return None
        return name

    def build_user(self, service: Service) -> User:
        """Return a Service as a user of addresses."""
        name, group = f"Service {'/'.join(service.key)}", tuple[str, ...]()
        if service.group:
            group = service.namespace, self.keys.scopes_of(service.namespace, service.pool)[-1], service.group
        shares = bool(group) or self.keys.allows_sharing(service.namespace, service.pool)
        return User(
            uid=service.uid,
            name=name,
            ports=service.ports,
            shares=shares,
            group=group,
            lease=self._name_lease(service),
            is_announced=service.is_load_balancer or service.may_be_announced_on,
            is_noted=service.is_as_noted,
            is_local=service.is_local,
            pods=(service.namespace, service.selector),
        )

    def build_request(self, service: Service, sticky: tuple[Address, ...] = ()) -> ServiceRequest:
        """Return what a Service asks for; `sticky` is what one of its name had before."""
        asked = find_asked(service)
        # One whose user took `spec.loadBalancerIP` off, from which the annotation was made, begins again.
        is_fresh = service.is_as_noted and not service.is_marked
        kept = () if is_fresh else service.annotated
        former = () if is_fresh else (*service.noted, *service.announced)
        return ServiceRequest(
            user=self.build_user(service),
            policy=service.policy,
            families=service.families,
            kept=tuple(each for each in kept if asked is None or each.family is not asked.family),
            preferred=(*sorted(self.find_writes(service).addresses), *former, *sticky),
            asked=asked,
            pool=service.pool,
        )

    def sample_pools(self) -> Iterator[PoolSample]:
        """Yield how many addresses each pool has, by family, and how many of them are in use."""
        in_use = sorted(self.usage.addresses())
        taken = {family: [each.value for each in in_use if each.family is family] for family in Family}
        for pool in self.keys.pools:
            for family in pool.families:
                addresses, values = pool.addresses.of(family), taken[family]
                spans = ((one.first, one.last) for one in addresses.intervals)
                near = (values[bisect_left(values, low) : bisect_right(values, high)] for low, high in spans)
                used = len({value for some in near for value in some if value in addresses})
                yield PoolSample(key=pool.key, family=family.label, total=addresses.count, used=used)
