"""Guests in Rancher whose API is a control plane of ours, as the tests of a running operator see and steer them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from localfleet.client import ApiClient
from localfleet.controlplane import ControlPlane
from localfleet.observation import Sample, parse_metrics
from localfleet.rancher_plan import Guest as RancherGuest
from localfleet.rancher_plan import GuestPlan, Step
from localfleet.routes import Fault, GuestRoute, SeenRequest, upstream_of
from localfleet.simulated import SimulatedGuest
from localfleet.stack import RANGES, RESERVATIONS, Stack, build_floating_ip, condition, floating_ips
from localfleet.waiting import eventually
from tests.api.sweeping import sweep

Json = dict[str, Any]

SERVED_SECONDS = 30.0
CONFIG_MAP = "/api/v1/namespaces/{}/configmaps/kubevip"
_LIST_CONFIG_MAPS = "/api/v1/configmaps"

REACHABLE_FIRST = (
    *(Step.HARVESTER_CONFIG, Step.CREDENTIAL, Step.PROVISIONING, Step.MANAGEMENT, Step.NAMESPACE),
    *(Step.KUBECONFIG, Step.TOKEN, Step.CONNECTED, Step.LINK),
)
"""An order in which a guest can be written as soon as it is known: nothing has to be asked for a second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedGuest:
    """A guest that has come up: a control plane or one in memory."""

    stack: Stack
    guest: RancherGuest
    plane: ControlPlane | None = None
    memory: SimulatedGuest | None = None

    @property
    def client(self) -> ApiClient:
        """An administrator inside the guest."""
        assert self.plane is not None, "this guest is in memory"
        return self.plane.client

    @property
    def id(self) -> str:
        return self.guest.cluster_id

    @property
    def name(self) -> str:
        return self.guest.name

    @property
    def route(self) -> GuestRoute:
        """Its way through Rancher's proxy, to count and to harm."""
        return self.stack.proxy.guests[self.id]

    def path(self, name: str | None = None) -> str:
        """Where a floating IP of its namespace stands; the one that fipop made, without a name."""
        return f"{floating_ips(self.id)}/{name or f'{self.name}-kubevip'}"

    async def floating_ip(self, name: str | None = None) -> Json:
        return await self.stack.client.get(self.path(name))

    async def ask(
        self,
        name: str,
        range_name: str | None,
        *,
        cluster: str | None = None,
        update: str = "true",
        **spec: Any,
    ) -> None:
        """Make a floating IP in its namespace, as an admin does."""
        body = build_floating_ip(self.id, name, cluster=cluster, range_name=range_name, update=update, **spec)
        await self.stack.client.create(floating_ips(self.id), body)

    async def has_condition(
        self,
        kind: str = "Ready",
        status: str = "True",
        *,
        name: str | None = None,
        reason: str = "",
        words: str = "",
        seconds: float = SERVED_SECONDS,
    ) -> Json:
        """Wait until a floating IP's condition says so; the whole object."""
        return await wait_for_condition(
            self.stack, self.path(name), kind, status, reason=reason, words=words, seconds=seconds
        )

    async def config_map(self, namespace: str = "kube-system") -> Json | None:
        if self.memory is not None:
            return self.memory.get("configmaps", namespace, "kubevip")
        return await self.client.find(CONFIG_MAP.format(namespace))

    async def data(self, namespace: str = "kube-system") -> dict[str, str]:
        found = await self.config_map(namespace)
        return (found or {}).get("data") or {}

    async def has_data(self, expected: Mapping[str, str], *, seconds: float = SERVED_SECONDS) -> None:
        """Wait until its ConfigMap holds just this."""

        async def holds() -> bool:
            found = await self.data()
            assert found == expected, found
            return True

        await eventually(holds, seconds=seconds, what=f"{expected} in the ConfigMap")

    async def passes(self, number: int, *, seconds: float = 60.0) -> list[list[SeenRequest]]:
        """Wait for so many passes from now on, the whole of each; their requests.

        Every pass begins with the list of ConfigMaps, and never two run over a guest at once.
        """
        self.stack.proxy.forget_requests(self.id)

        async def are_over() -> list[list[SeenRequest]] | None:
            found = split_passes(self.stack.proxy.requests_of(self.id))
            return found[:number] if len(found) > number else None

        return await eventually(are_over, seconds=seconds, what=f"{number} passes")


def split_passes(requests: Sequence[SeenRequest]) -> list[list[SeenRequest]]:
    """Part a guest's requests into passes; what came before the first is left out."""
    passes: list[list[SeenRequest]] = []
    for request in requests:
        if request.path == _LIST_CONFIG_MAPS:
            passes.append([])
        if passes:
            passes[-1].append(request)
    return passes


async def wait_for_condition(
    stack: Stack,
    path: str,
    kind: str,
    status: str = "True",
    *,
    reason: str = "",
    words: str = "",
    seconds: float = SERVED_SECONDS,
) -> Json:
    """Wait until the condition of an object says so, about its spec as it stands; the whole object."""

    async def says_so() -> Json:
        found = await stack.client.get(path)
        seen = condition(found, kind)
        assert seen.get("status") == status, found.get("status")
        assert not reason or seen["reason"] == reason, seen
        assert words in seen["message"], seen
        assert seen["observedGeneration"] == found["metadata"]["generation"], found
        return found

    return await eventually(says_so, seconds=seconds, what=f"{kind} {status} {reason} of {path}")


async def remove_range(stack: Stack, name: str) -> None:
    """Delete a range whose addresses are held, as an admin does who means it."""
    override = {"kubefip.k8s.binbash.org/allow-delete": "true"}
    await stack.client.patch(f"{RANGES}/{name}", {"metadata": {"annotations": override}})
    await stack.client.delete(f"{RANGES}/{name}")


async def find_reservation(stack: Stack, address: str) -> Json | None:
    return await stack.client.find(f"{RESERVATIONS}/default.{address}")


async def is_let_go(stack: Stack, address: str, *, seconds: float = SERVED_SECONDS) -> None:
    """Wait until nobody holds an address."""

    async def is_released() -> bool:
        found = await find_reservation(stack, address)
        assert found is None or "quarantinedUntil" in found["spec"], found["spec"]
        return True

    await eventually(is_released, seconds=seconds, what=f"{address} to be let go")


async def scrape(stack: Stack) -> tuple[Sample, ...]:
    """The samples of the operator that was started last, as they are now."""
    return parse_metrics(await stack.operators[-1].metrics())


@asynccontextmanager
async def bring_up(
    stack: Stack,
    target: ControlPlane | SimulatedGuest,
    plan: GuestPlan,
    *,
    fault: Fault | None = None,
) -> AsyncIterator[ServedGuest]:
    """Have Rancher bring up a guest whose API is `target`, harmed from the first by `fault`.

    Afterwards the guest is gone, and what fipop wrote is swept out of the control plane.
    """
    plane = target if isinstance(target, ControlPlane) else None
    upstream = upstream_of(target) if isinstance(target, ControlPlane) else target
    guest = await stack.player.create_guest(plan, upstream, order=())
    stack.proxy.guests[guest.cluster_id].fault = fault
    try:
        for step in REACHABLE_FIRST:
            await stack.player.take(guest, step)
        memory = None if isinstance(target, ControlPlane) else target
        yield ServedGuest(stack=stack, guest=guest, plane=plane, memory=memory)
    finally:
        if guest.cluster_id in stack.player.guests:
            await stack.player.delete_guest(guest)
        if plane is not None:
            await sweep(plane.client)
