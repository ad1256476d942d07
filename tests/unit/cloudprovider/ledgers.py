"""Ledgers of a guest, and a store of them."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from fipop.cloudprovider.ledger import (
    NAME,
    NAMESPACE,
    Entry,
)
from fipop.cloudprovider.ledger_store import LedgerStore
from fipop.ipam.addresses import Address, parse_address
from fipop.kube.resources import CONFIG_MAPS
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
