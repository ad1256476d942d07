"""The story of the demo. Each check stands where the story shows what it is about.

A check waits for what it expects. If that does not come, the check fails and the story goes on.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from localfleet.client import Json
from localfleet.demo_stage import GUESTS, INTERVAL_SECONDS, OPTED_IN, Stage, start_provider
from localfleet.errors import DeadlineError
from localfleet.observation import (
    OURS,
    FleetView,
    GuestView,
    addresses_of,
    count_pods,
    find_condition,
    observe_fleet,
    parse_metrics,
)
from localfleet.processes import build_environment
from localfleet.rancher_plan import Guest
from localfleet.routes import upstream_of
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
_RELEASES = ("kube-vip", "kube-vip-cloud-provider")
_ANNOTATION = "kube-vip.io/loadbalancerIPs"
_CONDITION = "kubefip.k8s.binbash.org/AddressAssigned"
_PATIENCE_SECONDS = 60.0
_REPORT_SECONDS = 120.0
"""fipop changes what it says of Services once a minute."""
_QUARANTINE_SECONDS = 180.0
_OPTIONS = "/api/v1/namespaces/kube-fip/configmaps/kube-fip-config"
_RANGE = f"{OURS}/floatingipranges/guest-vlan"
_OPTIONS_SECONDS = 6.0
_OVERRIDE = "- name: other-interface\n  clusters: [shop]\n  values: {env: {vip_interface: eth1}}\n"
_APPS = tuple(f"app-{number}" for number in range(1, 6))
_MADE = tuple(f"demo-kubevip-{number}" for number in (2, 3, 4, 5))
_STOP_SECONDS = 10.0
_FIPOP = Path(sys.executable).parent / "fipop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The demo while it is told; `guests` are the guest clusters as Rancher has them."""

    stage: Stage
    guests: dict[str, Guest] = field(default_factory=dict)

    async def tell(self) -> None:
        """Play everything but the end of the operator."""
        await self._create_guests()
        await self._create_services()
        await self._request_addresses()
        await self._delete_plain()
        await self._watch_a_quiet_fleet()
        await self._give_each_service_an_address()
        await self._give_shop_other_values()
        await self._check_what_must_not_be()

    async def ask_fipop(self) -> None:
        """Show what the command line answers to an administrator."""
        code, text = await self._run_fipop("status")
        unfinished = ("shop-vip: AddressInUse", "stranger: ClusterMismatch")
        self.stage.report.check(
            "fipop status lists both floating IPs that are not ready, and exits with 1",
            holds=code == 1 and all(words in text for words in unfinished),
        )
        code, text = await self._run_fipop("who", STATIC_ADDRESS)
        self.stage.report.check(
            f"fipop who finds the holder of {STATIC_ADDRESS}", holds=code == 0 and "demo-vip" in text
        )

    async def stop_operator(self) -> None:
        """Stop the operator as a kubelet does."""
        self.stage.report.chapter("The operator is stopped")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        code = await self.stage.operator.stop()
        self.stage.report.check(
            f"after SIGTERM the operator exits with 0 within {_STOP_SECONDS:g} s",
            holds=code == 0 and loop.time() - begun <= _STOP_SECONDS,
        )

    async def _create_guests(self) -> None:
        stage = self.stage
        stage.report.chapter(
            "Guest clusters: demo and shop have the label kube-vip=true, plain does not have it"
        )
        await stage.management.client.create(f"{OURS}/floatingipranges", read_example("range.yaml"))
        for name in GUESTS:
            plan = stage.player.plan_guest(name, labels={"kube-vip": "true"} if name in OPTED_IN else {})
            stage.report.step(f"Rancher creates {name} ({plan.cluster_id})")
            self.guests[name] = await stage.player.create_guest(plan, upstream_of(stage.guests[name]))
        await self._expect(
            "each guest cluster has a floating IP of its own",
            lambda view: len({_address(view, f"{name}-kubevip") for name in GUESTS} - {""}) == len(GUESTS),
        )
        for name in OPTED_IN:
            await self._expect(
                f"kube-vip and its cloud provider run in {name}, with the address in their ConfigMap",
                lambda view, name=name: (  # type: ignore[misc]
                    _is_served(view.guests[name]) and _address(view, f"{name}-kubevip") in _pool(view, name)
                ),
            )

        await self._expect(
            "Harvester's own kube-vip is parked in demo, and runs on in plain, where fipop installs nothing",
            lambda view: (
                count_pods(view.guests["demo"].daemon_sets["kube-vip"]) == (0, 0)
                and count_pods(view.guests["plain"].daemon_sets["kube-vip"]) == (1, 1)
                and not view.guests["plain"].releases
            ),
        )

    async def _create_services(self) -> None:
        stage, client = self.stage, self.stage.guests["demo"].client
        stage.report.chapter("Services in demo")
        await start_provider(stage, "demo")
        await client.create("/api/v1/namespaces", {"metadata": {"name": "dual"}})
        await client.patch(_CONFIG_MAP, {"data": _USER_KEYS})
        stage.report.step("users add keys of their own to the ConfigMap")
        await self._create_service("web", port=80)
        await self._create_service("dns", port=53)
        await self._expect(
            "the Services web and dns share demo's floating IP: their ports differ",
            lambda view: (
                _services(view)["web"] == _services(view)["dns"] == _address(view, "demo-kubevip") != ""
            ),
        )
        await self._create_service("fixed", annotations={_ANNOTATION: _USER_ADDRESS})
        await self._create_service("both", namespace="dual", ipFamilyPolicy="RequireDualStack")
        await self._expect(
            "the Service both has an address of each family, from the pool of its namespace",
            lambda view: _services(view)["both"] == "10.136.0.10,2001:db8:136::10",
        )
        await self._create_service("api", port=80)
        await self._expect(
            "the Service api waits, because web uses its port: its condition names the key cidr-global",
            lambda view: (
                "cidr-global"
                in find_condition(view.guests["demo"].services["api"], _CONDITION).get("message", "")
            ),
        )

    async def _create_service(
        self,
        name: str,
        *,
        namespace: str = "default",
        port: int = 80,
        annotations: dict[str, str] | None = None,
        **spec: str,
    ) -> None:
        self.stage.report.step(f"a user creates the Service {name}, port {port}")
        body = {
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": port}], **spec},
        }
        await self.stage.guests["demo"].client.create(f"/api/v1/namespaces/{namespace}/services", body)

    async def _request_addresses(self) -> None:
        stage = self.stage
        stage.report.chapter("More addresses")
        static, dynamic = read_example("floatingip-static.yaml"), read_example("floatingip-dynamic.yaml")
        stage.report.step(f"demo-vip requests {STATIC_ADDRESS} for demo")
        await self._create_floating_ip(static, "demo-vip", namespace_of="demo", clustername="demo")
        await self._expect(
            f"demo-vip holds {STATIC_ADDRESS}, and the ConfigMap in demo has it",
            lambda view: (
                _address(view, "demo-vip") == STATIC_ADDRESS
                and _pool(view, "demo") == {_address(view, "demo-kubevip"), STATIC_ADDRESS}
            ),
        )
        await self._expect(
            f"the Service api has {STATIC_ADDRESS}",
            lambda view: _services(view)["api"] == STATIC_ADDRESS,
        )
        stage.report.step(f"shop-vip requests {STATIC_ADDRESS} for shop")
        await self._create_floating_ip(static, "shop-vip", namespace_of="shop", clustername="shop")
        await self._expect(
            "shop-vip is refused, and its condition names the holder",
            lambda view: (
                _ready(view, "shop-vip")["reason"] == "AddressInUse"
                and "demo-vip" in _ready(view, "shop-vip")["message"]
            ),
        )
        stage.report.step("stranger, in the namespace of shop, requests an address for demo")
        await self._create_floating_ip(dynamic, "stranger", namespace_of="shop", clustername="demo")
        await self._expect(
            "stranger is refused: its namespace belongs to shop",
            lambda view: _ready(view, "stranger")["reason"] == "ClusterMismatch",
        )
        stage.report.step("an administrator empties spec.ipaddress of demo-vip")
        path = f"{self._floating_ips('demo')}/demo-vip"
        await stage.management.client.patch(path, {"spec": {"ipaddress": ""}})

    async def _create_floating_ip(
        self, example: Json, name: str, *, namespace_of: str, clustername: str
    ) -> None:
        annotations = {**example["metadata"]["annotations"], "clustername": clustername}
        metadata = {"name": name, "annotations": annotations}
        path = self._floating_ips(namespace_of)
        await self.stage.management.client.create(path, {**example, "metadata": metadata})

    def _floating_ips(self, guest: str) -> str:
        return f"{OURS}/namespaces/{self.guests[guest].cluster_id}/floatingips"

    async def _delete_plain(self) -> None:
        self.stage.report.chapter("plain is deleted in Rancher")
        address = _address(await self._observe(), "plain-kubevip")
        await self.stage.player.delete_guest(self.guests["plain"])
        await self._expect(
            f"the address of plain, {address}, is in quarantine before another guest cluster can get it",
            lambda view: view.reservations[address]["spec"]["quarantinedUntil"],
        )

    async def _watch_a_quiet_fleet(self) -> None:
        stage = self.stage
        stage.report.chapter("Nothing changes for a while")
        demo = self.guests["demo"].cluster_id
        await asyncio.sleep(INTERVAL_SECONDS)
        before = await self._count_visits()
        stage.proxy.forget_requests(demo)

        async def are_visited() -> bool:
            return await self._count_visits() >= before + 2

        try:
            await eventually(are_visited, seconds=_PATIENCE_SECONDS, what="two visits to demo")
        except DeadlineError as error:
            stage.report.step(str(error))
        requests = stage.proxy.requests_of(demo)
        stage.report.step(
            f"fipop visits demo every {INTERVAL_SECONDS} s: {len(requests)} requests in 2 visits"
        )
        stage.report.check(
            "the visits write nothing to demo, and start no helm",
            holds=bool(requests)
            and not any(one.is_write or one.user_agent.startswith("Helm") for one in requests),
        )

    async def _give_each_service_an_address(self) -> None:
        stage = self.stage
        stage.report.chapter("Each Service in demo gets an address of its own")
        users, client = stage.guests["demo"].client, stage.management.client
        await client.patch(_OPTIONS, {"data": {"serviceVisitSeconds": "2"}})
        await asyncio.sleep(_OPTIONS_SECONDS)  # until then fipop reads its options
        # Two floating IPs are there, and are in use.
        limits = {"minAllocate": 1, "preAllocate": 1, "maxAllocate": 6, "releaseAfterSeconds": 10}
        await client.patch(_RANGE, {"spec": {"perGuest": limits, "quarantineSeconds": 1}})
        stage.report.step(
            "an administrator sets perGuest of the range: a guest cluster has up to 6 floating IPs"
        )
        await self._expect(
            "fipop makes a spare floating IP for demo",
            lambda view: _address(view, _MADE[0]) in _pool(view, "demo"),
        )
        await users.create("/api/v1/namespaces", {"metadata": {"name": "apps"}})
        for name in _APPS:
            await self._create_service(name, namespace="apps")
        await self._expect(
            "four Services have addresses, and nobody created a floating IP",
            lambda view: (
                len({_services(view)[name] for name in _APPS[:4]} - {""}) == 4
                and {_services(view)[name] for name in _APPS[:4]} == {_address(view, name) for name in _MADE}
            ),
        )
        await self._expect(
            "the fifth one waits, and demo-kubevip says for what",
            lambda view: (
                not _services(view)[_APPS[4]]
                and _APPS[4] in find_condition(view.floating_ips["demo-kubevip"], "DemandMet")["message"]
            ),
            seconds=_REPORT_SECONDS,
        )
        await self._expect(
            "each floating IP names the Service that uses it",
            lambda view: all(
                _services(view)[name.partition("/")[2]] == _address(view, made)
                for made in _MADE
                for name in view.floating_ips[made]["status"]["services"]["names"]
            ),
            seconds=_REPORT_SECONDS,
        )
        found = parse_metrics(await stage.operator.metrics())
        unmet = [
            one
            for one in found
            if one.name == "fipop_guest_demand_met" and one.labels["guest_cluster"] == "demo"
        ]
        stage.report.check(
            "a metric shows that the demand is not met", holds=[one.value for one in unmet] == [0.0]
        )
        given = (await self._run_fipop("who", "apps/app-1"))[1]
        stage.report.check(
            "fipop who finds the address of the Service apps/app-1", holds="demo-kubevip-" in given
        )
        await self._let_go(limits)

    async def _let_go(self, limits: dict[str, int]) -> None:
        view = await self._observe()
        kept = {_services(view)[name] for name in _APPS[:2]}
        left = {_services(view)[name] for name in _APPS[2:4]}
        for name in reversed(_APPS[2:]):
            self.stage.report.step(f"a user deletes the Service {name}")
            await self.stage.guests["demo"].client.delete(f"/api/v1/namespaces/apps/services/{name}")
        await self.stage.management.client.patch(_RANGE, {"spec": {"perGuest": {**limits, "preAllocate": 0}}})
        await self._expect(
            "fipop deletes the two floating IPs that no Service uses, and no other",
            lambda view: {_address(view, name) for name in _MADE} - {""} == kept,
        )
        await self._expect(
            f"their addresses {', '.join(sorted(left))} come back at the end of their quarantine",
            lambda view: view.reservations.keys().isdisjoint(left),
            seconds=_QUARANTINE_SECONDS,
        )

    async def _give_shop_other_values(self) -> None:
        stage = self.stage
        stage.report.chapter("An override gives shop another interface")
        before = (await self._observe()).guests["demo"].releases
        stage.report.step(
            "an administrator sets kubevipUpdate, and an entry of kubevipChartValuesOverrides for shop"
        )
        options = {"kubevipUpdate": "true", "kubevipChartValuesOverrides": _OVERRIDE}
        await stage.management.client.patch(_OPTIONS, {"data": options})
        await self._expect(
            "kube-vip in shop is upgraded once, and uses the other interface",
            lambda view: (
                view.guests["shop"].releases["kube-vip"].revision == 2
                and {"name": "vip_interface", "value": "eth1"} in _environment(view, "shop")
            ),
        )
        stage.report.check(
            "the releases in demo stay as they are",
            holds=(await self._observe()).guests["demo"].releases == before,
        )
        code, text = await self._run_fipop("values", "shop")
        stage.report.check(
            "fipop values shows the entry that the interface is from",
            holds=code == 0 and "override other-interface" in text,
        )

    async def _count_visits(self) -> float:
        labels = {"guestclustername": "demo", "event": "api_connection"}
        return sum(
            one.value
            for one in parse_metrics(await self.stage.operator.metrics())
            if one.name == "kubefipoperator_guestcluster_events" and labels.items() <= one.labels.items()
        )

    async def _check_what_must_not_be(self) -> None:
        view = await self._observe()
        demo, shop = view.guests["demo"], view.guests["shop"]
        check = self.stage.report.check
        check(
            "demo-vip has kept its address, although its spec was emptied",
            holds=_address(view, "demo-vip") == STATIC_ADDRESS,
        )
        check(
            "the ConfigMap in demo still has the keys of its users, and the Service fixed the address of its user",
            holds=_USER_KEYS.items() <= demo.pools.items() and _services(view).get("fixed") == _USER_ADDRESS,
        )
        check(
            "no guest cluster has an address of another one in its ConfigMap",
            holds=bool(shop.pools)
            and STATIC_ADDRESS not in _pool(view, "shop")
            and _address(view, "stranger") not in _pool(view, "demo"),
        )
        log = self.stage.operator.process.log.read_text(errors="replace")
        tokens = [guest.token.partition(":")[2] for guest in self.guests.values()]
        check(
            "the log of the operator has no token of a guest cluster",
            holds=bool(log) and not any(token in log for token in tokens),
        )

    async def _expect(
        self, fact: str, test: Callable[[FleetView], Any], *, seconds: float = _PATIENCE_SECONDS
    ) -> None:
        """Wait until the fleet is as it should be. `test` may fail to find what is not there yet."""

        async def look() -> bool:
            return bool(test(await self._observe()))

        try:
            holds = await eventually(look, seconds=seconds, what=fact)
        except DeadlineError:
            holds = False
        self.stage.report.check(fact, holds=holds)

    async def _observe(self) -> FleetView:
        guests = {name: plane.client for name, plane in self.stage.guests.items()}
        return await observe_fleet(self.stage.management.client, guests)

    async def _run_fipop(self, *arguments: str) -> tuple[int, str]:
        """Run a command with an administrator's kubeconfig, and show what it prints; that and its exit code."""
        process = await asyncio.create_subprocess_exec(
            *(str(_FIPOP), *arguments, "--kubeconfig", str(self.stage.management.admin_kubeconfig)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=build_environment(self.stage.fleet.folder),
        )
        async with asyncio.timeout(_PATIENCE_SECONDS):
            out, _ = await process.communicate()
        self.stage.report.output(f"fipop {' '.join(arguments)}", out.decode())
        return process.returncode or 0, out.decode()


def read_example(name: str) -> Json:
    """Return a manifest of the folder `examples/`, as users create it."""
    manifest: Json = yaml.safe_load((EXAMPLES / name).read_text())
    return manifest


def _address(view: FleetView, floating_ip: str) -> str:
    return ",".join(addresses_of(view.floating_ips.get(floating_ip)))


def _ready(view: FleetView, floating_ip: str) -> Json:
    return find_condition(view.floating_ips[floating_ip], "Ready")


def _pool(view: FleetView, guest: str) -> set[str]:
    """Return the addresses of the key that fipop writes for all namespaces of a guest cluster."""
    return {one.removesuffix("/32") for one in view.guests[guest].pools.get("cidr-global", "").split(",")}


def _services(view: FleetView) -> dict[str, str]:
    """Return the addresses of the Services in demo, by name."""
    found = view.guests["demo"].services.items()
    return {name: (one["metadata"].get("annotations") or {}).get(_ANNOTATION, "") for name, one in found}


def _environment(view: FleetView, guest: str) -> list[Json]:
    """Return the environment of fipop's kube-vip in a guest cluster."""
    return [
        variable
        for one in view.guests[guest].daemon_sets.values()
        if (one["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name") == "kube-vip"
        for variable in one["spec"]["template"]["spec"]["containers"][0]["env"]
    ]


def _is_served(guest: GuestView) -> bool:
    """Return whether helm deployed both releases at its first attempt, and their pods are ready."""
    releases = [guest.releases[name] for name in _RELEASES]
    workloads = [*guest.daemon_sets.values(), *guest.deployments.values()]
    owners = [
        (one["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name") for one in workloads
    ]
    pods = [count_pods(one) for one, owner in zip(workloads, owners, strict=True) if owner in _RELEASES]
    return (
        all((one.status, one.revision) == ("deployed", 1) for one in releases)
        and len(pods) == len(releases)
        and all(0 < wanted == ready for wanted, ready in pods)
    )
