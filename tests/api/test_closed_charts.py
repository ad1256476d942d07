"""Charts from a source with a private authority and a password, by the operator under the rights of its chart."""

import base64
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest_asyncio

from localfleet.assets import ensure
from localfleet.certificates import CertificateAuthority, build_authority
from localfleet.chartrepo import ChartRepository
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.helm import PUBLISHED, Helm
from localfleet.registry import CREDENTIAL
from localfleet.stack import RANGES, Stack, build_range, condition, open_stack
from tests.api.served_guest import bring_up

USER, PASSWORD = CREDENTIAL
NAMESPACE = "/api/v1/namespaces/kube-fip"
PATIENCE_SECONDS = 45.0
"""A source that failed rests for half a minute."""


@pytest_asyncio.fixture(scope="module")
async def repository(tmp_path_factory: Any) -> AsyncIterator[tuple[ChartRepository, CertificateAuthority]]:
    folder: Path = tmp_path_factory.mktemp("closed-charts")
    helm = Helm(program=ensure("helm"), home=folder / "home")
    authority = build_authority("charts", datetime.now(UTC))
    async with ChartRepository(authority=authority, credential=CREDENTIAL) as repository:
        for chart in PUBLISHED:
            repository.publish(await helm.pack(chart, folder))
        yield repository, authority


@pytest_asyncio.fixture(scope="module")
async def stack(
    fleet: LocalFleet, repository: tuple[ChartRepository, CertificateAuthority]
) -> AsyncIterator[Stack]:
    settings = {
        "kubevipGuestInstall": "clusterlabel",
        "kubevipChartRepoUrl": repository[0].url,
        "kubevipChartSecret": "charts",
        "kubevipChartCA": "charts-authority",
        "operateGuestClusterInterval": "1",
    }
    async with open_stack(fleet, "closed-charts", settings=settings) as stack:
        yield stack


def credential(password: str) -> dict[str, Any]:
    fields = {"username": USER, "password": password}
    return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in fields.items()}}


async def test_each_fault_of_a_closed_source_has_its_condition_and_heals_without_a_restart(
    stack: Stack, guest: ControlPlane, repository: tuple[ChartRepository, CertificateAuthority]
) -> None:
    operator = await stack.start_operator()
    network = {"harvester": "harvester-cluster1", "network": "vlan10"}
    await stack.client.create(RANGES, build_range("vlan", "10.66.0.0/24", **network))
    secrets, config_maps = f"{NAMESPACE}/secrets", f"{NAMESPACE}/configmaps"
    plan = stack.player.plan_guest("closed", labels={"kube-vip": "true"})
    async with bring_up(stack, guest, plan) as served:

        async def is_told(reason: str, words: str = "") -> Any:
            return await served.has_condition(
                "KubeVipReady", "False", reason=reason, words=words, seconds=PATIENCE_SECONDS
            )

        async def ask_anew(number: int) -> None:
            """Ask for another digest: that is another source, which does not rest after what the last one said."""
            await stack.set_options(kubevipChartDigest=f"sha256:{number:064x}")

        await is_told("ChartAccessMissing", "Secret kube-fip/charts is not there")
        await stack.client.create(secrets, {"metadata": {"name": "charts"}, **credential("wr0ng")})
        await ask_anew(1)
        await is_told("ChartAccessMissing", "ConfigMap kube-fip/charts-authority is not there")
        strangers = build_authority("another", datetime.now(UTC)).pem.decode()
        authority = {"metadata": {"name": "charts-authority"}, "data": {"ca.crt": strangers}}
        await stack.client.create(config_maps, authority)
        await ask_anew(2)
        await is_told("ChartSourceUntrusted")
        right = {"data": {"ca.crt": repository[1].pem.decode()}}
        await stack.client.patch(f"{config_maps}/charts-authority", right)
        await ask_anew(3)
        await is_told("ChartUnauthorized")
        await stack.client.patch(f"{secrets}/charts", credential(PASSWORD))
        await ask_anew(4)
        found = await is_told("ChartDigestMismatch", "has digest sha256:")
        # The message tells what it is.
        told = re.search(r"sha256:[0-9a-f]{64}", condition(found, "KubeVipReady")["message"])
        assert told is not None
        await stack.set_options(kubevipChartDigest=told[0])
        await served.has_condition("KubeVipReady", seconds=PATIENCE_SECONDS)
        await served.has_condition("CloudProviderReady", seconds=PATIENCE_SECONDS)
    log = operator.process.log.read_text()
    assert PASSWORD not in log
    assert "wr0ng" not in log
