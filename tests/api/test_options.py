"""kube-fip-config, live: what a change does, what a bad value does not do, and whose the ConfigMap is."""

import itertools
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from localfleet.chart import copy_chart
from localfleet.client import Json
from localfleet.installation import NAMESPACE, OperatorProcess
from localfleet.routes import Fault
from localfleet.simulated import SimulatedGuest
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
from tests.api.served_guest import split_passes

pytest_plugins = ("tests.api.shared_stacks",)
pytestmark = pytest.mark.xdist_group("quick-stack")

TENANT = "tenant"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
DEFAULTS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/fipop-settings-defaults"


@pytest_asyncio.fixture(scope="module")
async def stack(quick_stack: Stack) -> AsyncIterator[Stack]:
    pool = build_range("pool", "10.0.0.0/24")
    vlan = build_range("vlan", "10.0.1.0/24", harvester="harvester-cluster1", network="vlan10")
    async with borrow(quick_stack, pool, vlan) as stack:
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
    await stack.set_options(**(dict.fromkeys(found["data"]) | defaults))
    await eventually(operator.metrics, seconds=30, what="the metrics to be where they were")
    await in_force(stack)


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


SHOWN = {
    "Trace": {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR"},
    "Warn": {"WARNING", "ERROR"},
}
"""Two of them, which the running operator takes up; tests/unit/cli/test_logs.py has them all."""


@pytest_asyncio.fixture(scope="module")
async def failing_guest(stack: Stack) -> AsyncIterator[str]:
    """The id of a guest that answers with errors, which is told at level Debug from the second time on."""
    plan = stack.player.plan_guest("failing")
    stack.proxy.add_guest(plan.cluster_id, SimulatedGuest()).fault = Fault(status=500)
    guest = await stack.player.create_guest(plan)
    yield plan.cluster_id
    await stack.player.delete_guest(guest)


@pytest.mark.parametrize("level", SHOWN)
async def test_log_level_shows_lines_of_that_level_and_above(
    stack: Stack, operator: OperatorProcess, failing_guest: str, level: str
) -> None:
    await in_force(stack, logLevel=level, operateGuestClusterInterval="1")
    before = len(read_log(operator))
    # Something of every level: a change, an unwise choice, a bad value; the guest fails all the time.
    await in_force(
        stack,
        kubevipUpdate="true",
        kubevipCloudProviderChartValues="image: {tag: v0.0.8}",
        traceIpamData="perhaps",
    )
    seen = len(stack.proxy.requests_of(failing_guest))

    async def failed_again() -> bool:
        return len(stack.proxy.requests_of(failing_guest)) > seen + 1

    await eventually(failed_again)
    await in_force(stack)
    assert {line["level"] for line in read_log(operator)[before:]} == SHOWN[level]


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


async def test_operate_guest_cluster_interval_is_the_time_between_two_passes_over_a_guest(
    stack: Stack, operator: OperatorProcess
) -> None:
    guest = await stack.player.create_guest(
        stack.player.plan_guest("passed"), SimulatedGuest(latency_seconds=0)
    )

    def gaps() -> list[float]:
        passes = split_passes(stack.proxy.requests_of(guest.cluster_id))
        return [later[0].at - earlier[0].at for earlier, later in itertools.pairwise(passes)]

    async def is_long() -> bool:
        return any(each > shortest for each in gaps())

    async def is_short() -> bool:
        return any(each < shortest for each in gaps())

    shortest = 0.85 * 3  # visits are spread by up to a tenth
    for seconds, is_kept in ((1, is_short), (3, is_long), (1, is_short)):
        await in_force(stack, operateGuestClusterInterval=str(seconds))
        stack.proxy.forget_requests(guest.cluster_id)
        await eventually(is_kept, seconds=30, what=f"visits {seconds} s apart")
    await stack.player.delete_guest(guest)


async def test_metrics_port_moves_to_a_port_that_is_free(stack: Stack, operator: OperatorProcess) -> None:
    old_url, port = operator.metrics_url, stack.fleet.ports.reserve()
    await stack.set_options(metricsPort=str(port))
    operator.metrics_url = f"http://127.0.0.1:{port}/metrics"
    await eventually(operator.metrics, what="metrics at the new port")

    async def is_closed() -> bool:
        return not await answers(old_url)

    await eventually(is_closed, what="the old port to be closed")
    assert await answers(operator.metrics_url)


async def test_metrics_port_that_is_taken_is_told_and_the_old_one_stays_until_it_is_free(
    stack: Stack, operator: OperatorProcess
) -> None:
    old_url, port = operator.metrics_url, stack.fleet.ports.reserve()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("0.0.0.0", port))
        taken.listen()
        await in_force(stack, metricsPort=str(port))

        async def is_told() -> bool:
            return bool(await events_with(stack, "PortTaken", str(port)))

        await eventually(is_told)
        assert await answers(old_url)
    operator.metrics_url = f"http://127.0.0.1:{port}/metrics"
    await eventually(operator.metrics, what="the port to be taken at last")


