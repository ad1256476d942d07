"""The program that plays Rancher, on real control planes: what the operator's tests rely on."""

import asyncio
import base64
import itertools
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from localfleet.assets import ensure
from localfleet.certificates import build_authority
from localfleet.chartrepo import ChartRepository
from localfleet.client import ApiClient, Json
from localfleet.controlplane import ControlPlane, is_true
from localfleet.errors import ApiError, ToolFailedError
from localfleet.fleet import LocalFleet
from localfleet.harvester_guest import DAEMON_SET, install_harvester_kube_vip
from localfleet.helm import CLOUD_PROVIDER, KUBE_VIP, KUBE_VIP_OLD, Helm
from localfleet.proxy import RancherProxy
from localfleet.rancher import RancherPlayer
from localfleet.rancher_plan import REAL_ORDER, Guest, GuestKind, Step
from localfleet.registry import OciRegistry
from localfleet.routes import upstream_of
from localfleet.waiting import eventually

pytestmark = pytest.mark.xdist_group("guest-charts")

CLUSTERS = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters"
MANAGEMENT = "/apis/management.cattle.io/v3/clusters"


@pytest_asyncio.fixture
async def player(management: ControlPlane) -> AsyncIterator[RancherPlayer]:
    async with RancherProxy(build_authority("rancher", datetime.now(UTC))) as proxy:
        player = RancherPlayer(
            management.client, proxy, kubeconfig_delay_seconds=0.05, token_delay_seconds=0.3
        )
        await player.set_up()
        await player.create_harvester()
        yield player
        for guest in list(player.guests.values()):
            await player.delete_guest(guest)


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(program=ensure("helm"), home=tmp_path / "helm")


