"""Facts about a floating IP, as values: what a test does not say is as it is if all is well."""

from typing import Any

from fipop.api.models import FloatingIP, Owner, Reservation
from fipop.ipam.addresses import Address, Family, format_address, parse_address
from fipop.ipam.errors import AddressOutOfRangeError, RangeDrainingError, RangeFullError
from fipop.ipam.pool import parse_pool
from fipop.operator.addresses.values import (
    AddressFacts,
    Blocker,
    Facts,
    GuestBinding,
    RangeFacts,
    SpecError,
    address_of,
    blocker_of,
    describe_holder,
    read_request,
)
from fipop.rancher.objects import parse_provisioning_cluster
from fipop.state.claims import read_addresses, reservation_name
from tests.harness.objects import NOW, floating_ip

POOL = "10.0.0.1-10.0.0.50,fd00::1-fd00::50"
BOUND = GuestBinding(
    cluster=parse_provisioning_cluster(
        {
            "metadata": {"name": "demo", "namespace": "fleet", "uid": "uid-demo", "resourceVersion": "1"},
            "spec": {"rkeConfig": {}},
            "status": {"clusterName": "c-m-1"},
        }
    )
)
FREE = ("10.0.0.1", "fd00::1")


def range_facts(
    name: str = "pool",
    text: str = POOL,
    *,
    space: str = "default",
    free: tuple[str, ...] = FREE,
    draining: bool = False,
    **fields: Any,
) -> RangeFacts:
    """Return a range with these addresses to claim next; one that is draining has none."""
    pool = parse_pool(text)
    known: dict[str, Any] = {"restricted": None, "quota": None}
    drains = blocker_of(RangeDrainingError(range_name=name))
    return RangeFacts(
        name=name,
        space=space,
        families=frozenset(pool.families),
        free={family: drains if draining else _free(family, free, name) for family in Family},
        **(known | fields),
    )


def _free(family: Family, free: tuple[str, ...], name: str) -> Address | Blocker:
    found = (each for each in map(parse_address, free) if each.family is family)
    return next(found, blocker_of(RangeFullError(range_name=name, family=family.label)))


def facts_of(
    subject: FloatingIP | None = None,
    *own: Reservation,
    where: RangeFacts | Blocker | None = None,
    pool: str = POOL,
    others: tuple[Reservation, ...] = (),
    **fields: Any,
) -> Facts:
    """Return the facts about a floating IP, by default "web" of a known guest whose range serves everything.

    `pool` is that of the range; `others` are reservations of others.
    """
    subject = subject or floating_ip()
    where = where or range_facts(text=pool)
    try:
        request: Any = read_request(subject)
    except SpecError as error:
        request = where = Blocker(reason="InvalidSpec", message=str(error))
    held = tuple(each for each in own if each.is_held)
    known: dict[str, Any] = {
        "is_live": False,
        "is_inherited": False,
        "owner": Owner(namespace=subject.namespace, name=subject.name, uid=subject.uid, cluster="demo"),
        "fresh": frozenset(each.name for each in own),
        "unsafe_for": {each.name: 0.0 for each in own},
        "binding": BOUND,
        "is_guest_known": True,
        "observation": None,
        "removal": None,
        "is_gate_open": True,
        "written": "",
        "write_backs": 0,
        "now": NOW,
    }
    asked = {
        *read_addresses(subject.status.addresses),
        *read_addresses(subject.ipaddress.split(",")),
        *map(address_of, held),
        *map(parse_address, FREE),
    }
    return Facts(
        floating_ip=subject,
        own=own,
        held=held,
        request=request,
        range=where,
        addresses={
            reservation_name(space, each): _address(space, each, pool, others, _drains(where))
            for each in asked
            for space in ("default", "lab")
        },
        **(known | fields),
    )


def _drains(where: RangeFacts | Blocker) -> Blocker | None:
    """Return why a range that is draining assigns no address; None if it is not."""
    free = where.free.values() if isinstance(where, RangeFacts) else ()
    drains = (each for each in free if isinstance(each, Blocker) and each.reason == "RangeDraining")
    return next(drains, None)


def _address(
    space: str, address: Address, pool: str, others: tuple[Reservation, ...], drains: Blocker | None
) -> AddressFacts:
    name = reservation_name(space, address)
    text = format_address(address)
    outside = AddressOutOfRangeError(address=text, range_name="pool", pool_text=pool, reason="is not in it")
    refused = None if address in parse_pool(pool) else blocker_of(outside)
    holder = next((each for each in others if each.name == name), None)
    return AddressFacts(refused=drains or refused, taken=describe_holder(holder) if holder else None)
