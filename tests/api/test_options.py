"""kube-fip-config, live: what a change does, what a bad value does not do, and whose the ConfigMap is."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from localfleet.chart import copy_chart
from localfleet.client import Json
from localfleet.installation import NAMESPACE, OperatorProcess
from localfleet.stack import (
    SETTINGS,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.borrowing import borrow
from tests.api.live_options import count_bad_options, in_force
from tests.api.proxied import read_log

pytestmark = pytest.mark.xdist_group("default")

TENANT = "tenant"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
DEFAULTS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/fipop-settings-defaults"


@pytest_asyncio.fixture(scope="module")
async def stack(stack: Stack) -> AsyncIterator[Stack]:
    pool = build_range("pool", "10.0.0.0/24")
    vlan = build_range("vlan", "10.0.1.0/24", harvester="harvester-cluster1", network="vlan10")
    async with borrow(stack, pool, vlan) as stack:
        await stack.plane.create_namespace(TENANT)
        yield stack


@pytest_asyncio.fixture
async def operator(stack: Stack) -> AsyncIterator[OperatorProcess]:
    """The operator; whatever a test set is as the chart has it before the next one."""
    [operator] = stack.operators
    metrics_url = operator.metrics_url
    defaults = (await stack.client.get(DEFAULTS))["data"]
    yield operator
    operator.metrics_url = metrics_url
    found = await stack.client.find(SETTINGS) or {"data": {}}
    await in_force(stack, **(dict.fromkeys(found["data"]) | defaults))
    await eventually(operator.metrics, seconds=30, what="the metrics to be where they were")


def lines(operator: OperatorProcess, message: str, **fields: Any) -> list[Json]:
    """The lines of the log with this message and these fields."""
    return [
        line
        for line in read_log(operator)
        if line["message"] == message and {key: line.get(key) for key in fields} == fields
    ]


async def events_with(stack: Stack, reason: str, words: str) -> list[Json]:
    """The events on the ConfigMap of this reason that say so."""
    return [
        event
        for event in await stack.client.items(EVENTS)
        if event["reason"] == reason
        and words in event["message"]
        and event["involvedObject"]["name"] == "kube-fip-config"
    ]


async def ask(stack: Stack, name: str) -> None:
    """Make a floating IP and wait for its address."""
    await stack.client.create(floating_ips(TENANT), build_floating_ip(TENANT, name, range_name="pool"))

    async def is_served() -> bool:
        return condition(await stack.floating_ip(TENANT, name), "Allocated").get("status") == "True"

    await eventually(is_served, what=f"{name} to be served")


# What a change does


async def test_log_level_trace_tells_each_request_without_its_body(
    stack: Stack, operator: OperatorProcess
) -> None:
    await in_force(stack, logLevel="Trace")
    await ask(stack, "traced")

    async def is_told() -> Json | None:
        found = lines(
            operator, "Request", verb="create", path="/apis/kubefip.k8s.binbash.org/v1/floatingipreservations"
        )
        return found[-1] if found else None

    told = await eventually(is_told)
    assert set(told) == {"time", "level", "logger", "message", "target", "verb", "path", "status"}
    assert (told["target"], told["status"]) == ("management", 201)
    log = operator.process.log.read_text()
    assert "Bearer" not in log
    assert "eyJ" not in log, "a token"


# What a bad value does not do


# Whose the ConfigMap is


async def test_what_admins_edit_is_never_taken_back(
    stack: Stack, operator: OperatorProcess, tmp_path: Path
) -> None:
    """Neither by the operator nor by an upgrade of the chart, whose own defaults for it have changed."""
    await in_force(stack, logLevel="Warn", kubevipUpdate=None, kubevipReleaseName="Bad_Name")
    edited = await stack.client.get(SETTINGS)
    await operator.stop()
    installation = stack.installation
    await installation.helm.run(
        *(
            "upgrade",
            "fipop",
            copy_chart(tmp_path / "chart"),
            "--namespace",
            NAMESPACE,
            "--reset-then-reuse-values",
        ),
        *("--set", "settings.logLevel=Error", "--kubeconfig", stack.plane.admin_kubeconfig),
    )
    assert (await stack.client.get(DEFAULTS))["data"]["logLevel"] == "Error"
    await operator.start()
    await in_force(stack)
    found = await stack.client.get(SETTINGS)
    assert (found["data"], found["metadata"]["uid"]) == (edited["data"], edited["metadata"]["uid"])

    async def is_counted() -> bool:
        return await count_bad_options(stack) == 1

    await eventually(is_counted, what="the one bad option to be counted")
