"""Leaving a guest, and coming back: exactly what fipop made goes, and Harvester's own kube-vip serves again."""

from pathlib import Path

import pytest

from fipop.guest.helm.charts import Role
from fipop.guest.reports import PassReport
from localfleet.harvester_guest import install_harvester_kube_vip
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import GuestBench, release_of

pytestmark = pytest.mark.xdist_group("guest")

HARVESTER = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-vip"
PARKED = "node-role.kubernetes.io/harvester-kube-vip-disabled"


async def selector(bench: GuestBench) -> dict[str, str]:
    found = await bench.client.get(HARVESTER)
    return found["spec"]["template"]["spec"].get("nodeSelector") or {}


async def of_helm(bench: GuestBench) -> set[str]:
    """All objects of the releases' kinds that helm made, by kind and name."""
    found = set()
    for path in (
        "/apis/apps/v1/daemonsets",
        "/apis/apps/v1/deployments",
        "/api/v1/namespaces/kube-system/serviceaccounts",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ):
        for each in await bench.client.items(path, labelSelector="app.kubernetes.io/managed-by=Helm"):
            found.add(f"{path.rpartition('/')[2]}/{each['metadata']['name']}")
    return found


async def leave(bench: GuestBench) -> PassReport:
    """Make passes until nothing of ours is left."""
    bench.opted_in, bench.leaving, bench.may_remove = False, True, True

    async def has_left() -> PassReport | None:
        report = await bench.run()
        assert report.error is None, report.error
        return report if report.has_ours is False else None

    return await eventually(has_left, seconds=40, what="the guest to be left")


async def test_what_fipop_made_goes_and_harvesters_kube_vip_serves_again(
    bench: GuestBench, archives: dict[str, Path]
) -> None:
    await install_harvester_kube_vip(bench.client)
    before = await of_helm(bench)
    chart = next(path for name, path in archives.items() if name.startswith("kube-vip-cloud-provider"))
    place = ("--namespace", "kube-system", "--set", "nameOverride=theirs")
    await bench.helm("install", "somebody-elses", chart, *place)
    theirs = await of_helm(bench) - before
    await bench.settle()
    assert await selector(bench) == {PARKED: "true"}
    await leave(bench)
    assert await selector(bench) == {}
    assert await of_helm(bench) == before | theirs
    assert await bench.secrets("kube-vip") == []
    assert await bench.secrets("kube-vip-cloud-provider") == []
    assert len(await bench.secrets("somebody-elses")) == 1
    # A floating IP serves the guest still: its keys stay.
    assert (await bench.data())["cidr-global"] == "10.0.0.1/32"

    bench.opted_in, bench.leaving, bench.may_remove = True, False, False
    report = await bench.settle()
    assert {release_of(report, role).release.revision for role in Role} == {1}
    assert await selector(bench) == {PARKED: "true"}
    await bench.helm("uninstall", "somebody-elses", "--namespace", "kube-system")


async def test_nothing_goes_where_it_may_not_yet(bench: GuestBench) -> None:
    await bench.settle()
    made = await of_helm(bench)
    bench.opted_in, bench.leaving = False, True
    report = await bench.run()
    assert report.has_ours is True
    assert await of_helm(bench) == made


async def test_without_the_option_a_guest_keeps_what_it_has(bench: GuestBench) -> None:
    await bench.settle()
    made, runs = await of_helm(bench), bench.helm_runs
    bench.opted_in = False
    report = await bench.run()
    assert report.has_ours is None
    assert bench.helm_runs == runs
    assert await of_helm(bench) == made
