"""Lives of a guest cluster with several cloud providers, drawn at random: python -m tests.provider.simulation [N].

Users create, change and delete Services, choose pools for them and put them into groups; providers are killed, cut off
and started, their requests take time, answers are lost, and clocks go slowly. Every commit is judged: no address for
two that may not share it, none of a pool that is closed to the Service. In the end each Service has its addresses, or
says why not, and Services of one address name one Lease. Each life is a number: `1 --seed N` lives it again.
"""

import argparse
import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from ipaddress import ip_address
from random import Random
from typing import Any

from fipop.interfaces import ApiRequest
from localfleet.arguments import positive
from localfleet.simulated import Target
from tests.harness.api_in_memory import Commit, Key
from tests.harness.crashes import crashes
from tests.harness.service_cluster import LEASE, A, Running, ServiceCluster
from tests.harness.service_judge import POOL, SHARE, Seen
from tests.harness.service_rows import LEASE_NAME, LEASE_NOTE
from tests.harness.virtual_time import run_virtually

SHARING, OTHERS = ("bank", "club"), ("shop", "lab")
NAMESPACES = SHARING + OTHERS
DATA = {
    "cidr-global": "10.0.0.1-10.0.0.14,2001:db8::1-2001:db8::e",
    "range-lab": "10.0.1.1-10.0.1.6,2001:db8:1::1-2001:db8:1::6",
    **{f"allow-share-{namespace}": "true" for namespace in SHARING},
    "cidr-edge": "10.0.2.1-10.0.2.6,2001:db8:2::1-2001:db8:2::6",
    "allow-pool-edge": "shop, bank",
    "allow-share-edge": "true",
    "search-order-edge": "desc",
    "cidr-over": "10.0.0.1-10.0.0.4",
    "allow-pool-over": "*",
}
OPEN = {"edge": {"shop", "bank"}, "over": {*NAMESPACES}, "lab": {"lab"}}
"""To which namespaces a pool is open."""
CHOICES = (None, None, None, "edge", "edge", "over", "lab", "none", "")
GROUPS = ("", "", "front", "back")
SIZE = 14
"""How many addresses of a family the global pool has."""
MOST_SERVICES, MOST_PROVIDERS = 12, 3
STEPS = 60
REST_SECONDS = 120.0
"""After the last trouble: a Lease expires, a leader starts, and serves all."""
QUIET_SECONDS = 320.0
SLOWNESS = ((10, 10, 5, 1, 0.2), (10, 5, 5, 5, 1))
"""How often a request takes no time, 20 ms, 0.3 s, 4 s or 40 s: in an ordinary life and in a hard one."""
POLICIES: tuple[dict[str, Any], ...] = (
    {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]},
    {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]},
    {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]},
    {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]},
)


