"""A namespace of the management cluster in which a test asks for floating IPs, and ranges of the test's own."""

from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from localfleet.stack import (
    RANGES,
    RESERVATIONS,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually

Json = dict[str, Any]

SERVED_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """`number` is this test's alone: `net` is the start of an IPv4 /24 (`10.3.7.`), `net6` that of an IPv6 /64."""

    stack: Stack
    number: int
    namespace: str

    @property
    def net(self) -> str:
        return f"10.{self.number // 256}.{self.number % 256}."

    @property
    def net6(self) -> str:
        return f"fd00:{self.number:x}::"

    async def offer(self, name: str, iprange: str, **spec: object) -> str:
        """Make a range; its name, which this test shares with no other. No guest is served from it by itself."""
        full = f"{name}-{self.number}"
        await self.stack.client.create(RANGES, build_range(full, iprange, **spec))
        return full

    async def range(self, name: str) -> Json:
        return await self.stack.client.get(f"{RANGES}/{name}")

    async def ask(self, name: str, range_name: str | None, **spec: object) -> Json:
        """Make a floating IP."""
        return await self.stack.client.create(
            floating_ips(self.namespace),
            build_floating_ip(self.namespace, name, range_name=range_name, **spec),
        )

    async def change(self, name: str, **spec: object) -> None:
        await self.stack.client.patch(self.path(name), {"spec": spec})

    async def delete(self, name: str) -> None:
        await self.stack.client.delete(self.path(name))

    def path(self, name: str) -> str:
        return f"{floating_ips(self.namespace)}/{name}"

    async def read(self, name: str) -> Json:
        return await self.stack.floating_ip(self.namespace, name)

    async def served(self, name: str, *, seconds: float = SERVED_SECONDS) -> list[str]:
        """Wait until the wish that stands in the spec now is fulfilled; the addresses."""

        async def is_served() -> list[str]:
            found = await self.read(name)
            allocated = condition(found, "Allocated")
            assert allocated.get("status") == "True", found.get("status")
            assert allocated["observedGeneration"] == found["metadata"]["generation"], found
            addresses: list[str] = found["status"]["addresses"]
            return addresses

        return await eventually(is_served, seconds=seconds, what=f"{name} to be served")

    async def all_served(self, names: Collection[str], *, seconds: float = 60.0) -> None:
        """Wait until all of them, and nobody else here, are served."""

        async def are_served() -> bool:
            found = await self.stack.client.items(floating_ips(self.namespace))
            waiting = [
                each["metadata"]["name"]
                for each in found
                if condition(each, "Allocated").get("status") != "True"
            ]
            assert not waiting, f"{len(waiting)} wait: {waiting[:5]}"
            return sorted(each["metadata"]["name"] for each in found) == sorted(names)

        await eventually(are_served, seconds=seconds, what=f"{len(names)} to be served")

    async def refused(
        self, name: str, reason: str, *, words: str = "", seconds: float = SERVED_SECONDS
    ) -> Json:
        """Wait until the wish that stands in the spec now is refused for this reason; the whole object."""

        async def is_refused() -> Json:
            found = await self.read(name)
            allocated = condition(found, "Allocated")
            assert allocated.get("status") == "False", found.get("status")
            assert allocated["reason"] == reason, allocated
            assert words in allocated["message"], allocated
            assert allocated["observedGeneration"] == found["metadata"]["generation"], found
            return found

        return await eventually(is_refused, seconds=seconds, what=f"{name} to be refused")

    async def reservation(self, address: str, *, space: str = "default") -> Json | None:
        """The reservation of an address as it stands in reservations' names."""
        return await self.stack.client.find(f"{RESERVATIONS}/{space}.{address}")

    async def quarantined(
        self, address: str, *, space: str = "default", seconds: float = SERVED_SECONDS
    ) -> Json:
        """Wait until an address is in quarantine; its reservation."""

        async def is_quarantined() -> Json | None:
            found = await self.reservation(address, space=space)
            return found if found is not None and "quarantinedUntil" in found["spec"] else None

        return await eventually(is_quarantined, seconds=seconds, what=f"{address} in quarantine") or {}

    async def capacity(self, name: str, **wanted: int) -> Json:
        """Wait until a range counts so; all its counts."""

        async def counts_so() -> Json:
            counts: Json = (await self.range(name))["status"]["capacity"]
            assert counts.items() >= wanted.items(), counts
            return counts

        return await eventually(counts_so, seconds=SERVED_SECONDS, what=f"{wanted} in range {name}")

    async def holders(self) -> dict[str, str]:
        """The held addresses of this test's namespace: address -> floating IP."""
        return {
            each["spec"]["address"]: each["spec"]["owner"]["name"]
            for each in await self.stack.client.items(RESERVATIONS)
            if each["spec"].get("owner", {}).get("namespace") == self.namespace
            and "quarantinedUntil" not in each["spec"]
        }


@asynccontextmanager
async def open_tenant(stack: Stack, numbers: Iterator[int]) -> AsyncIterator[Tenant]:
    """A tenant with a namespace of its own, which is left behind: the whole cluster goes soon."""
    number = next(numbers)
    tenant = Tenant(stack=stack, number=number, namespace=f"tenant-{number}")
    await stack.plane.create_namespace(tenant.namespace)
    yield tenant
