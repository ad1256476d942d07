"""Releases as helm keeps them, for the tests of this folder."""

import base64
import gzip
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from fipop.guest.helm.charts import ChartIdentity, ChartSource, Role, WantedRelease

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
