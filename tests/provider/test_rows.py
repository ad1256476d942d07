"""What becomes of a Service: the rows of section 2 of the contract of the cloud provider, in the end of each.

tests/api/services/test_rows.py plays them on a real API server.
"""

from typing import Any

import pytest

from tests.harness.service_cluster import A, ServiceCluster
from tests.harness.service_rows import BOTH, DUAL, FIRST, FIVE, ROWS, SECOND, Row, assigned


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_what_a_service_has_decides_what_it_gets(row: Row) -> None:
    cluster = ServiceCluster(row.data)
    if row.given is not None:
        row.given(cluster)
    await cluster.start()
    known = len(cluster.events())
    row.then(cluster)
    await cluster.settle()
    assert {name: cluster.shown(name) for name in cluster.names()} == row.becomes
    if row.condition is not None:
        assert cluster.condition() == row.condition
    found = [(name, reason) for name, reason, _ in cluster.events()[known:]]
    assert set(row.events) <= set(found)
    assert cluster.problems == []


async def test_a_service_that_left_its_type_and_its_address_does_not_get_it_back_from_another() -> None:
    cluster = ServiceCluster(BOTH)
    cluster.add(loadBalancerIP=FIRST)
    await cluster.start()
    cluster.change(type="ClusterIP", loadBalancerIP=None)
    await cluster.settle()
    cluster.add("other")
    await cluster.settle()
    cluster.change(type="LoadBalancer")
    await cluster.settle()
    assert (cluster.addresses("other"), cluster.addresses()) == (FIRST, SECOND)
    assert cluster.problems == []


async def test_an_ordinary_assignment_writes_the_service_once() -> None:
    cluster = ServiceCluster(BOTH)
    await cluster.start()
    cluster.add(**DUAL)
    version = cluster.memory.version
    await cluster.pass_time(60)
    assert len(cluster.writes_of_services(version)) == 1


@pytest.mark.parametrize("served", [{}, DUAL, {"loadBalancerIP": FIVE}, {"a": FIVE}], ids=str)
async def test_a_restart_writes_no_service_that_has_its_addresses(served: dict[str, Any]) -> None:
    cluster = ServiceCluster(BOTH)
    cluster.add(**served)
    await cluster.start()
    version = cluster.memory.version
    await cluster.restart()
    await cluster.pass_time(600)
    assert cluster.writes_of_services(version) == []


async def test_a_service_that_becomes_a_load_balancer_again_gets_an_address_again() -> None:
    cluster = ServiceCluster(BOTH)
    cluster.add()
    await cluster.start()
    for kind, shown in (("ClusterIP", {}), ("LoadBalancer", assigned(FIRST))):
        cluster.change(type=kind)
        await cluster.settle()
        assert cluster.shown() == shown


async def test_the_judge_of_this_harness_finds_an_address_that_was_assigned_twice() -> None:
    cluster = ServiceCluster(BOTH)
    cluster.add()
    cluster.add("other")
    await cluster.start()
    body = cluster.service("other")
    metadata = {**body["metadata"], "annotations": {A: cluster.addresses()}}
    cluster.memory.put(("services", "shop", "other"), {**body, "metadata": metadata})
    assert len(cluster.problems) == 1
