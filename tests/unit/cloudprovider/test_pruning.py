"""Entries of the ledger that stand for nothing go: suspected ones at once, the rest now and then."""

import asyncio
from collections.abc import Callable, Iterable

from fipop.cloudprovider.ledger import Entry, Ledger
from fipop.cloudprovider.occupancy import ServiceStore
from fipop.cloudprovider.pruning import Pruner
from fipop.cloudprovider.services import parse_service
from fipop.errors import ApiServerError
from fipop.ipam.addresses import Address, parse_address
from tests.harness.background import running, until
from tests.unit.cloudprovider.services import build

X, Y = parse_address("10.0.0.1"), parse_address("10.0.0.2")


def entry(uid: str) -> Entry:
    return Entry(uid=uid, version="7", namespace="shop", name=uid, ports=frozenset(), consents=False)


LEDGER = Ledger(
    uid="l", version="1", entries={X: {"u": entry("u")}, Y: {"gone": entry("gone"), "u": entry("u")}}
)


class Kept:
    """A ledger that takes down what was to go at each pruning."""

    def __init__(self) -> None:
        self.asked: list[set[tuple[Address, str]]] = []
        self.troubles: list[Exception] = []

    async def prune(self, select: Callable[[Ledger], Iterable[tuple[Address, Entry]]]) -> int:
        if self.troubles:
            raise self.troubles.pop()
        found = {(address, each.uid) for address, each in select(LEDGER)}
        self.asked.append(found)
        return len(found)


async def prunings(kept: Kept, pruner: Pruner, count: int) -> None:
    async with running(pruner.run()):
        await until(lambda: len(kept.asked) >= count, "the ledger to be pruned")


def build_pruner() -> tuple[Kept, Pruner]:
    store: ServiceStore = ServiceStore(parse_service, kind="Service")
    store.put(build("10.0.0.1", "10.0.0.1", marked=True, finalized=True))
    kept = Kept()
    return kept, Pruner(kept, store)


async def test_first_everything_is_looked_at_and_what_a_service_carries_stays() -> None:
    kept, pruner = build_pruner()
    await prunings(kept, pruner, 1)
    assert kept.asked == [{(Y, "gone"), (Y, "u")}]


async def test_then_only_what_is_suspected() -> None:
    kept, pruner = build_pruner()
    asyncio.get_running_loop().call_later(0.2, pruner.suspect, "gone")
    await prunings(kept, pruner, 2)
    assert kept.asked[1] == {(Y, "gone")}


async def test_what_failed_is_tried_again() -> None:
    kept, pruner = build_pruner()
    kept.troubles = [ApiServerError(verb="replace", kind="ConfigMap", status=500)]
    await prunings(kept, pruner, 1)
    assert kept.asked == [{(Y, "gone"), (Y, "u")}]
