"""Other writers of a Service: what they remove is written ever more slowly. See tests/api for Harvester's."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.harness.api_in_memory import Commit, copy_json
from tests.harness.service_cluster import FINALIZER, ServiceCluster

POOL = {"cidr-global": "10.0.0.1-10.0.0.9"}
KEY = ("services", "shop", "web")
MANAGER = {"manager": "pruner", "operation": "Update", "time": "2026-01-01T00:00:00Z"}
Json = dict[str, Any]


def remove_annotations(obj: Json) -> None:
    obj["metadata"]["annotations"] = {}


def remove_address(obj: Json) -> None:
    obj["spec"].pop("loadBalancerIP", None)


def remove_finalizer(obj: Json) -> None:
    obj["metadata"]["finalizers"] = []


def answer_each_write(cluster: ServiceCluster, change: Callable[[Json], None]) -> list[float]:
    """Have another controller change Service web back whenever fipop writes it; return the times of fipop's writes."""
    times: list[float] = []
    loop = asyncio.get_running_loop()

    def act() -> None:
        obj = copy_json(cluster.memory.objects[KEY])
        change(obj)
        obj["metadata"]["managedFields"] = [MANAGER]
        cluster.judge.by_people.add(cluster.memory.version + 1)
        cluster.memory.put(KEY, obj)

    def hear(commit: Commit) -> None:
        if commit.key == KEY and commit.obj is not None and "managedFields" not in commit.obj["metadata"]:
            times.append(loop.time())
            loop.call_later(0.1, act)

    cluster.memory.listeners.append(hear)
    return times


@pytest.mark.parametrize("change", [remove_annotations, remove_address, remove_finalizer])
async def test_a_field_that_another_controller_removes_is_written_ever_more_slowly(
    change: Callable[[Json], None],
) -> None:
    cluster = ServiceCluster(POOL)
    await cluster.start()
    times = answer_each_write(cluster, change)
    cluster.add()
    await cluster.pass_time(3600)
    # The creation, the assignment, and two times at once; then after 10 s, 20 s and so on up to ten minutes.
    pauses = [round(after - before) for before, after in pairwise(times[3:])]
    assert pauses[:8] == [10, 20, 40, 80, 160, 320, 600, 600]
    assert cluster.reasons("web").count("AnotherController") == 1
    (text,) = [text for _, reason, text in cluster.events("web") if reason == "AnotherController"]
    assert "Field manager pruner" in text


async def test_a_service_that_is_left_in_peace_is_written_at_once_again() -> None:
    cluster = ServiceCluster(POOL)
    await cluster.start()
    cluster.add()
    await cluster.settle()
    for _ in range(3):
        cluster.change(loadBalancerIP=None)
        await cluster.settle()
    await cluster.pass_time(20)
    assert cluster.shown()["L"] == "10.0.0.1"
    await cluster.pass_time(1300)
    cluster.change(loadBalancerIP=None)
    await cluster.settle()
    assert cluster.shown()["L"] == "10.0.0.1"


async def test_a_pause_holds_up_neither_a_request_of_the_user_nor_a_deletion() -> None:
    cluster = ServiceCluster(POOL)
    await cluster.start()
    cluster.add()
    await cluster.settle()
    for number in range(5):
        cluster.change(loadBalancerIP=f"10.0.0.{number + 2}")
        await cluster.settle()
    assert cluster.addresses() == "10.0.0.6"
    for _ in range(4):
        cluster.change(loadBalancerIP=None)
        await cluster.settle()
    assert "L" not in cluster.shown()
    cluster.change(loadBalancerIP="10.0.0.9")
    await cluster.settle()
    assert cluster.addresses() == "10.0.0.9"
    cluster.change(metadata={"finalizers": [FINALIZER]}, loadBalancerIP=None)
    cluster.delete()
    await cluster.settle()
    assert cluster.names() == []


@pytest.mark.parametrize("other", ["ClusterIP", "ExternalName"])
async def test_an_owner_who_changes_the_type_again_and_again_is_no_other_controller(other: str) -> None:
    cluster = ServiceCluster(POOL)
    await cluster.start()
    cluster.add()
    await cluster.settle()
    for _ in range(6):
        cluster.change(type=other)
        await cluster.settle()
        assert not any(cluster.shown().values())
        cluster.change(type="LoadBalancer")
        await cluster.settle()
        assert cluster.shown()["L"] == "10.0.0.1"
    assert "AnotherController" not in cluster.reasons("web")


async def test_an_owner_who_ignores_a_service_again_and_again_is_no_other_controller() -> None:
    cluster = ServiceCluster(POOL)
    await cluster.start()
    cluster.add()
    await cluster.settle()
    for _ in range(6):
        cluster.change(annotations={"kube-vip.io/ignore": "true"})
        await cluster.settle()
        assert "L" not in cluster.shown()
        cluster.change(annotations={"kube-vip.io/ignore": None})
        await cluster.settle()
        assert cluster.shown()["L"] == "10.0.0.1"
    assert "AnotherController" not in cluster.reasons("web")


async def test_what_another_controller_writes_to_a_service_of_another_type_is_removed_ever_more_slowly() -> (
    None
):
    cluster = ServiceCluster(POOL)
    await cluster.start()
    marked = {"labels": {"implementation": "kube-vip"}}
    times = answer_each_write(cluster, lambda obj: obj["metadata"].update(marked))
    cluster.add(type="ClusterIP", metadata=marked)
    await cluster.pass_time(600)
    assert len(times) < 12
