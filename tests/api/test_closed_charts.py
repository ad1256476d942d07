"""Charts from a source with a private authority and a password, by the operator under the rights of its chart."""

import base64
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from localfleet.certificates import CertificateAuthority, build_authority
from localfleet.chartrepo import ChartRepository
from localfleet.controlplane import ControlPlane
from localfleet.registry import CREDENTIAL
from localfleet.stack import Stack, build_range
from tests.api.borrowing import Installs, borrow
from tests.api.served_guest import bring_up
from tests.api.sweeping import sweep

USER, PASSWORD = CREDENTIAL
NAMESPACE = "/api/v1/namespaces/kube-fip"
PATIENCE_SECONDS = 90.0
"""A source that failed rests for half a minute."""

pytestmark = pytest.mark.xdist_group("installs")


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


async def test_charts_of_a_closed_source_are_had_with_the_secret_and_the_authority_that_the_chart_grants(
    stack: Stack,
    guest: ControlPlane,
    installs: Installs,
    repository: tuple[ChartRepository, CertificateAuthority],
) -> None:
    """tests/api/guest/test_chart_store.py has what each wrong access leads to."""
    secrets, config_maps = f"{NAMESPACE}/secrets", f"{NAMESPACE}/configmaps"
    await sweep(guest.client)  # what another file left there would need no chart
    plan = stack.player.plan_guest("closed", labels={"kube-vip": "true"})
    async with bring_up(stack, guest, plan) as served:
        await served.has_condition(
            "KubeVipReady",
            "False",
            reason="ChartAccessMissing",
            words="kube-fip/charts",
            seconds=PATIENCE_SECONDS,
        )
        authority = {"metadata": {"name": "charts-authority"}, "data": {"ca.crt": repository[1].pem.decode()}}
        await stack.client.create(config_maps, authority)
        await stack.client.create(secrets, {"metadata": {"name": "charts"}, **credential(PASSWORD)})
        digests = {
            option: next(each for each in installs.archives if each.stem == archive)
            for option, archive in (
                ("kubevipChartDigest", "kube-vip-0.11.0"),
                ("kubevipCloudProviderChartDigest", "kube-vip-cloud-provider-0.2.10"),
            )
        }
        # With other digests these are other sources, which do not rest after what the last ones said.
        await stack.set_options(
            **{
                option: f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
                for option, path in digests.items()
            }
        )
        await served.has_condition("KubeVipReady", seconds=PATIENCE_SECONDS)
        await served.has_condition("CloudProviderReady", seconds=PATIENCE_SECONDS)
    await stack.client.delete(f"{secrets}/charts")
    await stack.client.delete(f"{config_maps}/charts-authority")
    assert PASSWORD not in stack.operators[-1].process.log.read_text()
