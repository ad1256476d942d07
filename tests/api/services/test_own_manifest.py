"""The cloud provider under the manifest of its own: least rights are enough, and stale Leases go."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.provider import ProviderProcess
from localfleet.waiting import eventually
from tests.api.services.conftest import open_shop

pytestmark = pytest.mark.xdist_group("management")

EXAMPLE = Path(__file__).parents[3] / "examples" / "guest-cloud-provider.yaml"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


async def test_its_rights_are_enough_and_stale_leases_go(
    fleet: LocalFleet, bare_guest: ControlPlane, tmp_path: Path, shop_numbers: Iterator[int]
) -> None:
    plane, shop = bare_guest, await open_shop(bare_guest, next(shop_numbers))
    await plane.kubectl("apply", "-f", str(EXAMPLE))
    leases, old = LEASES.format(shop.namespace), "2026-01-01T00:00:00.000000Z"
    for name, renewed in (("kubevip-gone", old), ("kubevip-web", old), ("other", old), ("kubevip-new", None)):
        spec = {"holderIdentity": "node-1", "renewTime": renewed} if renewed else {"holderIdentity": "node-1"}
        await plane.client.create(leases, {"metadata": {"name": name}, "spec": spec})
    await shop.open("web")
    running = ProviderProcess(
        plane=plane, folder=tmp_path / "provider", ports=fleet.ports, deployment="fipop-cloud-provider"
    )
    await running.start()

    async def left() -> bool:
        return {each["metadata"]["name"] for each in await plane.client.items(leases)} == {
            "kubevip-web",
            "kubevip-new",
            "other",
        }

    await eventually(left, what="the stale one is gone, and no other")
    await shop.offer(1)
    await shop.has("web", f"{shop.net}.1")
    await shop.open("next")
    await shop.waits("next", "PoolFull")
    await shop.close("web")
    await shop.has("next", f"{shop.net}.1")
    await shop.warned("AddressAssigned", f"{shop.net}.1")
    text = await running.metrics()
    assert 'code="403"' not in text
    assert await running.stop() == 0
    await plane.kubectl("delete", "-f", str(EXAMPLE))
