"""Charts from a source with a private authority and a password, by the operator under the rights of its chart."""

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from localfleet.certificates import CertificateAuthority, build_authority
from localfleet.chartrepo import ChartRepository
from localfleet.controlplane import ControlPlane
from localfleet.registry import CREDENTIAL
from localfleet.stack import Stack, build_range, condition
from tests.api.borrowing import Installs, borrow
from tests.api.served_guest import bring_up
from tests.api.sweeping import sweep

USER, PASSWORD = CREDENTIAL
NAMESPACE = "/api/v1/namespaces/kube-fip"
PATIENCE_SECONDS = 90.0
"""A source that failed rests for half a minute."""

pytest_plugins = ("tests.api.shared_stacks",)
pytestmark = pytest.mark.xdist_group("chart-options")


@pytest_asyncio.fixture(scope="module")
async def repository(installs: Installs) -> AsyncIterator[tuple[ChartRepository, CertificateAuthority]]:
    authority = build_authority("charts", datetime.now(UTC))
    async with ChartRepository(authority=authority, credential=CREDENTIAL) as repository:
        for archive in installs.archives:
            repository.publish(archive)
        yield repository, authority


@pytest_asyncio.fixture(scope="module")
async def stack(
    installs: Installs, repository: tuple[ChartRepository, CertificateAuthority]
) -> AsyncIterator[Stack]:
    vlan = build_range("vlan", "10.66.0.0/24", harvester="harvester-cluster1", network="vlan10")
    options = {
        "kubevipChartRepoUrl": repository[0].url,
        "kubevipChartSecret": "charts",
        "kubevipChartCA": "charts-authority",
        "kubevipChartDigest": "",
        "kubevipCloudProviderChartDigest": "",
    }
    async with borrow(installs.stack, vlan, **options) as stack:
        yield stack


def credential(password: str) -> dict[str, Any]:
    fields = {"username": USER, "password": password}
    return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in fields.items()}}


async def test_each_fault_of_a_closed_source_has_its_condition_and_heals_without_a_restart(
    stack: Stack,
    guest: ControlPlane,
    installs: Installs,
    repository: tuple[ChartRepository, CertificateAuthority],
) -> None:
    secrets, config_maps = f"{NAMESPACE}/secrets", f"{NAMESPACE}/configmaps"
    await sweep(guest.client)  # what another file left there would need no chart
    plan = stack.player.plan_guest("closed", labels={"kube-vip": "true"})
    async with bring_up(stack, guest, plan) as served:

        async def is_told(reason: str, missing: str = "") -> Any:
            return await served.has_condition(
                "KubeVipReady", "False", reason=reason, words=missing, seconds=PATIENCE_SECONDS
            )

        async def ask_anew(number: int) -> None:
            """Ask for other digests: those are other sources, which do not rest after what the last ones said."""
            digest = f"sha256:{number:064x}"
            await stack.set_options(kubevipChartDigest=digest, kubevipCloudProviderChartDigest=digest)

        await is_told("ChartAccessMissing", "kube-fip/charts")
        await stack.client.create(secrets, {"metadata": {"name": "charts"}, **credential("wr0ng")})
        await ask_anew(1)
        await is_told("ChartAccessMissing", "kube-fip/charts-authority")
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
        found = await is_told("ChartDigestMismatch")
        # The message tells what it is.
        told = re.search(r"sha256:[0-9a-f]{64}", condition(found, "KubeVipReady")["message"])
        assert told is not None
        (provider,) = (each for each in installs.archives if each.stem == "kube-vip-cloud-provider-0.2.10")
        digest = f"sha256:{hashlib.sha256(provider.read_bytes()).hexdigest()}"
        await stack.set_options(kubevipChartDigest=told[0], kubevipCloudProviderChartDigest=digest)
        await served.has_condition("KubeVipReady", seconds=PATIENCE_SECONDS)
        await served.has_condition("CloudProviderReady", seconds=PATIENCE_SECONDS)
    await stack.client.delete(f"{secrets}/charts")
    await stack.client.delete(f"{config_maps}/charts-authority")
    log = stack.operators[-1].process.log.read_text()
    assert PASSWORD not in log
    assert "wr0ng" not in log
