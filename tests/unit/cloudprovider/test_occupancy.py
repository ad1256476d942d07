"""Who has which address in a guest: by the ledger, and by what Services carry."""

from typing import Any

from fipop.cloudprovider.ledger import Entry, Ledger
from fipop.cloudprovider.occupancy import Occupancy, ServiceStore, is_shared
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.services import parse_service
from fipop.ipam.addresses import parse_address
from tests.unit.cloudprovider.services import build

X = parse_address("10.0.0.1")
ENTRY = Entry(
    uid="u", version="7", namespace="shop", name="web", ports=frozenset({(53, "UDP")}), consents=False
)


def occupancy(*services: dict[str, Any]) -> tuple[Occupancy, ServiceStore]:
    store: ServiceStore = ServiceStore(parse_service, kind="Service")
    found = Occupancy(store)
    for each in services:
        take(found, store, each)
    return found, store


def take(found: Occupancy, store: ServiceStore, obj: dict[str, Any]) -> None:
    change = store.put(obj)
    assert change is not None
    found.take_service(change)


def other(**meta: str) -> dict[str, Any]:
    return build(
        "10.0.0.1", "10.0.0.1", marked=True, finalized=True, meta={"name": "other", "uid": "o", **meta}
    )


def test_what_a_service_carries_counts_whoever_wrote_it_and_goes_with_it() -> None:
    found, store = occupancy(build("10.0.0.1", "10.0.0.1", marked=True, finalized=True))
    assert [each.owner for each in found.sharing.users(X)] == ["u"]
    take(found, store, build(meta={"resourceVersion": "8"}))
    assert not found.sharing.users(X)


def test_an_entry_counts_beside_the_service_for_a_write_may_be_under_way() -> None:
    found, _ = occupancy(build())
    found.take_ledger(Ledger(uid="l", version="1", entries={X: {"u": ENTRY}}))
    assert [each.owner for each in found.sharing.users(X)] == ["u"]
    assert found.entries_of("u") == {X: ENTRY}
    assert found.take_ledger(None) == ({"u"}, frozenset()), "whose address is gone from there is told"
    assert not found.sharing.users(X)


def test_two_may_share_where_their_ports_differ_and_their_namespaces_allow_it() -> None:
    found, _ = occupancy(build("10.0.0.1", "10.0.0.1", marked=True, finalized=True), other())
    assert found.has_clash("u", X)
    assert found.names({"o", "nobody"}) == "nobody, shop/other"
    assert is_shared(found.sharing, X)
    found.take_keys(PoolKeys({"allow-share-shop": "true"}))
    assert found.has_clash("u", X), "both want port 80"


def test_of_many_who_have_an_address_the_first_are_named() -> None:
    found, _ = occupancy()
    named = found.names([f"u{number:03}" for number in range(500)])
    assert named.startswith("u000, u001, ")
    assert named.endswith(" and others")
    assert len(named) < 200


def test_a_service_that_only_the_ledger_knows_has_its_name() -> None:
    found, _ = occupancy()
    found.take_ledger(Ledger(uid="l", version="1", entries={X: {"u": ENTRY}}))
    assert found.names(["u"]) == "shop/web"
