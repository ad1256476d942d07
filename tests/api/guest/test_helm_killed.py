"""helm, killed before, in and after each thing that it does: passes converge, without orphan or duplicate."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from fipop.guest.helm.charts import ChartIdentity, Role, wanted_releases
from fipop.guest.helm.targets import Target, build_target
from fipop.guest.release_gate import ReleaseGate, Return, build_aim
from fipop.guest.release_memory import ReleaseMemory
from fipop.guest.reports import PassReport
from localfleet.chartrepo import ChartRepository
from localfleet.routes import Fault, SeenRequest
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import GOOD_VALUES, GuestBench, helm_processes, settings_with
from tests.api.guest.test_release_removal import leave, of_helm

pytestmark = pytest.mark.xdist_group("guest")

CHANGED = GOOD_VALUES + "podAnnotations: {changed: 'yes'}\n"
WRITES = (pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(3, marks=pytest.mark.slow))
"""Which of helm's writes it is killed in: nothing is written yet, its record alone, some of the objects."""


async def kill_in(bench: GuestBench, number: int) -> None:
    """Make a pass whose first helm is killed while its so-manieth write gets no answer, or with its end."""
    seen: list[SeenRequest] = []

    def is_due(request: SeenRequest) -> bool:
        if request.is_write and request.user_agent.lower().startswith("helm"):
            seen.append(request)
        return len(seen) == number + 1

    bench.route.fault = Fault(hang=True, only=is_due)
    task = asyncio.create_task(bench.run())

    async def is_stuck_or_done() -> bool:
        return task.done() or len(seen) > number

    await eventually(is_stuck_or_done, seconds=30, what="helm to write")
    alive = helm_processes()
    assert alive, "this helm writes less often"
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    bench.route.fault = None
    await asyncio.wait({task}, timeout=30)
    bench.tools.lease_seconds = -bench.tools.helm.deadline_seconds  # the grace is over
    bench.memory = ReleaseMemory()


async def records(bench: GuestBench, release: str = "kube-vip") -> list[tuple[int, str]]:
    labels = [each["metadata"]["labels"] for each in await bench.secrets(release)]
    return sorted((int(each["version"]), each["status"]) for each in labels)


async def check(bench: GuestBench, objects: set[str]) -> None:
    """One record for each revision, the last of them deployed, the others superseded; nothing beside the objects."""
    for release in ("kube-vip", "kube-vip-cloud-provider"):
        found = await records(bench, release)
        numbers = [number for number, _ in found]
        assert len(set(numbers)) == len(numbers), found
        assert found[-1][1] == "deployed", found
        assert {status for _, status in found[:-1]} <= {"superseded"}, found
    assert await of_helm(bench) == objects


@pytest.mark.parametrize("number", WRITES)
async def test_killed_in_an_install(bench: GuestBench, number: int) -> None:
    await kill_in(bench, number)
    await bench.settle(seconds=60)
    assert len(await of_helm(bench)) == 8
    await check(bench, await of_helm(bench))
    assert await records(bench) == [(1, "deployed")]


@pytest.mark.parametrize("number", WRITES)
async def test_killed_in_an_upgrade(bench: GuestBench, repository: ChartRepository, number: int) -> None:
    await bench.settle()
    objects = await of_helm(bench)
    bench.settings = settings_with(
        kubevipChartRepoUrl=repository.url, kubevipUpdate="true", kubevipChartValues=CHANGED
    )
    await kill_in(bench, number)
    await bench.settle(seconds=60)
    await check(bench, objects)
    assert [revision for revision, _ in await records(bench)] == [1, 2]


@pytest.mark.parametrize("number", WRITES)
async def test_killed_while_it_goes_back(bench: GuestBench, repository: ChartRepository, number: int) -> None:
    await bench.settle()
    objects = await of_helm(bench)
    bench.settings = settings_with(
        kubevipChartRepoUrl=repository.url, kubevipUpdate="true", kubevipChartValues=CHANGED
    )
    await bench.settle(seconds=60)
    leaving = build_aim(await target_of(bench), bench.settings)
    back = Return(revisions={Role.KUBE_VIP: 1, Role.CLOUD_PROVIDER: 1}, leaving=leaving)
    bench.gate = ReleaseGate(aim=leaving, going_back=back)
    await kill_in(bench, number)

    async def is_back() -> PassReport | None:
        report = await bench.run()
        return report if report.is_back else None

    await eventually(is_back, seconds=60, what="the guest to be back")
    await check(bench, objects)
    assert [revision for revision, _ in await records(bench)] == [1, 2, 3]
    pods = (await bench.client.get("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-vip"))["spec"][
        "template"
    ]
    assert "changed" not in (pods["metadata"].get("annotations") or {})
    labels = (await bench.secrets("kube-vip"))[-1]["metadata"]["labels"]
    assert labels["kubefip.k8s.binbash.org/revision"] == "3"


@pytest.mark.parametrize("number", WRITES)
async def test_killed_in_an_uninstall(bench: GuestBench, number: int) -> None:
    before = await of_helm(bench)
    await bench.settle()
    bench.opted_in, bench.leaving, bench.may_remove = False, True, True
    await kill_in(bench, number)
    await leave(bench)
    assert await of_helm(bench) == before
    assert await records(bench) == []
    assert await records(bench, "kube-vip-cloud-provider") == []


async def target_of(bench: GuestBench) -> Target:
    charts: dict[Role, ChartIdentity] = {
        one.role: (await bench.tools.charts.get(one.source)).identity
        for one in wanted_releases(bench.settings)
    }
    return replace(build_target(bench.settings, charts))
