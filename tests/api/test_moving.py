"""Two installations of fipop in one management cluster, and the move from one namespace to another by its page."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.chart import copy_chart
from localfleet.errors import ToolFailedError
from localfleet.installation import NAMESPACE, RELEASE, Installation, OperatorProcess
from localfleet.stack import RANGES, Stack, build_floating_ip, build_range, condition, floating_ips
from localfleet.waiting import eventually
from tests.api.cli.commands import PROGRAM, Commands
from tests.api.emptying import clear
from tests.api.proxied import read_log
from tests.harness.documentation import DOCS, read_commands

pytestmark = pytest.mark.xdist_group("bare")

TENANT, ELSEWHERE, TARGET = "moving", "elsewhere", "fipop-system"
PAGE = DOCS / "how-to" / "move-to-another-namespace.md"
NOT_TYPED = r"kubectl .*rollout status|kubectl delete (namespace|-f)"
"""There is no kubelet here, the old namespace is the one of other tests, and the page warns of the last one."""


@dataclass(slots=True)
class Moved:
    """The stack with an operator that leads, and the programs of an administrator."""

    stack: Stack
    operator: OperatorProcess
    folder: Path
    asked: int = 0

    @property
    def installation(self) -> Installation:
        return self.stack.installation

    def commands(self, namespace: str) -> Commands:
        kubeconfig = self.stack.plane.admin_kubeconfig
        return Commands(kubeconfig=kubeconfig, environment={"FIPOP_NAMESPACE": namespace})

    async def helm(self, *arguments: str | Path) -> str:
        return await self.installation.helm.run(*arguments, "--kubeconfig", self.stack.plane.admin_kubeconfig)

    async def type(self, command: str) -> str:
        """Type a command into a shell in a folder with the chart."""
        programs = (PROGRAM, self.stack.fleet.programs["kubectl"], self.installation.helm.program)
        path = os.pathsep.join([*(str(each.parent) for each in programs), os.environ["PATH"]])
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", f"set -o pipefail; {command}"),
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={
                "PATH": path,
                "HOME": str(self.folder.parent),
                "KUBECONFIG": str(self.stack.plane.admin_kubeconfig),
            },
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, f"{command}: {out.decode()}"
        return out.decode()

    async def ask(self) -> str:
        """Ask for an address; return it."""
        self.asked += 1
        name = f"wish-{self.asked}"
        wish = build_floating_ip(TENANT, name, range_name="moving")
        await self.stack.client.create(floating_ips(TENANT), wish)

        async def is_served() -> bool:
            found = await self.stack.floating_ip(TENANT, name)
            return condition(found, "Allocated").get("status") == "True"

        await eventually(is_served, seconds=90, what=f"{name} to be served")
        return name


@pytest_asyncio.fixture
async def moved(bare_stack: Stack, tmp_path: Path) -> AsyncIterator[Moved]:
    if await bare_stack.client.find(f"/api/v1/namespaces/{TENANT}") is None:
        await bare_stack.plane.create_namespace(TENANT)
    await bare_stack.client.create(RANGES, build_range("moving", "10.32.0.0/24", quarantineSeconds=1))
    operator = await bare_stack.start_operator(name=f"moving-{tmp_path.name}")
    moved = Moved(bare_stack, operator, copy_chart(tmp_path / "chart"))
    yield moved
    last = bare_stack.operators[-1]
    if not last.process.is_running:
        await last.start()
    await clear(bare_stack)
    await last.stop()


async def test_a_second_installation_is_refused_or_waits_and_says_which_one_leads(moved: Moved) -> None:
    await moved.ask()
    where = ("--namespace", ELSEWHERE, "--create-namespace", "--set", "replicas=0")
    with pytest.raises(ToolFailedError) as refused:
        await moved.helm("install", "second", moved.folder, *where)
    assert f"fipop runs in namespace {NAMESPACE} of this cluster already" in str(refused.value)

    # As a GitOps tool installs it, which renders the chart without a cluster.
    await moved.type(
        f"kubectl create namespace {ELSEWHERE} --dry-run=client -o yaml | kubectl apply -f - && "
        f"helm template second . --namespace {ELSEWHERE} --kube-version 1.30.0 --skip-tests --set replicas=0"
        " > ../second.yaml && kubectl apply -f ../second.yaml"
    )
    installation = replace(moved.installation, namespace=ELSEWHERE, release="second")
    second = await installation.operator(moved.stack.fleet.ports, name=f"second-{moved.folder.parent.name}")
    await second.process.start()
    try:

        async def waits() -> bool:
            lines = [line for line in read_log(second) if line["message"] == "This installation waits"]
            return any(f'fipop in namespace "{NAMESPACE}" leads' in line["reason"] for line in lines)

        await eventually(waits, seconds=60, what="the second installation to say that it waits")
        await asyncio.gather(*(moved.ask() for _ in range(5)))
        assert not await second.is_ready()
        assert await second.is_live()
        for command in ("status", "check"):
            ended = await moved.commands(ELSEWHERE).run(command)
            assert (ended.code, "LeadsElsewhere" in ended.out) == (1, True), ended.out
            assert f"--operator-namespace {NAMESPACE}" in ended.out
        assert "LeadsElsewhere" not in (await moved.commands(NAMESPACE).run("status")).out

        os.kill(moved.operator.process.pid, signal.SIGKILL)
        await eventually(second.is_ready, seconds=90, what="the second installation to lead")
        await moved.ask()
    finally:
        await second.stop()
        await moved.type("kubectl delete -f ../second.yaml")


async def test_fipop_moves_to_another_namespace_and_back_by_the_steps_of_the_page(moved: Moved) -> None:
    await moved.ask()
    held = await moved.stack.held()
    options = await moved.stack.client.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/kube-fip-config")
    rollout = f"/api/v1/namespaces/{NAMESPACE}/configmaps/fipop-rollout"
    if await moved.stack.client.find(rollout) is None:
        place, _, name = rollout.rpartition("/")
        await moved.stack.client.create(place, {"metadata": {"name": name}, "data": {}})
    commands = [each for each in read_commands(PAGE) if not re.match(NOT_TYPED, each)]
    assert len(commands) == 10
    there: OperatorProcess | None = None
    for command in commands:
        if command.startswith("fipop check"):
            said = (await moved.commands(TARGET).run(*command.split()[1:-2])).out
            assert "LeadsElsewhere" not in said
            assert "NoLeader" not in said
            continue
        said = await moved.type(command)
        if command.startswith("helm uninstall"):
            await moved.operator.stop()  # as the kubelet does
        elif command.startswith("helm install"):
            installation = replace(moved.installation, namespace=TARGET)
            there = await installation.operator(
                moved.stack.fleet.ports, name=f"there-{moved.folder.parent.name}"
            )
            await there.start()
            await moved.ask()
        elif command.startswith("kubectl get crd"):
            assert said == TARGET
    assert there is not None
    assert held.items() <= (await moved.stack.held()).items()
    copied = await moved.stack.client.get(f"/api/v1/namespaces/{TARGET}/configmaps/kube-fip-config")
    assert copied["data"] == options["data"]

    await moved.helm("uninstall", RELEASE, "--namespace", TARGET)
    await there.stop()
    await moved.type(f"kubectl -n {TARGET} delete lease fipop-operator")
    await moved.type(f"helm install fipop . --namespace {NAMESPACE} --values fipop-values.yaml")
    back = await moved.installation.operator(moved.stack.fleet.ports, name=f"back-{moved.folder.parent.name}")
    moved.stack.operators.append(back)
    await back.start()
    await moved.ask()
    assert held.items() <= (await moved.stack.held()).items()
    await moved.stack.client.delete(rollout)
