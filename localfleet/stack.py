"""A whole fipop on this machine: management cluster, Rancher's part, the installed chart, running operators."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from localfleet.assets import ensure_all
from localfleet.certificates import build_authority
from localfleet.client import ApiClient
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.installation import NAMESPACE, Installation, OperatorProcess
from localfleet.proxy import RancherProxy
from localfleet.rancher import RancherPlayer

Json = dict[str, Any]

GROUP = "/apis/kubefip.k8s.binbash.org/v1"
RANGES = f"{GROUP}/floatingipranges"
RESERVATIONS = f"{GROUP}/floatingipreservations"
ALL_FLOATING_IPS = f"{GROUP}/floatingips"
SETTINGS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/kube-fip-config"


def floating_ips(namespace: str) -> str:
    """The path of the floating IPs of a namespace."""
    return f"{GROUP}/namespaces/{namespace}/floatingips"


def build_range(
    name: str, iprange: str, *, harvester: str | None = None, network: str | None = None, **spec: object
) -> Json:
    """A FloatingIPRange."""
    named = {"harvesterClusterName": harvester, "harvesterNetworkName": network}
    return {
        "apiVersion": "kubefip.k8s.binbash.org/v1",
        "kind": "FloatingIPRange",
        "metadata": {"name": name, "annotations": {key: text for key, text in named.items() if text}},
        "spec": {"iprange": iprange, **spec},
    }


def build_floating_ip(
    namespace: str,
    name: str,
    *,
    cluster: str | None = None,
    range_name: str | None = None,
    update: str | None = "true",
    **spec: object,
) -> Json:
    """A FloatingIP."""
    named = {"clustername": cluster, "fiprange": range_name, "updateConfigMap": update}
    return {
        "apiVersion": "kubefip.k8s.binbash.org/v1",
        "kind": "FloatingIP",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {key: text for key, text in named.items() if text is not None},
        },
        "spec": spec,
    }


def condition(obj: Json, kind: str) -> Json:
    """The condition of that type; {} where there is none."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


@dataclass(slots=True, kw_only=True)
class Stack:
    """Everything of one management cluster. Operators that were started here are stopped with it."""

    fleet: LocalFleet
    plane: ControlPlane
    proxy: RancherProxy
    player: RancherPlayer
    installation: Installation
    operators: list[OperatorProcess] = field(default_factory=list)

    @property
    def client(self) -> ApiClient:
        """An administrator of the management cluster."""
        return self.plane.client

    async def start_operator(self, *arguments: str, name: str | None = None) -> OperatorProcess:
        """Start one more operator under the chart's RBAC and return when it is ready."""
        operator = await self.installation.operator(
            self.fleet.ports, *arguments, name=name or f"operator-{len(self.operators)}"
        )
        self.operators.append(operator)
        await operator.start()
        return operator

    async def set_options(self, **options: str | None) -> None:
        """Change kube-fip-config; None removes an option."""
        await self.client.patch(SETTINGS, {"data": options})

    async def floating_ip(self, namespace: str, name: str) -> Json:
        """Read a floating IP."""
        return await self.client.get(f"{floating_ips(namespace)}/{name}")

    async def held(self) -> dict[str, str]:
        """All held reservations: name -> namespace/name of the owner."""
        return {
            each["metadata"]["name"]: f"{each['spec']['owner']['namespace']}/{each['spec']['owner']['name']}"
            for each in await self.client.items(RESERVATIONS)
            if "quarantinedUntil" not in each["spec"]
        }


@asynccontextmanager
async def open_stack(
    fleet: LocalFleet,
    name: str,
    *,
    settings: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
) -> AsyncIterator[Stack]:
    """Start a management cluster with Rancher's part in it and install the chart; no operator runs yet.

    `settings` are defaults of kube-fip-config (guests get nothing installed unless they say otherwise), `values`
    further values of the chart.
    """
    programs = ensure_all("helm")
    async with AsyncExitStack() as exits:
        plane = await fleet.management(name)
        exits.push_async_callback(fleet.remove, plane)
        proxy = await exits.enter_async_context(
            RancherProxy(build_authority(f"rancher-{name}", datetime.now(UTC)))
        )
        player = RancherPlayer(
            plane.client, proxy, kubeconfig_delay_seconds=0.1, token_delay_seconds=0.1, seed=1
        )
        await player.set_up()
        await player.create_harvester()
        chosen = {
            "kubevipGuestInstall": "disabled",
            # Guest clusters that are new are installed at once, and not in turn.
            "kubevipRolloutCanaries": "100%",
            "kubevipRolloutMaxConcurrency": "100%",
            "metricsPort": str(fleet.ports.reserve()),
            **(settings or {}),
        }
        installation = Installation(
            plane=plane,
            helm=Helm(program=programs["helm"], home=fleet.folder / f"{name}-helm"),
            folder=fleet.folder / f"{name}-fipop",
            settings=chosen,
            values=values or {},
        )
        await installation.install()
        stack = Stack(fleet=fleet, plane=plane, proxy=proxy, player=player, installation=installation)
        try:
            yield stack
        finally:
            for operator in stack.operators:
                await operator.process.stop()
