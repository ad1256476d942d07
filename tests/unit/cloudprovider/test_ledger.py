"""The ledger of a guest's addresses as a value."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fipop.cloudprovider.ledger import (
    Ledger,
    may_remove,
    parse_ledger,
    render_ledger,
)
from fipop.ipam.addresses import Address, Family
from tests.unit.cloudprovider.ledgers import KEY, WEB, X, Y, stored


def test_what_is_written_is_read_again() -> None:
    ledger = Ledger(uid="u", version="3", is_open=True).having([(X, WEB), (Y, replace(WEB, is_chosen=False))])
    body = render_ledger(ledger)
    assert list(body["data"]) == ["10.0.0.1", "20010db8000000000000000000000001"]
    assert (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) == ("u", "3")
    assert parse_ledger(body) == ledger


def test_what_nobody_here_can_read_stays_as_it_is() -> None:
    data = {"10.0.0.1": "nonsense", "note": "hello", "10.0.0.2": '[{"uid": "x"}]', "10.0.0.3": "[]"}
    found = parse_ledger({"metadata": {"uid": "u", "resourceVersion": "3"}, "data": data})
    assert set(found.unread) == {"10.0.0.1", "note", "10.0.0.2"}
    assert {**render_ledger(found)["data"]} == data


def test_a_tenant_is_added_changed_and_removed_beside_others() -> None:
    other = replace(WEB, uid="u-other", name="other")
    ledger = Ledger(uid="u", version="3").having([(X, WEB), (X, other), (Y, WEB)])
    assert list(ledger.entries[X]) == ["u-web", "u-other"]
    newer = ledger.having([(X, replace(WEB, version="9"))])
    assert newer.entries[X]["u-web"].version == "9"
    assert newer.by_owner()["u-web"] == {X: replace(WEB, version="9"), Y: WEB}
    assert newer.without([(X, "u-web"), (Y, "u-web"), (Y, "nobody")]).entries == {X: {"u-other": other}}


def test_a_full_ledger_has_no_room_and_fits_into_an_object() -> None:
    """A ConfigMap may have 1 MiB of keys and values."""
    long = replace(WEB, namespace="n" * 63, name="s" * 63, uid="u" * 36)
    ledger = Ledger(uid="u", version="3")
    many = [(Address(Family.IPV4, number), long) for number in range(6000)]
    fitting = ledger.fitting(many)
    full = ledger.having(fitting)
    assert 3000 < len(fitting) < 6000
    assert full.room < full.cost(*many[-1])
    data = render_ledger(full)["data"]
    assert 800 * 1024 < sum(len(key) + len(text) for key, text in data.items()) < 1024 * 1024
    assert full.having(many[-1:]).size == full.size + full.cost(*many[-1])
    assert full.cost(many[0][0], replace(long, version="12345")) == 4, "in place of the former one"
    assert full.cost(many[0][0], replace(long, uid="other")) < full.cost(*many[-1]), "a tenant more"


def test_hundreds_of_ports_take_little_room_and_are_read_again() -> None:
    ports = frozenset(
        {(80, "TCP"), (80, "UDP"), (443, "TCP")} | {(port, "UDP") for port in range(10_000, 10_250)}
    )
    ledger = Ledger(uid="u", version="3").having([(X, replace(WEB, ports=ports))])
    body = render_ledger(ledger)
    assert len(body["data"]["10.0.0.1"]) < 200
    assert "10000-10249/UDP" in body["data"]["10.0.0.1"]
    assert parse_ledger(body) == ledger


def test_a_ledger_of_millions_of_ports_is_read_as_one_of_few_ports_each() -> None:
    """Who has so many shares with nobody, by what the ledger says, too."""
    text = json.dumps([{"uid": "u", "version": "7", "service": "shop/web", "ports": "1-65535/TCP " * 50}])
    data = {f"10.0.{number // 250}.{number % 250}": text for number in range(1000)}
    found = parse_ledger({"metadata": {"uid": "u", "resourceVersion": "3"}, "data": data})
    assert len(found.entries) == 1000
    assert {each["u"].ports for each in found.entries.values()} == {frozenset()}


@pytest.mark.parametrize(
    "fields",
    [
        {"version": "seven"},
        {"version": "9" * 5000},
        {"version": None},
        {"service": "../web"},
        {"service": "shop/../web"},
        {"service": "shop"},
        {"service": "\ud800/web"},
    ],
)
def test_an_entry_that_no_provider_writes_is_not_read_and_stays(fields: dict[str, str]) -> None:
    text = json.dumps([{"uid": "u", "version": "7", "service": "shop/web"} | fields])
    found = parse_ledger({"metadata": {"uid": "u", "resourceVersion": "3"}, "data": {"10.0.0.1": text}})
    assert found.entries == {}
    assert render_ledger(found)["data"] == {"10.0.0.1": text}


@pytest.mark.parametrize("ports", ["1-9999999999/TCP", "a-b/TCP", "-/TCP", "80"])
def test_ports_that_are_none_are_not_read(ports: str) -> None:
    text = json.dumps([{"uid": "u", "version": "7", "service": "shop/web", "ports": ports}])
    found = parse_ledger({"metadata": {"uid": "u", "resourceVersion": "3"}, "data": {"10.0.0.1": text}})
    assert set(found.unread) == {"10.0.0.1"}


@pytest.mark.parametrize(
    ("live", "may"),
    [
        (None, True),
        ({"metadata": {"uid": "u-again", "resourceVersion": "7"}}, True),
        ({"metadata": {"uid": "u-web", "resourceVersion": "7"}}, False),
        ({"metadata": {"uid": "u-web", "resourceVersion": "9"}}, True),
        (
            {
                "metadata": {
                    "uid": "u-web",
                    "resourceVersion": "9",
                    "annotations": {"kube-vip.io/loadbalancerIPs": "10.0.0.1"},
                }
            },
            False,
        ),
    ],
    ids=["gone", "made again", "still to be written", "changed, without it", "changed, with it"],
)
def test_an_entry_goes_only_where_no_write_that_relies_on_it_can_come(
    live: dict[str, Any] | None, may: bool
) -> None:
    assert may_remove(X, WEB, live, {X: WEB}) is may


async def test_what_may_go_goes() -> None:
    memory, _, store = await stored()
    await store.swap(lambda ledger: ledger.having([(X, WEB), (Y, WEB)]))
    assert await store.prune(lambda ledger: [(X, ledger.entries[X]["u-web"])]) == 1
    assert list(parse_ledger(memory.objects[KEY]).entries) == [Y]