class Life:
    """One life: `run` returns what was wrong in it."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._led: set[tuple[str, str]] = set()
        """Which provider held which Lease at some time."""
        self.cluster = ServiceCluster(DATA, chance=self._chance)
        self.cluster.judge.may_have = may_have
        self.cluster.judge.clock = asyncio.get_running_loop().time
        self._made = 0
        self._freezing: set[str] = set()
        """The providers that are frozen before their next request for a Service arrives."""
        self._slowness = self._chance.choice(SLOWNESS)
        self._has_trouble = True
        self.cluster.memory.listeners.append(self._note_leader)

    @property
    def assignments(self) -> int:
        """How many addresses providers chose."""
        return self.cluster.judge.allocations

    async def run(self, steps: int = STEPS) -> list[str]:
        """Live, come to rest, and let every Service go."""
        for _ in range(steps):
            await asyncio.sleep(self._chance.choice([0.0, 0.01, 0.5, 3.0, 12.0]))
            self._take_step()
            await self._trouble_providers()
        await self._rest()
        found = [*self.cluster.problems, *self._find_unserved(), *self._find_leases()]
        version = self.cluster.memory.version
        await asyncio.sleep(QUIET_SECONDS)
        found += [f"{each.key} was written at rest" for each in self.cluster.writes_of_services(version)]
        return [*found, *await self._find_leaks()]

    # Providers

    async def _trouble_providers(self) -> None:
        alive = [each for each in self.cluster.providers if each.is_alive]
        if len(alive) < MOST_PROVIDERS:
            self._begin()
        elif self._chance.random() < 0.3:
            victim, draw = self._chance.choice(alive), self._chance.random()
            if draw < 0.4:
                await self.cluster.kill(victim)
            elif draw < 0.5:
                await self.cluster.stop(victim)
            elif draw < 0.6:
                victim.gate.shut()
            else:
                self._freezing.add(victim.name)
        for each in self.cluster.providers:
            if self._chance.random() < 0.1:
                each.gate.open()

    def _begin(self) -> None:
        speed = self._chance.choice([1.0, 1.0, 0.2])
        # Now and then a provider is started under another name: it does not wait for the Lease of the others.
        lease = self._chance.choice([LEASE, LEASE, LEASE, LEASE, "another"])
        running = self.cluster.begin(lease=lease, clock_speed=speed)
        running.gate.latency = self._draw_latency
        running.link.before = self._fail_some(running)
        running.link.refuse = self._refuse_some
        running.link.after = self._lose_some

    def _note_leader(self, commit: Commit) -> None:
        """Have those that are frozen go on at the worst time: just after another provider began to lead."""
        if commit.key[0] != "leases" or commit.obj is None:
            return
        holder = commit.obj["spec"].get("holderIdentity", "")
        is_new = bool(holder) and (commit.key[2], holder) not in self._led
        self._led.add((commit.key[2], holder))
        for each in self.cluster.providers:
            if is_new and self._has_trouble and each.name != holder:
                asyncio.get_running_loop().call_later(self._chance.uniform(0.0, 6.0), each.gate.open)

    def _draw_latency(self) -> float:
        if not self._has_trouble:
            return 0.0
        return self._chance.choices([0.0, 0.02, 0.3, 4.0, 40.0], self._slowness)[0]

    def _fail_some(self, running: Running) -> Any:
        async def let_pass(request: ApiRequest) -> None:
            if self._has_trouble and self._chance.random() < 0.02:
                raise ConnectionError("cut")
            if running.name in self._freezing and "/services/" in request.path:
                self._freezing.discard(running.name)
                running.gate.shut()
            await running.gate.let_pass(request)

        return let_pass

    def _refuse_some(self, verb: str, target: Target, _request: ApiRequest) -> bool:
        """Have a policy refuse some writes of Services, or of their status."""
        is_write = (verb, target.plural) == ("replace", "services")
        return is_write and self._has_trouble and self._chance.random() < 0.05

    async def _lose_some(self, _request: ApiRequest) -> None:
        if self._has_trouble and self._chance.random() < 0.02:
            raise ConnectionError("the answer was lost")

    async def _rest(self) -> None:
        """End all trouble and all providers, late writes included; one new provider serves."""
        self._has_trouble = False
        for each in self.cluster.providers:
            if self._chance.random() < 0.5:
                each.gate.open()
            await self.cluster.kill(each)
        self.cluster.begin(lease=LEASE)
        await asyncio.sleep(REST_SECONDS)
        for each in self.cluster.providers:
            each.gate.open()
        await asyncio.sleep(REST_SECONDS)

    # Users

    def _take_step(self) -> None:
        draw, there = self._chance.random(), self.cluster.stored_keys()
        if len(there) < 3 or (draw < 0.5 and len(there) < MOST_SERVICES):
            self._create()
            return
        _, namespace, name = key = self._chance.choice(there)
        if draw < 0.65:
            self.cluster.delete(name, namespace=namespace)
        elif draw < 0.72:
            self._change(key, type=self._chance.choice(["ClusterIP", "LoadBalancer"]))
        elif draw < 0.78:
            self._change(key, loadBalancerIP=self._draw_address())
        elif draw < 0.82:
            self._change(key, **self._chance.choice(POLICIES))
        elif draw < 0.90:
            self._choose(key)
        elif draw < 0.95:
            self._change(key, selector={"run": str(self.cluster.memory.version)})
        else:
            self.cluster.change(name, namespace=namespace, a="")

    def _create(self) -> None:
        self._made += 1
        draw = self._chance.random()
        spec: dict[str, Any] = {**self._chance.choice(POLICIES)}
        spec |= {"loadBalancerIP": self._draw_address()} if draw < 0.05 else {}
        chosen = {POOL: self._chance.choice(CHOICES), SHARE: self._chance.choice(GROUPS) or None}
        self.cluster.add(
            f"s{self._made}",
            namespace=self._chance.choice(NAMESPACES),
            ports=[self._chance.choice([80, 81, 443])],
            a=self._draw_address() if 0.05 <= draw < 0.1 else None,
            metadata={"annotations": {key: value for key, value in chosen.items() if value is not None}},
            **spec,
        )

    def _choose(self, key: Key) -> None:
        """Have a user change with whom a Service shares, where its addresses are from, or how it is announced."""
        draw = self._chance.random()
        if draw < 0.4:
            self._change(key, annotations={POOL: self._chance.choice(CHOICES)})
        elif draw < 0.7:
            self._change(key, annotations={SHARE: self._chance.choice(GROUPS) or None})
        elif draw < 0.9:
            self._change(key, externalTrafficPolicy=self._chance.choice(["Cluster", "Cluster", "Local"]))
        else:
            self._change(key, annotations={LEASE_NAME: self._chance.choice([None, "mine"])})

    def _change(self, key: Key, **spec: Any) -> None:
        self.cluster.change(key[2], namespace=key[1], **spec)

    def _draw_address(self) -> str:
        return f"10.0.{self._chance.choice([0, 0, 5])}.{self._chance.randrange(1, SIZE + 1)}"

    # At rest

    def _find_unserved(self) -> list[str]:
        """Say which Services have no address and no condition that says why."""
        found = []
        for _, namespace, name in self.cluster.stored_keys():
            is_served = self.cluster.addresses(name, namespace=namespace)
            is_wanted = self.cluster.service(name, namespace=namespace)["spec"]["type"] == "LoadBalancer"
            condition = self.cluster.condition(name, namespace=namespace)
            if is_wanted and not is_served and condition[0] != "False":
                found.append(f"{namespace}/{name} has no address: {condition}")
        return found

    def _find_leases(self) -> list[str]:
        """Say which Services name a Lease though they share with none, and which do not though they share."""
        holders: defaultdict[str, list[Any]] = defaultdict(list)
        for _, namespace, name in self.cluster.stored_keys():
            service = self.cluster.service(name, namespace=namespace)
            annotations = service["metadata"].get("annotations") or {}
            is_announced = service["spec"]["type"] == "LoadBalancer"
            named = {*annotations.get(A, "").split(","), service["spec"].get("loadBalancerIP", "")}
            for address in named if is_announced else ():
                if address and ":" not in address:
                    holders[address].append(service)
            if LEASE_NOTE in annotations and not is_announced:
                holders[""].append(service)
        return [problem for address, each in holders.items() for problem in _judge_leases(address, each)]

    async def _find_leaks(self) -> list[str]:
        """Delete all Services; then as many as there are addresses must be served."""
        for _, namespace, name in self.cluster.stored_keys():
            self.cluster.delete(name, namespace=namespace)
        await asyncio.sleep(QUIET_SECONDS)
        found = [f"{key} is not gone" for key in self.cluster.stored_keys()]
        for number in range(SIZE):
            self.cluster.add(f"last-{number}")
        await asyncio.sleep(REST_SECONDS)
        names = [name for name in self.cluster.names() if name.startswith("last-")]
        return found + [f"{name} found no address" for name in names if not self.cluster.addresses(name)]


def may_have(seen: Seen, address: str) -> bool:
    """Return whether the pool that serves a Service is open to it, and has an address."""
    scope = seen.pool if seen.pool is not None else "lab" if seen.namespace == "lab" else "global"
    if seen.pool is not None and seen.namespace not in OPEN.get(scope, ()):
        return False
    ranges = (each.split("-") for each in DATA[_KEYS[scope]].split(","))
    value = ip_address(address)
    return any(
        ip_address(low).version == value.version
        and int(ip_address(low)) <= int(value) <= int(ip_address(high))
        for low, high in ranges
    )


_KEYS = {key.partition("-")[2]: key for key in DATA if key.startswith(("cidr-", "range-"))}


def _judge_leases(address: str, services: Sequence[Any]) -> list[str]:
    """Return what is wrong with the Leases of the Services that name an address; "" stands for no LoadBalancers."""
    wanted, found = f"kube-system/kubevip-{address}", []
    named = []
    for each in services:
        annotations = each["metadata"].get("annotations") or {}
        is_noted = annotations.get(LEASE_NOTE) == annotations.get(LEASE_NAME, "")
        named.append(annotations.get(LEASE_NAME, "") if is_noted else "")
    is_local = any(each["spec"].get("externalTrafficPolicy") == "Local" for each in services)
    if any(named) and (not address or len(services) < 2 or is_local or {*named} - {"", wanted}):
        found.append(f"Services of {address} name {named} (one is Local: {is_local})")
    if len({*named}) > 1:
        found.append(f"not all Services of {address} name a Lease: {named}")
    return found


async def _live(seed: int) -> tuple[int, list[str]]:
    life = Life(seed)
    problems = await life.run()
    return life.assignments, problems


def _live_all(seeds: range) -> tuple[int, int]:
    assignments, violations = 0, 0
    for seed in seeds:
        with crashes() as found:
            made, problems = run_virtually(_live(seed))
        problems += found
        assignments += made
        violations += bool(problems)
        for problem in problems[:5]:
            _say(f"seed {seed}: {problem}")
    return assignments, violations


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Live; 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.provider.simulation")
    parser.add_argument("lives", nargs="?", type=positive, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=positive, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.lives)
    with ProcessPoolExecutor(options.processes) as pool:
        parts = [seeds[number :: options.processes] for number in range(options.processes)]
        ends = list(pool.map(_live_all, parts))
    assignments, violations = (sum(each) for each in zip(*ends, strict=True))
    _say(f"simulation of services (in memory): lives={options.lives} {assignments=} {violations=}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
