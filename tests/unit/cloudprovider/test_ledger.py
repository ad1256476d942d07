"""The ledger of a guest, and when an entry may go."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fipop.cloudprovider.ledger import (
    MAX_ENTRIES,
    NAME,
    NAMESPACE,
    Entry,
    Ledger,
    may_remove,
    parse_ledger,
    render_ledger,
)
from fipop.cloudprovider.ledger_store import LedgerStore
from fipop.errors import ApiForbiddenError, ApiUnreachableError
from fipop.ipam.addresses import Address, Family, parse_address
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from tests.harness.memory import Memory, MemoryClient

X, Y = parse_address("10.0.0.1"), parse_address("2001:db8::1")
KEY = (CONFIG_MAPS.plural, NAMESPACE, NAME)
WEB = Entry(
    uid="u-web",
    version="7",
    namespace="shop",
    name="web",
    ports=frozenset({(80, "TCP"), (53, "UDP")}),
    consents=True,
)


class Prompt(MemoryClient):
    """Answers without a pause; `troubles` come one by one, before or after a write."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory, Random(1), trouble=0.0)
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        self.on_write: list[Any] = []

    async def _before(self, verb: str, *_: object) -> None:
        if verb == "replace":
            for act in self.on_write:
                act()
            self.on_write.clear()
            if self.before:
                raise self.before.pop()

    async def _after(self, *arguments: Any) -> Any:
        if arguments[0] == "replace" and self.after:
            raise self.after.pop()
        return json.loads(json.dumps(arguments[-1]))


def lost() -> ApiUnreachableError:
    return ApiUnreachableError(verb="replace", kind="ConfigMap", reason="ConnectionCut")


def build_service(uid: str = "u-web", *, a: str = "", name: str = "web") -> dict[str, Any]:
    annotations = {"kube-vip.io/loadbalancerIPs": a} if a else {}
    return {
        "metadata": {"namespace": "shop", "name": name, "uid": uid, "annotations": annotations},
        "spec": {"type": "LoadBalancer"},
    }


def build_store(client: Prompt) -> LedgerStore:
    async def nothing() -> list[tuple[Address, Entry]]:
        return []

    return LedgerStore(client, carried=nothing, listener=lambda ledger: ledger)


async def stored() -> tuple[Memory, Prompt, LedgerStore]:
    memory = Memory()
    client = Prompt(memory)
    store = build_store(client)
    await store.read()
    return memory, client, store


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
    many = [(Address(Family.IPV4, number), WEB) for number in range(MAX_ENTRIES)]
    ledger = Ledger(uid="u", version="3").having(many)
    assert ledger.room == 0
    assert Ledger(uid="u", version="3").having(many[1:]).room == 1
    assert len(json.dumps(render_ledger(ledger))) < 1024 * 1024


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
    assert may_remove(X, WEB, live) is may


async def test_the_ledger_is_made_where_it_is_missing_and_swapped_at_its_version() -> None:
    memory, client, store = await stored()
    await store.swap(lambda ledger: ledger.having([(X, WEB)]))
    assert parse_ledger(memory.objects[KEY]).entries == {X: {"u-web": WEB}}
    other = build_store(client)
    await other.swap(lambda ledger: ledger.having([(Y, WEB)]))
    seen: list[int] = []

    def change(ledger: Ledger) -> Ledger:
        seen.append(len(ledger.entries))
        return ledger.without([(X, "u-web")])

    await store.swap(change)
    assert seen == [1, 2], "somebody else came first: it is decided again on what is there"
    assert parse_ledger(memory.objects[KEY]).entries == {Y: {"u-web": WEB}}


async def test_a_change_that_changes_nothing_writes_nothing() -> None:
    memory, _, store = await stored()
    before = memory.objects[KEY]
    await store.swap(lambda ledger: ledger)
    assert memory.objects[KEY] == before


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_swap_whose_answer_is_lost_is_looked_up(is_done: bool) -> None:
    memory, client, store = await stored()
    (client.after if is_done else client.before).append(lost())
    calls: list[int] = []

    def change(ledger: Ledger) -> Ledger:
        calls.append(1)
        return ledger.having([(X, WEB)])

    made = await store.swap(change)
    assert made.entries == parse_ledger(memory.objects[KEY]).entries == {X: {"u-web": WEB}}
    assert len(calls) == (1 if is_done else 2)


async def test_what_is_refused_is_told() -> None:
    _, client, store = await stored()
    client.before.append(ApiForbiddenError(verb="replace", kind="ConfigMap", status=403))
    with pytest.raises(ApiForbiddenError):
        await store.swap(lambda ledger: ledger.having([(X, WEB)]))


async def test_nothing_is_removed_by_a_ledger_that_changed_since_it_was_read() -> None:
    """A provider entered the address anew, for the version that it read, while this one looked at the Service."""
    memory, client, store = await stored()
    await store.swap(lambda ledger: ledger.having([(X, WEB)]))
    service = memory.put((SERVICES.plural, "shop", "web"), build_service())
    uid = service["metadata"]["uid"]
    await store.swap(lambda ledger: ledger.without([(X, "u-web")]).having([(X, replace(WEB, uid=uid))]))
    other = build_store(Prompt(memory))
    entry = replace(WEB, uid=uid, version=service["metadata"]["resourceVersion"])
    again = render_ledger((await other.read()).having([(X, entry)]))
    client.on_write.append(lambda: memory.put(KEY, again))

    def suspects(ledger: Ledger) -> list[tuple[Address, Entry]]:
        return [(X, ledger.entries[X][uid])]

    assert await store.prune(suspects) == 0
    assert parse_ledger(memory.objects[KEY]).entries[X][uid] == entry
    assert await store.prune(suspects) == 0, "now it is the version that may still be written"


async def test_what_may_go_goes() -> None:
    memory, _, store = await stored()
    await store.swap(lambda ledger: ledger.having([(X, WEB), (Y, WEB)]))
    assert await store.prune(lambda ledger: [(X, ledger.entries[X]["u-web"])]) == 1
    assert list(parse_ledger(memory.objects[KEY]).entries) == [Y]


async def test_an_older_version_that_a_watch_shows_late_does_not_come_back() -> None:
    memory, _, store = await stored()
    before = memory.objects[KEY]
    made = await store.swap(lambda ledger: ledger.having([(X, WEB)]))
    store.take(before)
    assert store._known == made
    store.take(None)
    assert store._known is None
