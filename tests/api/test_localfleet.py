"""The local fleet itself: what the other tests of this folder rely on."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.errors import ApiError
from localfleet.fleet import LocalFleet
from localfleet.guard import guarded
from localfleet.waiting import eventually
from localfleet.workspace import Workspace

ON_MANAGEMENT = pytest.mark.xdist_group("management")
ON_GUESTS = pytest.mark.xdist_group("guest")

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def daemon_set(name: str, node_selector: dict[str, str] | None = None) -> Json:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": node_selector or {},
                    "containers": [{"name": "main", "image": "example.invalid/none"}],
                },
            },
        },
    }


@ON_MANAGEMENT
async def test_a_token_of_a_service_account_may_do_what_its_role_says_and_no_more(
    management: ControlPlane, namespace: str
) -> None:
    """RBAC, the ServiceAccount issuer and TokenRequest are real."""
    place = f"/api/v1/namespaces/{namespace}"
    await management.client.create(f"{place}/serviceaccounts", {"metadata": {"name": "reader"}})
    await management.client.create(f"{place}/configmaps", config_map("seen", key="value"))
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    await management.client.create(f"{roles}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    await management.client.create(
        f"{roles}/rolebindings",
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
        },
    )
    async with management.client_as(await management.token_for(namespace, "reader")) as reader:

        async def read() -> str:
            seen = await reader.get(f"{place}/configmaps/seen")
            return str(seen["data"]["key"])

        assert await eventually(read, what="the role to work") == "value"
        with pytest.raises(ApiError) as refused:
            await reader.delete(f"{place}/configmaps/seen")
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")


@ON_MANAGEMENT
async def test_nobody_may_do_anything_with_a_wrong_token(management: ControlPlane) -> None:
    async with management.client_as("wrong") as stranger:
        with pytest.raises(ApiError) as refused:
            await stranger.get(CONFIG_MAPS)
    assert refused.value.status == 401


@ON_MANAGEMENT
async def test_a_namespace_goes_with_all_that_is_in_it(management: ControlPlane) -> None:
    await management.create_namespace("going")
    await management.client.create("/api/v1/namespaces/going/configmaps", config_map("inside"))
    await management.client.delete("/api/v1/namespaces/going")

    async def is_gone() -> bool:
        return await management.client.find("/api/v1/namespaces/going") is None

    await eventually(is_gone, seconds=60, what="the namespace to be gone")


@ON_MANAGEMENT
async def test_what_an_owner_leaves_behind_is_collected(management: ControlPlane, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = await management.client.create(place, config_map("owner"))
    owned = config_map("owned")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    ]
    await management.client.create(place, owned)
    await management.client.delete(f"{place}/owner")

    async def is_gone() -> bool:
        return await management.client.find(f"{place}/owned") is None

    await eventually(is_gone, seconds=60, what="the owned object to be collected")


@ON_GUESTS
async def test_services_may_have_both_families(guest: ControlPlane) -> None:
    service = await guest.client.create(
        "/api/v1/namespaces/default/services",
        {
            "metadata": {"name": "both"},
            "spec": {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}], "type": "LoadBalancer"},
        },
    )
    assert service["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    await guest.client.delete("/api/v1/namespaces/default/services/both")


@ON_GUESTS
async def test_a_daemon_set_becomes_ready_and_loses_its_pods_when_it_is_parked(guest: ControlPlane) -> None:
    place = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    await guest.client.create(place, daemon_set("parked", {"node-role.kubernetes.io/control-plane": "true"}))

    async def ready() -> int:
        return int((await guest.client.get(f"{place}/parked"))["status"]["numberReady"])

    async def pods() -> list[Json]:
        return await guest.client.items("/api/v1/namespaces/kube-system/pods", labelSelector="app=parked")

    await eventually(ready, what="the DaemonSet to be ready")
    assert len(await pods()) == 1
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"parked": "true"}}}}}
    await guest.client.patch(f"{place}/parked", selector)

    async def is_parked() -> bool:
        status = (await guest.client.get(f"{place}/parked"))["status"]
        return status["desiredNumberScheduled"] == 0 and not await pods()

    await eventually(is_parked, what="the parked DaemonSet to have no pods")
    await guest.client.delete(f"{place}/parked")


@ON_GUESTS
async def test_a_deployment_rolls_out_and_a_pod_has_an_address(guest: ControlPlane) -> None:
    await guest.kubectl("create", "deployment", "small", "--image=example.invalid/none", "--replicas=2")
    await guest.kubectl("rollout", "status", "deployment/small", "--timeout=60s")
    pods = await guest.client.items("/api/v1/namespaces/default/pods", labelSelector="app=small")
    assert len({pod["status"]["podIP"] for pod in pods}) == 2
    await guest.kubectl("delete", "deployment", "small", "--cascade=foreground", "--timeout=60s")


@pytest.mark.slow
@ON_GUESTS
async def test_guests_on_one_etcd_do_not_see_each_other(
    guest: ControlPlane, second_guest: ControlPlane
) -> None:
    await guest.client.create(CONFIG_MAPS, config_map("mine"))
    assert await second_guest.client.find(f"{CONFIG_MAPS}/mine") is None
    await guest.client.delete(f"{CONFIG_MAPS}/mine")
    assert guest.ca_pem != second_guest.ca_pem


@ON_MANAGEMENT
async def test_a_watch_tells_what_is_there_and_what_changes(management: ControlPlane, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/configmaps"
    await management.client.create(place, config_map("first"))
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(60):
        async for event in management.client.watch(place):
            name = event["object"]["metadata"]["name"]
            if name == "kube-root-ca.crt":
                continue
            seen.append((event["type"], name))
            if len(seen) == 1:
                await management.client.create(place, config_map("second"))
                await management.client.delete(f"{place}/first")
            if len(seen) == 3:
                break
    assert seen == [("ADDED", "first"), ("ADDED", "second"), ("DELETED", "first")]


@ON_MANAGEMENT
@pytest.mark.slow
async def test_an_outage_ends_at_the_same_address_and_with_the_same_objects(
    management: ControlPlane, namespace: str
) -> None:
    plane, place = management, f"/api/v1/namespaces/{namespace}/configmaps"
    await plane.client.create(place, config_map("kept"))
    token, url = await plane.token_for(namespace, "default"), plane.url
    await plane.stop_api()
    try:
        with pytest.raises(aiohttp.ClientError):
            await plane.client.get(place)
    finally:
        await plane.start_api()
    assert plane.url == url
    assert await plane.client.find(f"{place}/kept")
    async with plane.client_as(token) as user:
        with pytest.raises(ApiError) as refused:
            await user.get(place)
    assert refused.value.status == 403, "the token is still known"


@ON_MANAGEMENT
async def test_a_paused_control_plane_takes_connections_and_does_not_answer(management: ControlPlane) -> None:
    management.pause()
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await management.client.get(CONFIG_MAPS)
    finally:
        management.resume()
    await management.client.get(CONFIG_MAPS)


@ON_MANAGEMENT
@pytest.mark.slow
async def test_a_restored_store_knows_only_what_it_knew_then(
    management: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    plane, place = management, f"/api/v1/namespaces/{namespace}/configmaps"
    await plane.client.create(place, config_map("before"))
    await plane.etcd.snapshot(tmp_path / "snapshot")
    later = await plane.client.create(place, config_map("after"))

    await plane.etcd.restore(tmp_path / "snapshot")
    await plane.restart()

    names = {item["metadata"]["name"] for item in await plane.client.items(place)}
    assert "before" in names
    assert "after" not in names
    listed = await plane.client.get(place)
    assert int(listed["metadata"]["resourceVersion"]) <= int(later["metadata"]["resourceVersion"]) + 100


OWNER = """
import signal

