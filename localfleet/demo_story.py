"""The story of the demo: fipop's main job. Each check stands where the story shows what it is about.

A check waits for what it expects. If that does not come, the check fails and the story goes on.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.demo_stage import Stage, run_beside
from localfleet.errors import DeadlineError
from localfleet.observation import (
    FleetView,
    addresses_of,
    count_pods,
    observe_fleet,
)
from localfleet.processes import build_environment
from localfleet.stack import RANGES, condition, floating_ips
from localfleet.waiting import eventually

EXAMPLES = Path(__file__).parent.parent / "examples"
STATIC_ADDRESS = "10.135.10.200"
_USER_KEYS = {
    "allow-share-default": "true",
    "range-dual": "10.136.0.10-10.136.0.19,2001:db8:136::10-2001:db8:136::19",
}
"""What users of the guest cluster add to the ConfigMap of its cloud provider."""
_USER_ADDRESS = "10.136.1.7"
_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/kubevip"
_ANNOTATION = "kube-vip.io/loadbalancerIPs"
_CONDITION = "kubefip.k8s.binbash.org/AddressAssigned"
_PATIENCE_SECONDS = 180.0
"""A machine that is loaded must not fail the story: helm alone took a minute on one."""
_STOP_SECONDS = 10.0
_FIPOP = Path(sys.executable).parent / "fipop"
_FLOATING_IPS = "get floatingips -A -o wide"
_SERVICES = (
    "get services -A --field-selector spec.type=LoadBalancer -o custom-columns=NAMESPACE:.metadata.namespace,"
    r"NAME:.metadata.name,PORT:.spec.ports[*].port,ADDRESSES:.metadata.annotations.kube-vip\.io/loadbalancerIPs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The demo while it is told."""

    stage: Stage

    async def tell(self) -> None:
        """Play guest clusters, their Services, and more addresses."""
        provider = await self._create_demo()
        await self._create_others()
        await provider
        await self._create_services()
        await self._request_addresses()

    async def end(self) -> None:
        """Check what must not be, and show what an administrator sees."""
        await self._check_what_must_not_be()
        await self._show_kubectl(self.stage.management, _FLOATING_IPS)
        await self._show_kubectl(self.stage.running()["demo"], _SERVICES)
        code, text = await self.run_fipop("status")
        unfinished = ("shop-vip: AddressInUse", "stranger: ClusterMismatch")
        self.stage.report.check(
            "fipop status lists both floating IPs that are not ready, and exits with 1",
            holds=code == 1 and all(words in text for words in unfinished),
        )
        code, text = await self.run_fipop("who", STATIC_ADDRESS)
        self.stage.report.check(
            f"fipop who finds the holder of {STATIC_ADDRESS}", holds=code == 0 and "demo-vip" in text
        )

    async def stop_operator(self) -> None:
        """Stop the operator as a kubelet does."""
        self.stage.report.chapter("The operator is stopped")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with self.stage.report.wait("the operator has ended"):
            code = await self.stage.operator.stop()
        self.stage.report.check(
            f"after SIGTERM the operator exits with 0 within {_STOP_SECONDS:g} s",
            holds=code == 0 and loop.time() - begun <= _STOP_SECONDS,
        )

    async def _create_demo(self) -> asyncio.Task[None]:
        """Create demo and return the start of its cloud provider, which takes a while."""
        stage = self.stage
        stage.report.chapter("A guest cluster, demo, with the label kube-vip=true")
        await self._apply("range.yaml")

        async def is_ready() -> bool:
            found = await stage.management.client.get(f"{RANGES}/guest-vlan")
            return condition(found, "Ready").get("status") == "True"

        async with stage.report.wait("the range is ready"):
            await eventually(is_ready, seconds=_PATIENCE_SECONDS, what="the range to be ready")
        # Objects have whole seconds. In the first one of its term a leader takes demo for older, and reads it first.
        await asyncio.sleep(1.0)
        await stage.create_guest("demo", labels={"kube-vip": "true"})
        await self.expect(
            "demo has a floating IP, and the ConfigMap there has its address",
            lambda view: address_of(view, "demo-kubevip") in pool_of(view, "demo"),
        )
        stage.start_planes("shop", "plain")
        await self.expect(
            "kube-vip and its cloud provider run in demo, and the floating IP is ready",
            lambda view: _is_served(view, "demo"),
        )
        await self.expect(
            "Harvester's own kube-vip is parked in demo",
            lambda view: count_pods(view.guests["demo"].daemon_sets["kube-vip"]) == (0, 0),
        )
        return run_beside(stage.exits, stage.start_provider("demo"))

    async def _create_others(self) -> None:
        stage = self.stage
        stage.report.chapter("More guest clusters: shop has the label kube-vip=true, plain does not have it")
        await stage.create_guest("shop", labels={"kube-vip": "true"})
        await stage.create_guest("plain")
        names = [f"{name}-kubevip" for name in stage.guests]
        await self.expect(
            "each guest cluster has a floating IP of its own",
            lambda view: len({address_of(view, name) for name in names} - {""}) == len(names),
        )
        await self.expect(
            "kube-vip and its cloud provider run in shop, with the address in their ConfigMap",
            lambda view: (
                _is_served(view, "shop") and address_of(view, "shop-kubevip") in pool_of(view, "shop")
            ),
        )
        await self.expect(
            "Harvester's own kube-vip runs on in plain, where fipop installs nothing",
            lambda view: (
                count_pods(view.guests["plain"].daemon_sets["kube-vip"]) == (1, 1)
                and not view.guests["plain"].releases
            ),
        )

    async def _create_services(self) -> None:
        stage, client = self.stage, self.stage.running()["demo"].client
        stage.report.chapter("Services in demo")
        await client.create("/api/v1/namespaces", {"metadata": {"name": "dual"}})
        await client.patch(_CONFIG_MAP, {"data": _USER_KEYS})
        stage.report.step("users add keys of their own to the ConfigMap")
        await self.create_service("web", port=80)
        await self.create_service("dns", port=53)
        await self.expect(
            "the Services web and dns share demo's floating IP: their ports differ",
            lambda view: (
                services_of(view)["web"] == services_of(view)["dns"] == address_of(view, "demo-kubevip") != ""
            ),
        )
        await self.create_service("fixed", annotations={_ANNOTATION: _USER_ADDRESS})
        await self.create_service("both", namespace="dual", ipFamilyPolicy="RequireDualStack")
        await self.expect(
            "the Service both has an address of each family, from the pool of its namespace",
            lambda view: services_of(view)["both"] == "10.136.0.10,2001:db8:136::10",
        )
        await self.create_service("api", port=80)
        await self.expect(
            "the Service api waits, because web uses its port: its condition names the key cidr-global",
            lambda view: (
                "cidr-global" in condition(view.guests["demo"].services["api"], _CONDITION).get("message", "")
            ),
        )

    async def create_service(
        self,
        name: str,
        *,
        namespace: str = "default",
        port: int = 80,
        annotations: dict[str, str] | None = None,
        **spec: str,
    ) -> None:
        """Create a Service of type LoadBalancer in demo."""
        self.stage.report.step(f"a user creates the Service {name}, port {port}")
        body = {
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": port}], **spec},
        }
        client = self.stage.running()["demo"].client
        await client.create(f"/api/v1/namespaces/{namespace}/services", body)

    async def _request_addresses(self) -> None:
        stage = self.stage
        stage.report.chapter("More addresses")
        stage.report.step(f"demo-vip requests {STATIC_ADDRESS} for demo")
        await self._apply("floatingip-static.yaml")
        await self.expect(
            f"demo-vip holds {STATIC_ADDRESS}, and the ConfigMap in demo has it",
            lambda view: (
                address_of(view, "demo-vip") == STATIC_ADDRESS
                and pool_of(view, "demo") == {address_of(view, "demo-kubevip"), STATIC_ADDRESS}
            ),
        )
        await self.expect(
            f"the Service api has {STATIC_ADDRESS}",
            lambda view: services_of(view)["api"] == STATIC_ADDRESS,
        )
        stage.report.step(f"shop-vip requests {STATIC_ADDRESS} for shop")
        await self._request_for_shop("shop-vip", "floatingip-static.yaml", clustername="shop")
        await self.expect(
            "shop-vip is refused, and its condition names the holder",
            lambda view: (
                ready_of(view, "shop-vip")["reason"] == "AddressInUse"
                and "demo-vip" in ready_of(view, "shop-vip")["message"]
            ),
        )
        stage.report.step("stranger, in the namespace of shop, requests an address for demo")
        await self._request_for_shop("stranger", "floatingip-dynamic.yaml", clustername="demo")
        await self.expect(
            "stranger is refused: its namespace belongs to shop",
            lambda view: ready_of(view, "stranger")["reason"] == "ClusterMismatch",
        )
        stage.report.step("an administrator empties spec.ipaddress of demo-vip")
        path = f"{floating_ips(stage.guests['demo'].cluster_id)}/demo-vip"
        await stage.management.client.patch(path, {"spec": {"ipaddress": ""}})

    async def _apply(self, example: str) -> None:
        """Apply a manifest of the folder `examples/`, as the documentation does."""
        await self.stage.management.kubectl("apply", "--filename", str(EXAMPLES / example))

    async def _request_for_shop(self, name: str, example: str, *, clustername: str) -> None:
        manifest = yaml.safe_load((EXAMPLES / example).read_text())
        annotations = {**manifest["metadata"]["annotations"], "clustername": clustername}
        path = floating_ips(self.stage.guests["shop"].cluster_id)
        body = {**manifest, "metadata": {"name": name, "annotations": annotations}}
        await self.stage.management.client.create(path, body)

    async def _check_what_must_not_be(self) -> None:
        view = await self.observe()
        demo, shop = view.guests["demo"], view.guests["shop"]
        check = self.stage.report.check
        check(
            "demo-vip has kept its address, although its spec was emptied",
            holds=address_of(view, "demo-vip") == STATIC_ADDRESS,
        )
        check(
            "the ConfigMap in demo still has the keys of its users, and the Service fixed the address of its user",
            holds=_USER_KEYS.items() <= demo.pools.items()
            and services_of(view).get("fixed") == _USER_ADDRESS,
        )
        check(
            "no guest cluster has an address of another one in its ConfigMap",
            holds=bool(shop.pools)
            and STATIC_ADDRESS not in pool_of(view, "shop")
            and address_of(view, "stranger") not in pool_of(view, "demo"),
        )
        log = self.stage.operator.process.log.read_text(errors="replace")
        tokens = [guest.token.partition(":")[2] for guest in self.stage.guests.values()]
        check(
            "the log of the operator has no token of a guest cluster",
            holds=bool(log) and not any(token in log for token in tokens),
        )

    async def expect(
        self, fact: str, test: Callable[[FleetView], Any], *, seconds: float = _PATIENCE_SECONDS
    ) -> None:
        """Wait until the fleet is as it should be. `test` may fail to find what is not there yet."""

        async def look() -> bool:
            return bool(test(await self.observe()))

        try:
            async with self.stage.report.wait(fact):
                holds = await eventually(look, seconds=seconds, what=fact)
        except DeadlineError:
            holds = False
        self.stage.report.check(fact, holds=holds)

    async def observe(self) -> FleetView:
        """Read the fleet."""
        guests = {name: plane.client for name, plane in self.stage.running().items()}
        return await observe_fleet(self.stage.management.client, guests)

    async def run_fipop(self, *arguments: str) -> tuple[int, str]:
        """Run a command with an administrator's kubeconfig, and show what it prints; its exit code and that."""
        process = await asyncio.create_subprocess_exec(
            *(str(_FIPOP), *arguments, "--kubeconfig", str(self.stage.management.admin_kubeconfig)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=build_environment(self.stage.fleet.folder),
        )
        command = f"fipop {' '.join(arguments)}"
        async with asyncio.timeout(_PATIENCE_SECONDS), self.stage.report.wait(f"{command} ends"):
            out, _ = await process.communicate()
        self.stage.report.output(command, out.decode())
        return process.returncode or 0, out.decode()

    async def _show_kubectl(self, plane: ControlPlane, command: str) -> None:
        async with self.stage.report.wait(f"kubectl {command} ends"):
            shown = await plane.kubectl(*command.split())
        self.stage.report.output(f"kubectl --context {plane.name} {command}", shown)


def address_of(view: FleetView, floating_ip: str) -> str:
    """Return the addresses that a floating IP holds."""
    return ",".join(addresses_of(view.floating_ips.get(floating_ip)))


def ready_of(view: FleetView, floating_ip: str) -> Json:
    """Return the condition Ready of a floating IP."""
    return condition(view.floating_ips[floating_ip], "Ready")


def pool_of(view: FleetView, guest: str) -> set[str]:
    """Return the addresses of the key that fipop writes for all namespaces of a guest cluster."""
    parts = view.guests[guest].pools.get("cidr-global", "").split(",")
    return {one.removesuffix("/32") for one in parts if one}


def services_of(view: FleetView) -> dict[str, str]:
    """Return the addresses of the Services in demo, by name."""
    found = view.guests["demo"].services.items()
    return {name: (one["metadata"].get("annotations") or {}).get(_ANNOTATION, "") for name, one in found}


def _is_served(view: FleetView, guest: str) -> bool:
    """Return whether helm deployed both releases at its first attempt, and the floating IP is ready."""
    releases = [view.guests[guest].releases[name] for name in ("kube-vip", "kube-vip-cloud-provider")]
    return ready_of(view, f"{guest}-kubevip")["status"] == "True" and all(
        (one.status, one.revision) == ("deployed", 1) for one in releases
    )