async def answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


async def test_trace_ipam_data_logs_every_range_and_address_after_a_round(
    stack: Stack, operator: OperatorProcess
) -> None:
    await in_force(stack, traceIpamData="true")
    await ask(stack, "counted")

    async def is_told() -> list[Json]:
        return lines(operator, "IPAM data of address", owner=f"{TENANT}/counted", range="pool", state="held")

    [told, *_] = await eventually(is_told)
    assert told["address"].startswith("10.0.0.")
    counts = lines(operator, "IPAM data of range", range="pool")[-1]
    assert counts["total"] == counts["used"] + counts["free"] + counts["quarantined"] == 254

    await in_force(stack, traceIpamData="false")
    before = len(read_log(operator))
    await ask(stack, "uncounted")
    await in_force(stack)
    assert not [line for line in read_log(operator)[before:] if line["message"].startswith("IPAM data")]


# What a bad value does not do


GOOD_AND_BAD: Mapping[str, tuple[str, str]] = {
    "metricsPort": ("", "8081"),
    "kubevipChartValues": ("env: {vip_interface: eth7}", "- a list"),
}
"""One that the operator itself works with, and one that it brings to guests; tests/unit/settings has them all."""


@pytest.mark.parametrize("option", GOOD_AND_BAD)
async def test_a_bad_value_keeps_the_last_good_one_and_is_told(
    stack: Stack, operator: OperatorProcess, option: str
) -> None:
    good, bad = GOOD_AND_BAD[option]
    good = good or str(stack.fleet.ports.reserve())

    def changes() -> int:
        return sum(option in line["changed"] for line in lines(operator, "Settings changed"))

    await stack.set_options(**{option: good})
    if option == "metricsPort":
        operator.metrics_url = f"http://127.0.0.1:{good}/metrics"
        await eventually(operator.metrics)
    await in_force(stack)
    before, told = changes(), len(lines(operator, "Option is invalid", option=option))
    await stack.set_options(**{option: bad})

    async def is_told() -> bool:
        return bool(await events_with(stack, "BadOption", option)) and await count_bad_options(stack) == 1

    await eventually(is_told, what=f"{option} to be told")
    assert len(lines(operator, "Option is invalid", option=option)) == told + 1
    await in_force(stack)
    # What was in force all the time is what the good value asks for: it is no change.
    await in_force(stack, **{option: good})
    assert await count_bad_options(stack) == 0
    assert changes() == before


async def test_an_option_that_fipop_does_not_know_is_warned_of_without_its_value(
    stack: Stack, operator: OperatorProcess
) -> None:
    await stack.set_options(kubevipPassword="s3cret")

    async def is_told() -> list[Json]:
        return await events_with(stack, "UnwiseOption", "kubevipPassword")

    [event] = await eventually(is_told)
    assert "s3cret" not in event["message"] + operator.process.log.read_text()
    assert await count_bad_options(stack) == 0


# Whose the ConfigMap is


async def test_a_missing_config_map_is_made_from_the_charts_defaults_also_when_it_is_deleted(
    stack: Stack, operator: OperatorProcess
) -> None:
    defaults = (await stack.client.get(DEFAULTS))["data"]
    assert (await stack.client.get(SETTINGS))["data"] == defaults
    await in_force(stack, kubevipReleaseName="other")
    await stack.client.delete(SETTINGS)

    async def is_made() -> Json:
        return await stack.client.get(SETTINGS)

    made = await eventually(is_made, what="the ConfigMap to be made again")
    assert made["data"] == defaults

    async def is_back() -> bool:
        changed = [line["changed"] for line in lines(operator, "Settings changed")]
        return changed[-2:] == [["kubevipReleaseName"], ["kubevipReleaseName"]]

    await eventually(is_back, what="the defaults to be in force again")


async def test_what_admins_edit_is_never_taken_back(
    stack: Stack, operator: OperatorProcess, tmp_path: Path
) -> None:
    """Neither by the operator nor by an upgrade of the chart, whose own defaults for it have changed."""
    await in_force(stack, logLevel="Warn", kubevipUpdate=None, kubevipReleaseName="Bad_Name")
    edited = await stack.client.get(SETTINGS)
    await operator.stop()
    installation = stack.installation
    await installation.helm.run(
        *("upgrade", "fipop", copy_chart(tmp_path / "chart"), "--namespace", NAMESPACE, "--reuse-values"),
        *("--set", "settings.logLevel=Error", "--kubeconfig", stack.plane.admin_kubeconfig),
    )
    assert (await stack.client.get(DEFAULTS))["data"]["logLevel"] == "Error"
    await operator.start()
    await in_force(stack)
    found = await stack.client.get(SETTINGS)
    assert (found["data"], found["metadata"]["uid"]) == (edited["data"], edited["metadata"]["uid"])
    assert await count_bad_options(stack) == 1