# A shell that starts tests in the background has them ignore ctrl-C, and what they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

import asyncio
from localfleet.fleet import LocalFleet
from localfleet.guard import guarded

async def main():
    async with LocalFleet() as fleet:
        plane = await fleet.management(controllers=())
        print(plane.api.pid, plane.etcd.process.pid, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


async def start_owner(folder: Path) -> tuple[asyncio.subprocess.Process, list[str]]:
    """A process with a fleet of its own below `folder`, and the ids of the processes that it started."""
    owner = await asyncio.create_subprocess_exec(
        *guarded([sys.executable, "-c", OWNER]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert owner.stdout is not None
    return owner, (await owner.stdout.readline()).decode().split()


@pytest.mark.slow
@ON_MANAGEMENT
async def test_ctrl_c_ends_everything_and_leaves_nothing(fleet: LocalFleet, tmp_path: Path) -> None:
    owner, pids = await start_owner(tmp_path)
    owner.send_signal(signal.SIGINT)
    await owner.wait()
    assert not any(is_alive(pid) for pid in pids)
    assert not fleet_folders(tmp_path)


@ON_MANAGEMENT
async def test_nothing_survives_a_killed_owner_and_its_folder_goes_with_the_next(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    """The kernel ends the processes; the folder is removed by the next fleet, as the dead can't."""
    owner, pids = await start_owner(tmp_path)
    owner.send_signal(signal.SIGKILL)
    await owner.wait()

    async def are_dead() -> bool:
        return not any(is_alive(pid) for pid in pids)

    await eventually(are_dead, seconds=30, what="the processes to end")
    assert fleet_folders(tmp_path)
    with Workspace(tmp_path) as workspace:
        assert fleet_folders(tmp_path) == [workspace.path]


def fleet_folders(parent: Path) -> list[Path]:
    return list(parent.glob("fipop-fleet-*"))


def is_alive(pid: str) -> bool:
    """Whether it runs; a dead one that nobody has buried yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