async def guest_client(player: RancherPlayer, guest: Guest) -> ApiClient:
    """A connection made of what the kubeconfig Secret says, as a reader of it makes one."""
    place = f"/api/v1/namespaces/fleet-default/secrets/{guest.plan.kubeconfig_secret}"
    secret = await player.client.get(place)
    kubeconfig = yaml.safe_load(base64.b64decode(secret["data"]["value"]))
    cluster = kubeconfig["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    trust = ssl.create_default_context(cadata=authority)
    return ApiClient(cluster["server"], trust, token=kubeconfig["users"][0]["user"]["token"])


async def test_a_new_guest_has_all_that_rancher_makes_and_is_reached_through_its_secret(
    player: RancherPlayer, guest: ControlPlane
) -> None:
    made = await player.create_guest(
        player.plan_guest("new", labels={"kube-vip": "true"}), upstream_of(guest)
    )
    cluster = await player.client.get(f"{CLUSTERS}/new")
    assert cluster["status"]["clusterName"] == made.cluster_id
    assert is_true(cluster, "Connected")
    assert is_true(await player.client.get(f"{MANAGEMENT}/{made.cluster_id}"), "Connected")
    namespace = await player.client.get(f"/api/v1/namespaces/{made.cluster_id}")
    assert namespace["metadata"]["annotations"]["management.cattle.io/system-namespace"] == "true"
    configs = "/apis/rke-machine-config.cattle.io/v1/namespaces/fleet-default/harvesterconfigs"
    config = await player.client.get(f"{configs}/nc-new-pool1")
    assert config["metadata"]["ownerReferences"][0]["uid"] == cluster["metadata"]["uid"]
    async with await guest_client(player, made) as client:
        assert await client.items("/api/v1/nodes") == await guest.client.items("/api/v1/nodes")
    assert [seen.path for seen in player.proxy.requests_of(made.cluster_id)] == ["/api/v1/nodes"]


async def test_the_token_is_bound_a_moment_after_its_secret(
    player: RancherPlayer, guest: ControlPlane
) -> None:
    coming = asyncio.create_task(player.create_guest(player.plan_guest("early"), upstream_of(guest)))

    async def secret() -> Json | None:
        return await player.client.find("/api/v1/namespaces/fleet-default/secrets/early-kubeconfig")

    await eventually(secret, what="the Secret to appear")
    (early,) = player.guests.values()
    async with await guest_client(player, early) as client:
        with pytest.raises(ApiError) as refused:
            await client.get("/version")
        assert refused.value.status == 403
        await coming
        assert await client.get("/version")


@pytest.mark.parametrize(
    "last", [Step.HARVESTER_CONFIG, Step.CREDENTIAL, Step.NAMESPACE, Step.LINK, Step.CONNECTED]
)
async def test_any_part_of_a_guest_may_come_last(
    player: RancherPlayer, guest: ControlPlane, last: Step
) -> None:
    order = [*(step for step in REAL_ORDER if step is not last), last]
    made = await player.create_guest(player.plan_guest("turned"), upstream_of(guest), order=order)
    cluster = await player.client.get(f"{CLUSTERS}/turned")
    assert cluster["status"]["clusterName"] == made.cluster_id
    assert cluster["status"]["ready"] is True


async def test_an_order_that_rancher_could_not_take_is_refused(player: RancherPlayer) -> None:
    with pytest.raises(ValueError, match="LINK"):
        await player.create_guest(player.plan_guest("odd"), order=[Step.LINK, Step.PROVISIONING])


async def test_a_removed_guest_leaves_nothing_behind(player: RancherPlayer, guest: ControlPlane) -> None:
    made = await player.create_guest(player.plan_guest("gone"), upstream_of(guest))
    await player.delete_guest(made)
    assert await player.client.find(f"{CLUSTERS}/gone") is None
    assert await player.client.find(f"{MANAGEMENT}/{made.cluster_id}") is None
    assert await player.client.find("/api/v1/namespaces/fleet-default/secrets/gone-kubeconfig") is None

    async def is_namespace_gone() -> bool:
        return await player.client.find(f"/api/v1/namespaces/{made.cluster_id}") is None

    await eventually(is_namespace_gone, what="the namespace to go", seconds=30)


async def test_a_lost_agent_shows_in_the_condition_and_at_the_proxy_but_not_in_ready(
    player: RancherPlayer, guest: ControlPlane
) -> None:
    made = await player.create_guest(player.plan_guest("lost"), upstream_of(guest))
    await player.disconnect(made)
    assert not is_true(await player.client.get(f"{MANAGEMENT}/{made.cluster_id}"), "Connected")
    assert (await player.client.get(f"{CLUSTERS}/lost"))["status"]["ready"] is True
    async with await guest_client(player, made) as client:
        with pytest.raises(ApiError) as refused:
            await client.get("/version")
        assert refused.value.status == 503
        await player.reconnect(made)
        assert await client.get("/version")
    assert is_true(await player.client.get(f"{MANAGEMENT}/{made.cluster_id}"), "Connected")


async def test_a_recreated_secret_has_another_token_and_the_old_one_is_worth_nothing(
    player: RancherPlayer, guest: ControlPlane
) -> None:
    made = await player.create_guest(player.plan_guest("renewed"), upstream_of(guest))
    async with await guest_client(player, made) as old:
        await player.recreate_secret(made)
        with pytest.raises(ApiError) as refused:
            await old.get("/version")
        assert refused.value.status == 401
    async with await guest_client(player, made) as new:
        assert await new.get("/version")


async def test_keep_connected_moves_the_time_of_those_that_are(player: RancherPlayer) -> None:
    there = await player.create_guest(player.plan_guest("there"))
    away = await player.create_guest(player.plan_guest("away"))
    await player.disconnect(away)
    versions = [await version_of(player, guest) for guest in (there, away)]
    pinging = asyncio.create_task(player.keep_connected(period_seconds=1.1))

    async def has_moved() -> bool:
        return await version_of(player, there) != versions[0]

    try:
        await eventually(has_moved, what="the condition of a connected guest to be refreshed")
    finally:
        pinging.cancel()
    assert await version_of(player, away) == versions[1]


async def version_of(player: RancherPlayer, guest: Guest) -> str:
    cluster = await player.client.get(f"{MANAGEMENT}/{guest.cluster_id}")
    return str(cluster["metadata"]["resourceVersion"])


@pytest.mark.parametrize("kind", list(GuestKind))
async def test_guests_of_every_kind_come_up(
    player: RancherPlayer, guest: ControlPlane, kind: GuestKind
) -> None:
    made = await player.create_guest(player.plan_guest("kind", kind=kind), upstream_of(guest))
    cluster = await player.client.get(f"{CLUSTERS}/{made.plan.provisioning_name}")
    assert cluster["status"]["clusterName"] == made.cluster_id
    assert ("rkeConfig" in cluster["spec"]) is (kind in (GuestKind.HARVESTER, GuestKind.OTHER_MACHINES))
    async with await guest_client(player, made) as client:
        assert await client.get("/version")


@pytest.mark.slow  # all tests of installs rely on it
async def test_helm_installs_our_charts_through_the_proxy_and_their_workloads_become_ready(
    player: RancherPlayer, guest: ControlPlane, helm: Helm, tmp_path: Path
) -> None:
    """And it refuses to adopt what the Harvester cloud provider has left under the name of ours."""
    made = await player.create_guest(player.plan_guest("charts"), upstream_of(guest))
    await install_harvester_kube_vip(guest.client)
    secret = await player.client.get(
        f"/api/v1/namespaces/fleet-default/secrets/{made.plan.kubeconfig_secret}"
    )
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(base64.b64decode(secret["data"]["value"]))
    target = ("--namespace", "kube-system", "--kubeconfig", kubeconfig)
    async with ChartRepository() as charts:
        for version in (KUBE_VIP_OLD, KUBE_VIP, CLOUD_PROVIDER):
            charts.publish(await helm.pack(version, tmp_path))
        with pytest.raises(ToolFailedError, match="invalid ownership metadata"):
            await helm.run("install", "kube-vip", "kube-vip", "--repo", charts.url, *target)
        await helm.run(
            *("upgrade", "--install", "kube-vip", "kube-vip", "--repo", charts.url, *target),
            *("--set", "nameOverride=ours"),
        )
        await helm.run(
            *("install", CLOUD_PROVIDER.name, CLOUD_PROVIDER.name, "--repo", charts.url, *target),
            *("--set", "configMapName=kubevip"),
        )
        assert charts.requests["/kube-vip-0.11.0.tgz"] == 2
    apps = "/apis/apps/v1/namespaces/kube-system"

    async def is_ready() -> bool:
        daemon = (await guest.client.get(f"{apps}/daemonsets/ours"))["status"]
        provider = (await guest.client.get(f"{apps}/deployments/{CLOUD_PROVIDER.name}"))["status"]
        return bool(daemon.get("numberReady") and provider.get("readyReplicas"))

    await eventually(is_ready, what="the workloads of both charts to become ready", seconds=30)
    assert (await guest.client.get(DAEMON_SET))["status"]["numberReady"] >= 1
    assert {"POST", "GET"} <= {
        seen.method
        for seen in player.proxy.requests_of(made.cluster_id)
        if seen.user_agent.startswith("Helm")
    }
    for release in ("kube-vip", CLOUD_PROVIDER.name):
        await helm.run("uninstall", release, *target)
    await guest.client.delete(DAEMON_SET)


async def test_a_number_in_env_is_refused_by_the_api_server_as_with_the_real_chart(
    guest: ControlPlane, helm: Helm, tmp_path: Path
) -> None:
    archive = await helm.pack(KUBE_VIP, tmp_path)
    with pytest.raises(ToolFailedError, match="env"):
        await helm.run(
            *(
                "install",
                "numbers",
                archive,
                "--kubeconfig",
                guest.admin_kubeconfig,
                "--set",
                "env.lb_port=6443",
            ),
        )


async def test_a_repository_can_go_away_and_its_index_can_change(helm: Helm, tmp_path: Path) -> None:
    async with ChartRepository() as charts:
        show = ("show", "chart", "kube-vip", "--repo", charts.url)
        charts.publish(await helm.pack(KUBE_VIP_OLD, tmp_path))
        assert "version: 0.9.9" in await helm.run(*show)
        charts.publish(await helm.pack(KUBE_VIP, tmp_path))
        assert "version: 0.11.0" in await helm.run(*show)
        charts.retract("kube-vip", "0.11.0")
        assert "version: 0.9.9" in await helm.run(*show)
        charts.unavailable = True
        with pytest.raises(ToolFailedError, match="503"):
            await helm.run(*show)
        assert charts.requests["/index.yaml"] == 4


@pytest.mark.slow  # all tests of installs rely on it
async def test_charts_are_pushed_to_and_pulled_from_the_registry(
    fleet: LocalFleet, helm: Helm, tmp_path: Path
) -> None:
    async with OciRegistry(
        program=ensure("registry"),
        folder=tmp_path / "registry",
        ports=fleet.ports,
        authority=build_authority("registry", datetime.now(UTC)),
        helm=helm,
    ) as registry:
        for version in (KUBE_VIP_OLD, KUBE_VIP):
            await registry.push(await helm.pack(version, tmp_path))
        show = ("show", "chart", registry.reference("kube-vip"))
        assert "version: 0.11.0" in await helm.run(*show, "--ca-file", registry.ca_file)
        trust = {"SSL_CERT_FILE": str(registry.ca_file)}
        assert "version: 0.9.9" in await helm.run(*show, "--version", "0.9.9", environment=trust)
        with pytest.raises(ToolFailedError, match="certificate"):
            await helm.run(*show)
        await registry.stop()
        with pytest.raises(ToolFailedError):
            await helm.run(*show, environment=trust)
        await registry.start()
        assert "version: 0.11.0" in await helm.run(*show, environment=trust)


async def test_ids_differ_between_players_and_repeat_with_a_seed(management: ControlPlane) -> None:
    proxy = RancherProxy(build_authority("rancher", datetime.now(UTC)))
    ids = [
        RancherPlayer(management.client, proxy, seed=seed).plan_guest("x", kind=GuestKind.IMPORTED).cluster_id
        for seed in (None, None, 1, 1)
    ]
    assert len(set(itertools.islice(ids, 3))) == 3
    assert ids[2] == ids[3]
