"""status, who, free, history and check against a real management cluster with a guest."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from localfleet.stack import build_floating_ip, floating_ips
from localfleet.waiting import eventually
from tests.api.cli.commands import PROGRAM, Commands, write_reader
from tests.api.cli.conftest import Seen

pytestmark = pytest.mark.xdist_group("installs")


@asynccontextmanager
async def with_wish(seen: Seen, name: str, **spec: Any) -> AsyncIterator[None]:
    """Have a floating IP in the guest's namespace for a while, once the operator has spoken of it."""
    path = floating_ips(seen.guest.id)
    await seen.stack.client.create(path, build_floating_ip(seen.guest.id, name, range_name="vlan", **spec))

    async def is_told() -> bool:
        found = await seen.stack.floating_ip(seen.guest.id, name)
        return bool((found.get("status") or {}).get("conditions"))

    try:
        await eventually(is_told, what=f"a word about {name}")
        yield
    finally:
        await seen.stack.client.delete(f"{path}/{name}")


async def test_free_tells_what_comes_next_and_the_operator_does_so(seen: Seen) -> None:
    found = (await seen.commands.run("free", "vlan", "--count", "3", "-o", "json")).json()
    assert len(found["addresses"]) == 3
    assert found["free"] == 253
    async with with_wish(seen, "next"):
        got = await seen.stack.floating_ip(seen.guest.id, "next")
        assert got["spec"]["ipaddress"] == found["addresses"][0]
    assert '"nothing"' in (await seen.commands.run("free", "nothing")).err


async def read_options(seen: Seen) -> dict[str, str]:
    found = await seen.stack.client.get("/api/v1/namespaces/kube-fip/configmaps/kube-fip-config")
    return dict(found["data"])


async def test_a_rollout_is_paused_and_resumed_with_the_rights_of_the_user(seen: Seen) -> None:
    shown = (await seen.commands.run("rollout", "status", "-o", "json")).json()
    assert shown["charts"]["kube-vip"]
    assert (await seen.commands.run("rollout", "pause")).code == 0
    assert (await read_options(seen))["kubevipRolloutPaused"] == "true"
    assert (await seen.commands.run("rollout", "resume")).code == 0
    assert (await read_options(seen))["kubevipRolloutPaused"] == "false"
    nothing = await seen.commands.run("rollout", "retry")
    assert (nothing.code, "nothing to retry" in nothing.err) == (1, True)


async def test_a_reader_without_some_rights_gets_the_rest_and_is_told(seen: Seen, tmp_path: Path) -> None:
    plane, name = seen.stack.plane, "half-reader"
    await plane.client.create(
        "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name, "namespace": "default"}}
    )
    rules = [
        {
            "apiGroups": ["kubefip.k8s.binbash.org"],
            "resources": ["floatingipranges", "floatingips"],
            "verbs": ["list"],
        }
    ]
    roles = "/apis/rbac.authorization.k8s.io/v1"
    await plane.client.create(f"{roles}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    await plane.client.create(f"{roles}/clusterrolebindings", binding)
    token = await plane.token_for("default", name)
    reader = Commands(kubeconfig=write_reader(tmp_path / "reader", plane.kubeconfig_for_token(token)))
    ended = await reader.run("status")
    assert ended.code == 4, ended.out + ended.err
    assert "vlan" in ended.out
    assert "list floatingipreservations.kubefip.k8s.binbash.org" in ended.err
    assert "get configmaps in kube-fip" in ended.err
    found = json.loads((await reader.run("status", "-o", "json")).out)
    assert "reservations" in {each["what"] for each in found["unread"]}
    assert (await reader.run("who", seen.address)).code == 4
    checked = await reader.run("check")
    assert checked.code == 4
    assert "‼" in checked.out


async def test_kubectl_runs_it_as_a_plugin(seen: Seen) -> None:
    folder = f"{PROGRAM.parent}:/usr/bin:/bin"
    kubectl = Commands(
        kubeconfig=seen.commands.kubeconfig,
        environment={"PATH": folder},
        program=seen.stack.fleet.programs["kubectl"],
    )
    ended = await kubectl.run("fip", "who", seen.address)
    assert ended.code == 0, ended.err
    assert seen.address in ended.out
