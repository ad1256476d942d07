"""Leases that kube-vip left behind: only its own, of Services that are gone, that nobody renews."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fipop.cloudprovider.service_cache import ServiceCache
from fipop.cloudprovider.stale_leases import StaleLeases
from fipop.kube.client import Listing
from tests.harness.answering_client import AnsweringClient
from tests.unit.cloudprovider.services import build

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def lease(name: str, *, age_minutes: float | None = 90, namespace: str = "shop") -> dict[str, Any]:
    renewed = None if age_minutes is None else (NOW - timedelta(minutes=age_minutes)).isoformat()
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "5"}
    return {"metadata": metadata, "spec": {"renewTime": renewed}}


async def deleted(*leases: dict[str, Any]) -> list[str]:
    gone: list[str] = []

    async def list_all(_resource: object) -> Any:
        return Listing(items=leases, resource_version=9)

    async def delete(_resource: object, name: str, *, uid: str, resource_version: str, **_: object) -> bool:
        assert (uid, resource_version) == (f"uid-{name}", "5"), "only this very version of it goes"
        gone.append(name)
        return True

    client = AnsweringClient(list=list_all, delete=delete, now=NOW)
    services = ServiceCache(client)
    services.take(build())
    assert await StaleLeases(client, services).delete() == len(gone)
    return gone


async def test_one_of_a_service_that_is_gone_and_that_nobody_renewed_goes() -> None:
    assert await deleted(lease("kubevip-gone"), lease("kubevip-gone", age_minutes=61)) == ["kubevip-gone"] * 2


@pytest.mark.parametrize(
    "kept",
    [
        lease("kubevip-web"),
        lease("kubevip-gone", age_minutes=59),
        lease("kubevip-gone", age_minutes=None),
        lease("kube-controller-manager"),
        lease("plndr-svcs-lock"),
    ],
)
async def test_any_other_stays(kept: dict[str, Any]) -> None:
    assert await deleted(kept) == []


async def test_the_service_of_another_namespace_is_another() -> None:
    assert await deleted(lease("kubevip-web", namespace="other")) == ["kubevip-web"]
