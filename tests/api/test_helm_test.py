"""`helm test` in a real cluster: a pod of the chart looks at the installation, and one address is allocated.

There is no kubelet here. The test runs the commands of the pod as processes with the rights of its ServiceAccount, and
tells the API server how the pod ended.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.errors import ToolFailedError
from localfleet.helm import Helm
from localfleet.installation import NAMESPACE, RELEASE
from localfleet.kubeconfigs import write_kubeconfig
from localfleet.stack import RANGES, RESERVATIONS, Stack, floating_ips
from localfleet.waiting import eventually
from tests.api.cli.commands import Commands, Ended

pytestmark = pytest.mark.xdist_group("bare")

NAME = f"{RELEASE}-test"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
POD = f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}"
MADE_FOR_THE_TEST = (
    f"{RANGES}/{NAME}",
    f"{floating_ips(NAMESPACE)}/{NAME}",
    f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}",
    f"{RBAC}/clusterrolebindings/{NAME}",
    f"{RBAC}/namespaces/{NAMESPACE}/rolebindings/{NAME}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlayer:
    """Does for the pod of the test what a kubelet would do."""

    stack: Stack
    folder: Path

    async def run(self) -> dict[str, Ended]:
        """Wait for the pod and run it; how each of its containers ended, by name."""
        pod = await eventually(self._find_new, seconds=60, what="the pod of the test")
        spec = pod["spec"]
        token = await self.stack.plane.token_for(NAMESPACE, spec["serviceAccountName"])
        kubeconfig = write_kubeconfig(
            self.folder / "kubeconfig", self.stack.plane.kubeconfig_for_token(token)
        )
        ended = {}
        for container in [*spec["initContainers"], *spec["containers"]]:
            environment = {each["name"]: each["value"] for each in container["env"]}
            commands = Commands(kubeconfig=kubeconfig, environment=environment)
            ended[container["name"]] = await commands.run(*container["args"])
            if ended[container["name"]].code:
                break
        has_failed = any(each.code for each in ended.values())
        await self.stack.client.patch(
            f"{POD}/status", {"status": {"phase": "Failed" if has_failed else "Succeeded"}}
        )
        return ended

    async def _find_new(self) -> Json | None:
        found = await self.stack.client.find(POD)
        return found if found and found["status"]["phase"] == "Pending" else None


@pytest_asyncio.fixture
async def player(bare_stack: Stack, tmp_path: Path) -> AsyncIterator[PodPlayer]:
    yield PodPlayer(stack=bare_stack, folder=tmp_path)


async def run_helm_test(player: PodPlayer) -> tuple[dict[str, Ended], str]:
    """Run `helm test` and the pod; how its containers ended, and what helm said."""
    stack = player.stack
    helm: Helm = stack.installation.helm
    where = ("--namespace", NAMESPACE, "--kubeconfig", stack.plane.admin_kubeconfig, "--timeout", "60s")
    try:
        async with asyncio.TaskGroup() as group:
            testing = group.create_task(helm.run("test", RELEASE, *where))
            playing = group.create_task(player.run())
    except* ToolFailedError as errors:
        raise errors.exceptions[0] from None
    return playing.result(), testing.result()


async def what_is_left(stack: Stack) -> set[str]:
    return {path for path in MADE_FOR_THE_TEST if await stack.client.find(path) is not None}


async def test_it_passes_where_an_address_is_allocated_and_leaves_nothing(player: PodPlayer) -> None:
    stack = player.stack
    operator = await stack.start_operator()
    try:
        ended, said = await run_helm_test(player)
        assert [each.code for each in ended.values()] == [0, 0], ended
        assert "192.0.2." in ended["allocation"].out
        assert "Phase:          Succeeded" in said
        assert await what_is_left(stack) == set()

        async def is_released() -> bool:
            # Released after its range was seen to be gone, it waits as long as that of any range without a value.
            named = [
                each["spec"]
                for each in await stack.client.items(RESERVATIONS)
                if each["spec"]["space"] == NAME
            ]
            return all("quarantinedUntil" in each for each in named)

        await eventually(is_released, seconds=30, what="the address of the test to be released")
        again, _ = await run_helm_test(player)
        assert [each.code for each in again.values()] == [0, 0], again
    finally:
        await operator.stop()


@pytest.mark.slow
async def test_it_fails_where_no_operator_runs_and_leaves_the_pod_alone_until_the_next_one(
    player: PodPlayer,
) -> None:
    stack = player.stack
    with pytest.raises(ToolFailedError):
        await run_helm_test(player)
    assert await what_is_left(stack) == set()
    failed = await stack.client.get(POD)
    assert failed["status"]["phase"] == "Failed"
    with pytest.raises(ToolFailedError):
        await run_helm_test(player)
    again = await stack.client.get(POD)
    assert again["metadata"]["uid"] != failed["metadata"]["uid"]
