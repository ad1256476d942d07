"""Random worlds of one provider: python -m tests.provider.worlds [N].

Each has keys drawn at random, some of them wrong, and Services of many namespaces that choose pools. A Service gets an
address of the pool that it chose if that is open to its namespace, and else none, whatever the keys say; then keys,
pools and groups change, and no Service that has an address moves. Each world is a number: `1 --seed N` plays it again.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from ipaddress import IPv4Address, ip_address
from random import Random

from localfleet.arguments import positive
from tests.harness.crashes import crashes
from tests.harness.service_cluster import ServiceCluster
from tests.harness.service_judge import POOL, SHARE
from tests.harness.virtual_time import run_virtually

NAMESPACES = ("shop", "lab", "bank", "edge")
POOLS = ("edge", "lab", "dmz", "a.b")
CHOICES = (*POOLS, "edge", "dmz", "global", "none", "", "no pool", "Edge", None, None)
ALLOWED = (
    "",
    "*",
    "shop",
    "shop, lab",
    " bank ,lab",
    "shop\nbank",
    "Shop",
    "shopping",
    "edge,*",
    "lab bank",
    "-",
)
SERVICES = 6


def draw_keys(chance: Random) -> dict[str, str]:
    """Return a ConfigMap: pools that may overlap, and who may choose them."""
    keys = {"cidr-global": "10.0.0.1-10.0.0.4"} if chance.random() < 0.8 else {}
    for number, pool in enumerate(POOLS):
        if chance.random() < 0.8:
            net = chance.choice([0, number + 1, number + 1])
            kind = chance.choice(["cidr", "range"])
            keys[f"{kind}-{pool}"] = f"10.0.{net}.1-10.0.{net}.{chance.choice([2, 6])}"
        if chance.random() < 0.6:
            keys[f"allow-pool-{pool}"] = chance.choice(ALLOWED)
        for key in ("allow-share", "draining"):
            if chance.random() < 0.15:
                keys[f"{key}-{pool}"] = "true"
        if chance.random() < 0.2:
            keys[f"search-order-{pool}"] = chance.choice(["asc", "desc", "up"])
    if chance.random() < 0.3:
        keys["namespaces-dmz"] = chance.choice(NAMESPACES)
    return keys


def is_open(keys: Mapping[str, str], namespace: str, pool: str) -> bool:
    """Return whether a pool is open to a namespace, as the documentation has it."""
    allowed = keys.get(f"allow-pool-{pool}")
    if allowed is None:
        return namespace == pool
    return any(each in ("*", namespace) for part in allowed.split(",") for each in part.split())


def find_range(keys: Mapping[str, str], pool: str) -> tuple[IPv4Address, IPv4Address] | None:
    """Return the first and the last address of a pool; None if it has none."""
    text = keys.get(f"cidr-{pool}", keys.get(f"range-{pool}"))
    if text is None:
        return None
    first, last = map(ip_address, text.split("-"))
    assert isinstance(first, IPv4Address)
    assert isinstance(last, IPv4Address)
    return first, last


class World:
    """One world; `closed` counts the Services that chose a pool which is closed to them."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._keys = draw_keys(self._chance)
        self._cluster = ServiceCluster(self._keys)
        self._chosen: dict[tuple[str, str], str | None] = {}
        self._problems: list[str] = []
        self.closed = 0

    async def run(self) -> list[str]:
        """Play the world; return what was wrong in it."""
        await self._cluster.start()
        for number in range(SERVICES):
            namespace, pool = self._chance.choice(NAMESPACES), self._chance.choice(CHOICES)
            chosen = {POOL: pool, SHARE: self._chance.choice([None, None, "front"])}
            annotations = {key: value for key, value in chosen.items() if value is not None}
            self._chosen[namespace, f"s{number}"] = pool
            self._cluster.add(
                f"s{number}",
                namespace=namespace,
                ports=[80 + number % 3],
                metadata={"annotations": annotations},
            )
        await self._cluster.settle()
        self._judge()
        before = self._read()
        for (namespace, name), address in before.items():
            if address and self._chance.random() < 0.5:
                changed = {POOL: self._chance.choice(CHOICES), SHARE: self._chance.choice([None, "back"])}
                self._cluster.change(name, namespace=namespace, annotations=changed)
        self._cluster.set_keys(draw_keys(self._chance))
        await self._cluster.settle()
        moved = [name for name, address in self._read().items() if before[name] not in ("", address)]
        return [*self._problems, *self._cluster.problems, *(f"{name} was moved" for name in moved)]

    async def stop(self) -> None:
        """End its provider."""
        await self._cluster.stop()

    def _read(self) -> dict[tuple[str, str], str]:
        return {each: self._cluster.addresses(each[1], namespace=each[0]) for each in self._chosen}

    def _judge(self) -> None:
        for (namespace, name), pool in self._chosen.items():
            address = self._cluster.addresses(name, namespace=namespace)
            condition = self._cluster.condition(name, namespace=namespace)
            if pool is None:
                continue
            is_valid = bool(pool) and " " not in pool
            if not is_valid or not is_open(self._keys, namespace, pool):
                self.closed += is_valid
                wanted = ("", ("False", "PoolNotAllowed" if is_valid else "InvalidPool"))
                if (address, condition) != wanted:
                    self._problems.append(f"{namespace}/{name}, pool {pool!r}: {address} {condition}")
                continue
            within = find_range(self._keys, pool)
            if address and (within is None or not within[0] <= IPv4Address(address) <= within[1]):
                self._problems.append(f"{namespace}/{name}, pool {pool!r}: {address} is of another pool")
            if not address and (within is None) != (condition == ("False", "NoPool")):
                self._problems.append(f"{namespace}/{name}, pool {pool!r}: {condition}")


async def _play(seed: int) -> tuple[int, list[str]]:
    world = World(seed)
    problems = await world.run()
    return world.closed, problems


def play_all(seeds: Sequence[int]) -> tuple[int, list[str]]:
    """Return how many Services chose a closed pool, and what was wrong."""
    closed, problems = 0, []
    for seed in seeds:
        with crashes() as found:
            made, wrong = run_virtually(_play(seed))
        closed += made
        problems += [f"seed {seed}: {problem}" for problem in (*wrong, *found)]
    return closed, problems


def main(arguments: Sequence[str]) -> int:
    """Play; 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.provider.worlds")
    parser.add_argument("worlds", nargs="?", type=positive, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=positive, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.worlds)
    with ProcessPoolExecutor(options.processes) as pool:
        ends = list(
            pool.map(play_all, [seeds[number :: options.processes] for number in range(options.processes)])
        )
    closed, problems = sum(each for each, _ in ends), [problem for _, each in ends for problem in each]
    for problem in problems[:20]:
        sys.stdout.write(f"{problem}\n")
    violations = len(problems)
    sys.stdout.write(f"worlds of pools (in memory): worlds={options.worlds} {closed=} {violations=}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
