"""The ledger where it is kept: made where it is missing, changed at its version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fipop.cloudprovider.ledger import (
    Entry,
    Ledger,
    parse_ledger,
    render_ledger,
)
from fipop.errors import ApiForbiddenError, ApiUnreachableError
from fipop.ipam.addresses import Address
from fipop.kube.resources import SERVICES
from tests.unit.cloudprovider.ledgers import KEY, WEB, Prompt, X, Y, build_store, stored


def lost() -> ApiUnreachableError:
    return ApiUnreachableError(verb="replace", kind="ConfigMap", reason="ConnectionCut")


def build_service(uid: str = "u-web", *, a: str = "", name: str = "web") -> dict[str, Any]:
    annotations = {"kube-vip.io/loadbalancerIPs": a} if a else {}
    return {
        "metadata": {"namespace": "shop", "name": name, "uid": uid, "annotations": annotations},
        "spec": {"type": "LoadBalancer"},
    }


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


async def test_an_older_version_that_a_watch_shows_late_does_not_come_back() -> None:
    memory, _, store = await stored()
    before = memory.objects[KEY]
    made = await store.swap(lambda ledger: ledger.having([(X, WEB)]))
    store.take(before)
    assert store._known == made
    store.take(None)
    assert store._known is None
