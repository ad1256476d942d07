"""helm, killed in each thing that it does: visits converge, without orphan or duplicate."""

import os
import signal

import pytest

from fipop.guests import release_plan as plan
from localfleet.routes import Fault, SeenRequest
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import OTHER_VALUES, PATIENCE_SECONDS, GuestBench

pytestmark = pytest.mark.xdist_group("guest")

WRITES = (pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(3, marks=pytest.mark.slow))
"""Which of helm's writes it is killed in: nothing is written yet, its record alone, some of the objects."""


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead helm is not waited for: five minutes, by the guest cluster's own clock, which no test can turn."""
    monkeypatch.setattr(plan, "GRACE_SECONDS", 0.0)


async def kill_helm(bench: GuestBench, number: int) -> None:
    """Kill the next helm that writes, while its so-manieth write gets no answer."""
    seen: list[SeenRequest] = []

    def is_due(request: SeenRequest) -> bool:
        if request.is_write and request.user_agent.lower().startswith("helm"):
            seen.append(request)
        return len(seen) == number + 1

    bench.route.fault = Fault(hang=True, only=is_due)

    async def is_stuck() -> bool:
        return len(seen) > number

    await eventually(is_stuck, seconds=PATIENCE_SECONDS, what="helm to write")
    alive = bench.helm_processes()
    assert alive, "this helm writes less often"
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    bench.route.fault = None


async def records(bench: GuestBench, release: str = "kube-vip") -> list[tuple[int, str]]:
    labels = [each["metadata"]["labels"] for each in await bench.secrets(release)]
    return sorted((int(each["version"]), each["status"]) for each in labels)


async def check(bench: GuestBench, objects: set[str]) -> None:
    """One record for each revision, the last of them deployed, the others superseded; nothing beside the objects."""
    for release in ("kube-vip", "kube-vip-cloud-provider"):
        found = await records(bench, release)
        assert len({number for number, _ in found}) == len(found), found
        assert found[-1][1] == "deployed", found
        assert {status for _, status in found[:-1]} <= {"superseded"}, found
    assert await bench.of_helm() == objects


@pytest.mark.parametrize("number", WRITES)
async def test_killed_in_an_upgrade(bench: GuestBench, number: int) -> None:
    bench.opt_in()
    await bench.until_ready()
    objects = await bench.of_helm()
    bench.set_options(kubevipChartValues=OTHER_VALUES)
    await kill_helm(bench, number)
    await bench.until(
        lambda: bench.revisions() == [2, 1] and bench.reason() == "Ready", seconds=2 * PATIENCE_SECONDS
    )
    await check(bench, objects)


@pytest.mark.slow  # a failure rests for half a minute
async def test_an_operator_that_stops_ends_its_helm_first(bench: GuestBench) -> None:
    def is_daemon_set(seen: SeenRequest) -> bool:
        return seen.is_write and seen.path.endswith("/daemonsets")

    bench.route.fault = Fault(hang=True, only=is_daemon_set)
    bench.opt_in()

    async def is_under_way() -> bool:
        return ("pending-install" in {status for _, status in await records(bench)}) and bool(
            bench.helm_processes()
        )

    await eventually(is_under_way, seconds=PATIENCE_SECONDS, what="helm to be under way")
    await bench.stop()
    assert bench.helm_processes() == []
    bench.route.fault = None
    await bench.start()
    await bench.until_ready(seconds=2 * PATIENCE_SECONDS)
