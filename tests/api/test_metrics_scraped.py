"""The metrics of the running operator, after real passes: to the letter, and as a real Prometheus scrapes them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio
import yaml

from localfleet.assets import ensure
from localfleet.chart import copy_chart
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.processes import Process, build_environment
from localfleet.provider import ProviderProcess
from localfleet.rancher_plan import GuestPlan
from localfleet.routes import Fault
from localfleet.servers import start_server
from localfleet.simulated import SimulatedGuest
from localfleet.stack import Stack, build_range
from localfleet.waiting import eventually
from tests.api.borrowing import Installs, borrow
from tests.api.served_guest import ServedGuest, bring_up, is_let_go
from tests.chart.rendering import Chart

ROOT = Path(__file__).parents[2]
INSTALLED_SECONDS = 120.0
RANGE = "10.135.10.200/29"
HARVESTER = "harvester-cluster1"

pytestmark = pytest.mark.xdist_group("installs")

NO_HELM = Fault(status=403, only=lambda request: request.user_agent.startswith("Helm"))


@pytest_asyncio.fixture(scope="module")
async def stack(installs: Installs) -> AsyncIterator[Stack]:
    body = build_range("guest-vlan", RANGE, harvester=HARVESTER, network="vlan10", quarantineSeconds=1)
    async with borrow(installs.stack, body, build_range("six", "fd00:9::/120")) as stack:
        yield stack


@pytest_asyncio.fixture(scope="module")
async def guests(stack: Stack, guest: ControlPlane) -> AsyncIterator[dict[str, ServedGuest]]:
    """One that is well, one that lets no helm in, one that refuses everything."""
    player, label = stack.player, {"kube-vip": "true"}
    plans: list[tuple[GuestPlan, ControlPlane | SimulatedGuest, Fault | None]] = [
        (player.plan_guest("well", labels=label), guest, None),
        (player.plan_guest("helmless", labels=label), SimulatedGuest(), NO_HELM),
        (player.plan_guest("silent"), SimulatedGuest(), Fault(refuse=True)),
    ]
    async with AsyncExitStack() as exits:
        found = {}
        for plan, target, fault in plans:
            found[plan.name] = await exits.enter_async_context(bring_up(stack, target, plan, fault=fault))
        await found["well"].has_condition(seconds=INSTALLED_SECONDS)
        await found["helmless"].has_condition("KubeVipReady", "False", reason="ReleaseFailed")
        await found["silent"].has_condition("GuestConfigured", "False", reason="GuestUnreachable")
        yield found


async def test_promtool_has_nothing_to_say(stack: Stack, guests: dict[str, ServedGuest]) -> None:
    text = await stack.operators[0].metrics()
    promtool = await asyncio.create_subprocess_exec(
        *(ensure("promtool"), "check", "metrics"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await promtool.communicate(text.encode())
    said = [line for line in output.decode().splitlines() if line.strip()]
    assert said == []


@asynccontextmanager
async def open_prometheus(fleet: LocalFleet, tmp_path: Path, **jobs: str) -> AsyncIterator[str]:
    """Run a Prometheus with the rules of the chart that scrapes URLs every second, each as a job."""
    labels = {"namespace": "kube-fip"}
    scraped = [
        {"job_name": name, "static_configs": [{"targets": [urlsplit(url).netloc], "labels": labels}]}
        for name, url in jobs.items()
    ]
    config, every = tmp_path / "prometheus.yml", {"scrape_interval": "1s", "evaluation_interval": "1s"}
    content = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": scraped}
    await asyncio.to_thread(config.write_text, yaml.safe_dump(content))
    chart = Chart(helm=ensure("helm"), folder=copy_chart(tmp_path / "chart"), home=tmp_path / "helm")
    rules = chart.render({"prometheusRule": {"enabled": True}}).only("PrometheusRule")["spec"]
    await asyncio.to_thread((tmp_path / "rules.yml").write_text, yaml.safe_dump(rules))
    program = ensure("prometheus")

    def build(port: int) -> Process:
        argv = [
            *(str(program), f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"),
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        log = tmp_path / "prometheus.log"
        return Process("prometheus", argv, log=log, environment=build_environment(tmp_path))

    port, process = await start_server(fleet.ports, build, _is_ready, timeout_seconds=30)
    yield f"http://127.0.0.1:{port}"
    await process.stop()
    fleet.ports.release(port)


async def _is_ready(port: int) -> bool:
    try:
        await _get(f"http://127.0.0.1:{port}/-/ready")
    except aiohttp.ClientError:
        return False
    return True


async def _get(url: str, **query: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url, params=query) as answer:
        answer.raise_for_status()
        return await answer.json() if answer.content_type == "application/json" else await answer.text()


async def test_every_expression_of_the_dashboard_gives_a_series(
    stack: Stack, fleet: LocalFleet, guests: dict[str, ServedGuest], guest: ControlPlane, tmp_path: Path
) -> None:
    """After a day in short: an address that was given back, and a Service in a guest that got one."""
    well = guests["well"]
    await well.ask("brief", "guest-vlan")
    found = await well.has_condition("Allocated", name="brief")
    await stack.client.delete(well.path("brief"))
    await is_let_go(stack, found["status"]["addresses"][0])
    provider = ProviderProcess(plane=guest, folder=tmp_path / "provider", ports=fleet.ports)
    await provider.start()
    service = {"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
    services = "/api/v1/namespaces/default/services"
    dashboard = json.loads((ROOT / "files" / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    keys = "/api/v1/namespaces/kube-system/configmaps/kubevip"
    await guest.client.patch(keys, {"data": {"cidr-six": "fd00:9::/120"}})
    try:
        async with open_prometheus(
            fleet, tmp_path, fipop=stack.operators[0].metrics_url, guest=provider.url
        ) as url:
            await guest.client.create(services, service)
            silent = list(expressions)

            async def speak_all() -> bool:
                for expression in list(silent):
                    query = expression.replace("$job", "fipop").replace("$__rate_interval", "1m")
                    answer = await _get(f"{url}/api/v1/query", query=query)
                    if answer["data"]["result"]:
                        silent.remove(expression)
                assert not silent, silent
                return True

            await eventually(speak_all, seconds=40, what="a series for every expression")
    finally:
        await guest.client.delete(f"{services}/web")
        await guest.client.patch(keys, {"data": {"cidr-six": None}})
        await provider.stop()
