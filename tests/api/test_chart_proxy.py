"""A site that reaches charts by a proxy only: the chart's extraEnv names it, and nothing but charts goes through it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from localfleet.chart import copy_chart
from localfleet.installation import NAMESPACE, RELEASE
from localfleet.simulated import SimulatedGuest
from localfleet.stack import Stack, build_range
from localfleet.waiting import eventually
from tests.api.borrowing import borrow
from tests.api.chart_source import chart_repository, pack_charts

pytestmark = pytest.mark.xdist_group("bare")

HOST = "charts.test"
"""A name that only the proxy knows."""
TARGET = f"/api/v1/namespaces/{NAMESPACE}/configmaps/fipop-rollout"


class Proxy:
    """A proxy that knows one host; `asked` has the method and URL of all that anybody wanted of it."""

    def __init__(self, source: str) -> None:
        self.asked: list[tuple[str, str]] = []
        self.url = ""
        self._source = source

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["Proxy"]:
        runner = web.ServerRunner(web.Server(self._handle))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((request.method, str(request.url)))
        if request.method != "GET" or request.url.host != HOST:
            return web.Response(status=403)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self._source}{request.path}") as answer,
        ):
            return web.Response(status=answer.status, body=await answer.read())


async def upgrade(stack: Stack, folder: Path, **values: str) -> None:
    """Install the chart again with other values."""
    await stack.installation.helm.run(
        *(
            "upgrade",
            RELEASE,
            copy_chart(folder / "chart"),
            "--namespace",
            NAMESPACE,
            "--reset-then-reuse-values",
        ),
        *("--kubeconfig", stack.plane.admin_kubeconfig),
        *(argument for name, value in values.items() for argument in ("--set", f"{name}={value}")),
    )


async def test_charts_come_by_the_proxy_and_all_else_goes_directly(bare_stack: Stack, tmp_path: Path) -> None:
    archives = await pack_charts(tmp_path)
    async with chart_repository(archives) as repository, Proxy(repository.url).serve() as proxy:
        values = {
            "extraEnv[0].name": "HTTP_PROXY",
            "extraEnv[0].value": proxy.url,
            "extraEnv[1].name": "HTTPS_PROXY",
            "extraEnv[1].value": proxy.url,
            "extraEnv[2].name": "NO_PROXY",
            "extraEnv[2].value": "registry.test",
        }
        settings = {
            "kubevipGuestInstall": "enabled",
            "kubevipUpdate": "true",
            "kubevipChartRepoUrl": f"http://{HOST}",
        }
        pool = build_range("vlan", "10.7.0.0/24", harvester="harvester-cluster1", network="vlan10")
        await upgrade(bare_stack, tmp_path, **values)
        await bare_stack.set_options(**settings)
        operator = await bare_stack.start_operator()
        async with borrow(bare_stack, pool) as stack:
            guest = SimulatedGuest(latency_seconds=0.0)
            plan = stack.player.plan_guest("proxied", network="default/vlan10")
            created = await stack.player.create_guest(plan, guest)

            async def has_charts() -> bool:
                found = await stack.client.find(TARGET)
                return found is not None and "kube-vip-cloud-provider" in found["data"]["target"]

            async def is_written() -> bool:
                return guest.get("configmaps", "kube-system", "kubevip") is not None

            await eventually(has_charts, seconds=90, what="the charts of both releases")
            await eventually(is_written, seconds=30, what=f"the ConfigMap of {created.cluster_id}")
        await operator.stop()
        await bare_stack.set_options(**{**dict.fromkeys(settings), "kubevipGuestInstall": "disabled"})
        await upgrade(bare_stack, tmp_path, extraEnv="null")
    assert {method for method, _ in proxy.asked} == {"GET"}
    assert {url.partition(HOST)[0] for _, url in proxy.asked} == {"http://"}
    assert any(url.endswith("/index.yaml") for _, url in proxy.asked)
    assert sum(url.endswith(".tgz") for _, url in proxy.asked) >= 2
