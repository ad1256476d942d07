"""Releases as helm keeps them, for the tests of this folder."""

import base64
import gzip
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.charts import ChartIdentity, ChartSource, Role, WantedRelease
from fipop.guest.limits import GuestLimits
from fipop.kube.guests import GuestServers
from localfleet.certificates import build_authority
from localfleet.proxy import RancherProxy
from tests.harness.reaching import build_runner
from tests.unit.guest.passes import TOKEN

MADE = "2026-08-20T08:00:00Z"
NOW = datetime(2026, 8, 20, 8, 0, 0, tzinfo=UTC)
CHART = ChartIdentity(name="kube-vip", version="0.11.0", content="c0ffee")


def release_secret(
    name: str = "kube-vip",
    revision: int = 1,
    status: str = "deployed",
    *,
    namespace: str = "kube-system",
    labels: dict[str, str] | None = None,
    release: Any = None,
) -> dict[str, Any]:
    """The Secret in which helm keeps a revision; with `release` also what stands in it."""
    secret: dict[str, Any] = {
        "metadata": {
            "namespace": namespace,
            "name": f"sh.helm.release.v1.{name}.v{revision}",
            "uid": f"uid-{name}-{revision}",
            "resourceVersion": "7",
            "creationTimestamp": MADE,
            "labels": {"owner": "helm", "name": name, "version": str(revision), "status": status}
            | (labels or {}),
        }
    }
    if release is not None:
        packed = base64.b64encode(gzip.compress(json.dumps(release).encode()))
        secret["data"] = {"release": base64.b64encode(packed).decode()}
    return secret


def wanted_release(role: Role = Role.KUBE_VIP, **changes: Any) -> WantedRelease:
    return WantedRelease(
        **{
            "role": role,
            "name": role.value,
            "namespace": "kube-system",
            "source": ChartSource(name=role.value, repo_url="https://charts.example"),
            "values": {"env": {"vip_interface": "eth0"}},
            **changes,
        }
    )


@pytest.fixture
def chart() -> ChartIdentity:
    return CHART


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[RancherProxy]:
    async with RancherProxy(build_authority("rancher", datetime.now(UTC))) as proxy:
        proxy.issue_token(TOKEN)
        yield proxy


@pytest_asyncio.fixture
async def limits(tmp_path: Path) -> AsyncIterator[GuestLimits]:
    stub = tmp_path / "helm"
    stub.write_text("#!/bin/sh\nsleep 1\nexit 1\n")
    stub.chmod(0o755)
    guests = GuestServers()
    runner = build_runner(str(stub), guests=guests)
    limits = GuestLimits(helm=runner, charts=ChartCache(runner), guests=guests)
    yield limits
    await limits.close()
    await guests.close()
