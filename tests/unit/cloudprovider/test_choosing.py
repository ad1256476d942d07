"""Which addresses Services get in one round: the oldest first, what they have stays, what is out of date is left."""

from typing import Any

from fipop.cloudprovider.choosing import Round, in_order, is_entered
from fipop.cloudprovider.ledger import Entry, Ledger
from fipop.cloudprovider.occupancy import Occupancy, ServiceStore
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.services import State, parse_service
from fipop.ipam.addresses import format_address
from tests.unit.cloudprovider.services import build

EMPTY = Ledger(uid="l", version="1")


class Chosen:
    """One round over Services that a test describes; `pool` is the data of the ConfigMap."""

    def __init__(self, *services: dict[str, Any], ledger: Ledger = EMPTY, **pool: str) -> None:
        self.store: ServiceStore = ServiceStore(parse_service, kind="Service")
        self.occupancy = Occupancy(self.store)
        self.occupancy.take_keys(PoolKeys({key.replace("_", "-"): value for key, value in pool.items()}))
        self.occupancy.take_ledger(ledger)
        for each in services:
            change = self.store.put(each)
            assert change is not None
            self.occupancy.take_service(change)
        self.round = Round(occupancy=self.occupancy)
        self.before = ledger

    def serve(self, **states: State) -> Ledger:
        waiting = [(each, states.get(each.name, State.NEW)) for each in self.store.all()]
        return self.round.serve(in_order(waiting), self.before)

    @property
    def addresses(self) -> dict[str, list[str]]:
        return {each.service.name: list(map(format_address, each.addresses)) for each in self.round.chosen}

    @property
    def refused(self) -> dict[str, str]:
        return {each.service.name: each.reason for each in self.round.refused}


def service(
    name: str, *, created: str = "2026-01-01T00:00:00Z", version: str = "7", **spec: Any
) -> dict[str, Any]:
    meta = {"name": name, "uid": f"u-{name}", "creationTimestamp": created, "resourceVersion": version}
    return build(meta=meta, **spec)


def test_the_oldest_is_first_and_who_comes_too_late_is_told_why() -> None:
    found = Chosen(
        service("young", created="2026-03-01T00:00:00Z"), service("old"), cidr_global="10.0.0.1/32"
    )
    ledger = found.serve()
    assert found.addresses == {"old": ["10.0.0.1"]}
    assert found.refused == {"young": "PoolFull"}
    assert {uid for each in ledger.entries.values() for uid in each} == {"u-old"}


def test_without_a_pool_or_with_one_that_cannot_be_read_it_waits() -> None:
    found = Chosen(service("web"), cidr_other="10.0.0.1/32")
    assert found.serve() is EMPTY
    assert found.refused == {"web": "NoPool"}
    broken = Chosen(service("web"), cidr_shop="nonsense")
    broken.serve()
    assert broken.refused == {"web": "PoolUnusable"}


def test_dhcp_needs_no_entry() -> None:
    found = Chosen(service("web"), cidr_global="0.0.0.0/32")
    assert found.serve() is EMPTY
    assert found.addresses == {"web": ["0.0.0.0"]}


def test_an_address_that_a_user_asks_for_is_taken_or_told_whose_it_is() -> None:
    moving = service("web", a="10.0.0.1", l="10.0.0.2", marked=True, finalized=True)
    found = Chosen(moving, cidr_global="10.0.0.0/29")
    found.serve(web=State.MOVING)
    assert found.addresses == {"web": ["10.0.0.2"]}
    holder = service("holder", a="10.0.0.2", l="10.0.0.2", marked=True, finalized=True)
    taken = Chosen(moving, holder, cidr_global="10.0.0.0/29")
    taken.round.serve([(each, State.MOVING) for each in taken.store.all() if each.name == "web"], EMPTY)
    assert taken.refused == {"web": "AddressInUse"}
    assert "shop/holder" in taken.round.refused[0].message


def entry(version: str) -> Entry:
    return Entry(
        uid="u-web", version=version, namespace="shop", name="web", ports=frozenset(), consents=False
    )


def test_what_the_ledger_gave_last_is_given_again() -> None:
    first = Chosen(service("web"), cidr_global="10.0.0.0/29", search_order="desc")
    first.serve()
    (address,) = first.round.chosen[0].addresses
    ledger = Ledger(uid="l", version="1", entries={address: {"u-web": entry("5")}})
    again = Chosen(service("web"), ledger=ledger, cidr_global="10.0.0.0/29")
    again.serve()
    assert again.round.chosen[0].addresses == (address,)


def test_a_service_that_somebody_chose_for_at_a_later_version_is_left() -> None:
    later = Chosen(service("web"), cidr_global="10.0.0.0/29")
    later.serve()
    (address,) = later.round.chosen[0].addresses
    ledger = Ledger(uid="l", version="1", entries={address: {"u-web": entry("9")}})
    found = Chosen(service("web", version="7"), ledger=ledger, cidr_global="10.0.0.0/29")
    assert found.serve() is ledger
    assert not found.round.chosen
    assert not found.round.refused


def test_for_a_service_that_carries_the_address_the_version_of_its_entry_does_not_matter() -> None:
    assert is_entered(entry("5"), entry("7"), is_carried=True)
    assert not is_entered(entry("5"), entry("7"), is_carried=False)
    assert not is_entered(None, entry("7"), is_carried=True)
