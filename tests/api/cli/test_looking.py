"""status, who, free, history and check against a real management cluster with a guest."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from localfleet.stack import RANGES, build_floating_ip, build_range, floating_ips
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


async def test_status_of_what_is_well(seen: Seen) -> None:
    ended = await seen.commands.run("status", "--wait", "30s")
    assert ended.code == 0, ended.out + ended.err
    lines = ended.out.splitlines()
    assert lines[0].split()[:3] == ["RANGE", "SPACE", "FAMILY"]
    assert lines[1].startswith("vlan ")
    found = (await seen.commands.run("status", "-o", "json")).json()
    assert found["healthy"]
    assert found["ranges"][0]["whole"]["used"] == 1
    assert seen.address in (await seen.commands.run("status", "-o", "wide")).out


async def test_status_of_what_is_wrong_is_1_and_says_why(seen: Seen) -> None:
    async with with_wish(seen, "elsewhere", ipaddress="192.168.1.1"):
        ended = await seen.commands.run("status")
        assert ended.code == 1
        assert f"{seen.guest.id}/elsewhere: AddressOutOfRange" in ended.out
        found = (await seen.commands.run("status", "-o", "json")).json()
        assert not found["healthy"]
        waiting = await seen.commands.run("status", "--wait", "1s")
        assert waiting.code == 1
        assert "elsewhere" not in (await seen.commands.run("status", "-n", "another")).out


async def test_who_knows_an_address_and_a_cluster(seen: Seen) -> None:
    ended = await seen.commands.run("who", seen.address)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[1].split()[:4] == [
        seen.address,
        "held",
        "demo",
        f"{seen.guest.id}/demo-kubevip",
    ]
    for name in ("demo", "fleet-default/demo", seen.guest.id, "demo-kubevip"):
        found = (await seen.commands.run("who", name, "-o", "json")).json()
        assert [each["address"] for each in found["addresses"]] == [seen.address]
    asked = await seen.commands.run("who", "demo", "--guest")
    assert f"cidr-global = {seen.address}/32" in asked.out


async def test_who_knows_nothing_of_a_stranger(seen: Seen) -> None:
    for asked in ("192.0.2.1", "nobody"):
        ended = await seen.commands.run("who", asked)
        assert ended.code == 1
        assert ended.err.startswith("Error: ")
        assert asked in ended.err


async def test_free_tells_what_comes_next_and_the_operator_does_so(seen: Seen) -> None:
    found = (await seen.commands.run("free", "vlan", "--count", "3", "-o", "json")).json()
    assert len(found["addresses"]) == 3
    assert found["free"] == 253
    async with with_wish(seen, "next"):
        got = await seen.stack.floating_ip(seen.guest.id, "next")
        assert got["spec"]["ipaddress"] == found["addresses"][0]
    assert '"nothing"' in (await seen.commands.run("free", "nothing")).err


async def test_check_shows_each_part_of_a_healthy_installation(seen: Seen) -> None:
    ended = await seen.commands.run("check", "--wait", "30s")
    assert ended.code == 0, ended.out + ended.err
    checked = [line for line in ended.out.splitlines() if line.lstrip().startswith("√")]
    for named in (
        *("floatingips.kubefip.k8s.binbash.org", "fleet-default", "vlan"),
        *(f"demo-kubevip: The FloatingIP holds {seen.address}.", "Guest demo"),
    ):
        assert any(named in line for line in checked), ended.out
    assert (await seen.commands.run("check", "-o", "json")).json()["passed"]
    assert "√" not in (await seen.commands.run("check", "--problems")).out
    assert "guest demo" in (await seen.commands.run("check", "--guest", "demo")).out
    assert (await seen.commands.run("check", "--guest", "nobody")).code == 1


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


async def test_check_tells_each_failure_with_what_to_do(seen: Seen) -> None:
    broken = build_range("broken", "224.0.91.0/28", harvester="harvester-cluster1", network="vlan11")
    await seen.stack.client.create(RANGES, broken)
    try:
        ended = await seen.commands.run("check")
        assert ended.code == 1
        assert "kubectl edit floatingiprange broken" in ended.out
        waited = await seen.commands.run("check", "--wait", "1s")
        assert waited.code == 1
    finally:
        await seen.stack.client.delete(f"{RANGES}/broken")
    assert "×" in ended.out


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


async def test_an_api_server_that_is_away_is_one_sentence(tmp_path: Path, seen: Seen) -> None:
    token = await seen.stack.plane.token_for("default", "default")
    kubeconfig = seen.stack.plane.kubeconfig_for_token(token)
    kubeconfig["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{seen.stack.fleet.ports.reserve()}"
    away = Commands(kubeconfig=write_reader(tmp_path / "away", kubeconfig))
    for command in (("status",), ("who", "demo"), ("free", "vlan"), ("check",)):
        ended = await away.run(*command)
        assert ended.code == 3, command
        assert ended.err.count("\n") == 1
        assert "ConnectionRefused" in ended.err
    nothing = await Commands(kubeconfig=tmp_path / "not-there").run("status")
    assert nothing.code == 3
    assert "kubeconfig" in nothing.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "-o", "xml"),
        ("who",),
        ("free", "vlan", "--count", "0"),
        ("status", "--wait", "soon"),
        ("wat",),
    ],
)
async def test_a_mistake_in_the_command_line_is_2(seen: Seen, arguments: tuple[str, ...]) -> None:
    ended = await seen.commands.run(*arguments)
    assert ended.code == 2
    assert "Error: " in ended.err


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
