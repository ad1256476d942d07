"""A small program that plays Rancher: it makes and removes clusters in the management cluster as Rancher does."""

import asyncio
import contextlib
import random
import string
from collections.abc import Mapping, Sequence

import aiohttp

from localfleet import rancher_objects as objects
from localfleet.client import ApiClient
from localfleet.crds import RANCHER_CRDS, load_crds
from localfleet.errors import ApiError
from localfleet.proxy import RancherProxy
from localfleet.rancher_plan import (
    FLEET_DEFAULT,
    FLEET_LOCAL,
    GLOBAL_DATA,
    REAL_ORDER,
    Credential,
    Guest,
    GuestKind,
    GuestPlan,
    HarvesterCluster,
    Step,
    is_possible,
)
from localfleet.rancher_steps import NAMESPACES, GuestSteps, ensure
from localfleet.routes import Upstream
from localfleet.simulated import SimulatedGuest

_PING_SECONDS = 15.0
_PINGS_AT_ONCE = 20
_LETTERS = string.ascii_lowercase + string.digits


class RancherPlayer:
    """Plays Rancher in one management cluster. With a `seed` its random names are the same each time."""

    def __init__(
        self,
        client: ApiClient,
        proxy: RancherProxy,
        *,
        kubeconfig_delay_seconds: float = 0.5,
        token_delay_seconds: float = 0.3,
        seed: int | None = None,
    ) -> None:
        """Prepare; `client` must be an administrator of the management cluster."""
        self.client = client
        self.proxy = proxy
        self.guests: dict[str, Guest] = {}
        self.harvesters: list[HarvesterCluster] = []
        self._delays = {Step.KUBECONFIG: kubeconfig_delay_seconds, Step.TOKEN: token_delay_seconds}
        self._random = random.Random(seed)
        self._steps = GuestSteps(client, proxy)

    async def set_up(self) -> None:
        """Bring the management cluster to where Rancher has it after its start: CRDs, namespaces, `local`."""
        await load_crds(self.client, RANCHER_CRDS)
        for name in (FLEET_DEFAULT, FLEET_LOCAL, GLOBAL_DATA):
            await ensure(
                self.client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        local = GuestPlan(name="local", cluster_id="local", kind=GuestKind.LEGACY, namespace=FLEET_LOCAL)
        await self._steps.register(local, objects.build_local_cluster())

    async def create_harvester(
        self, display_name: str = "harvester-cluster1", *, cluster_id: str | None = None
    ) -> HarvesterCluster:
        """Register a Harvester cluster, in all the objects that Rancher keeps of one."""
        harvester = HarvesterCluster(cluster_id=cluster_id or self._new_id(), display_name=display_name)
        plan = GuestPlan(name=display_name, cluster_id=harvester.cluster_id, kind=GuestKind.IMPORTED)
        await self._steps.register(plan, objects.build_harvester_cluster(harvester))
        self.harvesters.append(harvester)
        return harvester

    def plan_guest(
        self,
        name: str,
        *,
        kind: GuestKind = GuestKind.HARVESTER,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        network: str = "default/vlan10",
        harvester: HarvesterCluster | None = None,
        credential: Credential | None = None,
        cluster_id: str | None = None,
    ) -> GuestPlan:
        """A plan with the usual choices made; `dataclasses.replace` makes the unusual ones.

        Without `harvester` and `credential` the guest runs on the first Harvester cluster there is.
        """
        if kind is GuestKind.HARVESTER and credential is None:
            on = harvester or self.harvesters[0]
            credential = Credential(name=f"cc-{self._word(5)}", harvester=on)
        legacy_id = f"c-{self._word(5)}" if kind is GuestKind.LEGACY else self._new_id()
        return GuestPlan(
            name=name,
            cluster_id=cluster_id or legacy_id,
            kind=kind,
            labels=labels or {},
            annotations=annotations or {},
            networks=(network,),
            credential=credential,
        )

    async def create_guest(
        self,
        plan: GuestPlan,
        target: Upstream | SimulatedGuest | None = None,
        *,
        order: Sequence[Step] = REAL_ORDER,
        boots: bool = False,
    ) -> Guest:
        """Bring up a guest in this order, the kubeconfig Secret and its token's binding some time later.

        `target` is the guest's own API; without one, requests for it are 404. `boots`: its machines are not up before
        `finish_boot`. Raises ValueError for an order that Rancher could not take.
        """
        if not is_possible(order):
            raise ValueError(f"not an order that Rancher could take: {[step.name for step in order]}")
        guest = Guest(plan=plan, token=self._new_token(), is_provisioned=not boots)
        self.guests[plan.cluster_id] = guest
        self.proxy.issue_token(guest.token)
        if target is not None:
            self.proxy.add_guest(plan.cluster_id, target)
        for step in order:
            await self.take(guest, step)
        return guest

    async def take(self, guest: Guest, step: Step) -> None:
        """Take one step for a guest, after the time that Rancher lets pass before it."""
        await asyncio.sleep(self._delays.get(step, 0.0))
        await self._steps.take(guest, step)

    async def delete_guest(self, guest: Guest) -> None:
        """Remove a guest in Rancher's order; its namespace is then in the hands of the namespace controller.

        The proxy lets nobody in any more. What its `target` was goes on: who made it stops it.
        """
        del self.guests[guest.cluster_id]
        await self._steps.remove(guest)

    async def finish_boot(self, guest: Guest) -> None:
        """Have the machines of a guest up: until then it is not Provisioned, and requests for it are 503."""
        await self._steps.finish_boot(guest)

    async def disconnect(self, guest: Guest) -> None:
        """Lose the guest's agent: the condition says so, and requests for it are 503."""
        await self._steps.disconnect(guest)

    async def reconnect(self, guest: Guest) -> None:
        """Have the guest's agent back."""
        await self._steps.take(guest, Step.CONNECTED)

    async def recreate_secret(self, guest: Guest) -> None:
        """Delete the kubeconfig Secret and make it again with a new token, as when Rancher's URL changes."""
        await self._steps.delete_secret(guest)
        self.proxy.revoke_token(guest.token)
        guest.token = self._new_token()
        self.proxy.issue_token(guest.token)
        await self.take(guest, Step.KUBECONFIG)
        await self.take(guest, Step.TOKEN)

    async def keep_connected(self, *, period_seconds: float = _PING_SECONDS) -> None:
        """Refresh the `Connected` condition of all that are, for ever: run it as a task."""
        while True:
            await asyncio.sleep(period_seconds)
            # An API server that is away misses a beat, as it does with Rancher's.
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
                await self.ping_all()

    async def ping_all(self) -> None:
        """Refresh the `Connected` condition of all that are, once."""
        gate = asyncio.Semaphore(_PINGS_AT_ONCE)

        async def ping(guest: Guest) -> None:
            async with gate:
                if guest.is_connected:
                    await self._steps.ping(guest)

        await asyncio.gather(*(ping(guest) for guest in self.guests.values()))

    def _new_id(self) -> str:
        return f"c-m-{self._word(8)}"

    def _new_token(self) -> str:
        return f"u-{self._word(10)}:{self._word(32)}"

    def _word(self, length: int) -> str:
        return "".join(self._random.choices(_LETTERS, k=length))
