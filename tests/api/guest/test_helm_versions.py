"""Releases go from one helm to the other, both ways: an upgrade of fipop, or its way back, changes no guest cluster."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from fipop.api import names
from fipop.helm.command import Helm, HelmCommand
from fipop.helm.process import LocalHelm, find_helm
from fipop.helm.proxy import HelmTarget
from fipop.kube.guests import GuestAccess
from localfleet.assets import ensure_all
from localfleet.harvester_guest import DAEMON_SET
from localfleet.rancher_steps import delete
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import GOOD_VALUES, OTHER_VALUES, PATIENCE_SECONDS, TOKEN, GuestBench

pytestmark = pytest.mark.xdist_group("guest")

DIRECTIONS = [("helm 3", "newer"), ("newer", "helm 3")]
PASSES = ("uid", "resourceVersion", "creationTimestamp", "generation")
"""What is different in each object that is created."""


@pytest.fixture(scope="session")
def helms() -> dict[str, str]:
    """Both programs; at night both are helm 3."""
    programs = ensure_all("helm", "helm-3")
    return {"newer": str(programs["helm"]), "helm 3": str(programs["helm-3"])}


async def use(bench: GuestBench, helm: str) -> None:
    """Start an operator with another helm, in place of the one that runs."""
    bench.helm_program = helm
    await bench.start()


async def check_quiet(bench: GuestBench) -> None:
    """Check that nothing is written once a rollout is over, also not by helm."""

    async def is_quiet() -> bool:
        return not [each for each in await bench.visits(5) if each.is_write]

    await bench.until_ready()
    await eventually(is_quiet, seconds=PATIENCE_SECONDS, what="five visits without a write")


async def objects(bench: GuestBench) -> dict[str, Any]:
    """Return all objects of helm by kind and name, with the fields that helm manages."""
    found = await bench.objects_of_helm()
    for each in found.values():
        each.pop("status", None)
        for field in PASSES:
            each["metadata"].pop(field, None)
        each["metadata"]["annotations"].pop("deprecated.daemonset.template.generation", None)
        managed = each["metadata"].pop("managedFields")
        each["by helm"] = [{**one, "time": None} for one in managed if one["manager"] == "helm"]
    return found


@pytest.mark.parametrize(("first", "then"), DIRECTIONS)
async def test_what_one_helm_made_the_other_keeps_upgrades_repairs_and_removes(
    bench: GuestBench, helms: dict[str, str], first: str, then: str
) -> None:
    before = await bench.of_helm()
    await use(bench, helms[first])
    bench.opt_in()
    await check_quiet(bench)
    made = await objects(bench)

    await use(bench, helms[then])
    await check_quiet(bench)
    assert bench.revisions() == [1, 1]
    assert await objects(bench) == made
    bench.set_options(kubevipChartValues=OTHER_VALUES)
    await bench.until_revisions(2, 1)

    await use(bench, helms[first])
    await check_quiet(bench)
    assert bench.revisions() == [2, 1]
    await delete(bench.client, DAEMON_SET)
    bench.set_options(kubevipChartValues=GOOD_VALUES)
    await bench.until_revisions(3, 1)
    assert await objects(bench) == made, "nothing is left of the other helm"

    await use(bench, helms[then])
    bench.opt_in(**{names.LABEL_OPT_IN: "false", names.LABEL_REMOVE: "true"})
    await bench.until(lambda: not bench.releases())
    assert await bench.of_helm() == before


async def test_both_leave_the_same_objects_behind(bench: GuestBench, helms: dict[str, str]) -> None:
    async def is_changed() -> bool:
        template = (await bench.client.get(DAEMON_SET))["spec"]["template"]
        return template["metadata"].get("annotations") == {"changed": "yes"}

    seen = []
    for program in helms.values():
        bench.set_options(kubevipChartValues=GOOD_VALUES)
        await use(bench, program)
        bench.opt_in(**{names.LABEL_REMOVE: "false"})
        await check_quiet(bench)
        bench.set_options(kubevipChartValues=OTHER_VALUES)
        await eventually(is_changed, seconds=PATIENCE_SECONDS, what="the other values")
        await check_quiet(bench)
        namespace = await bench.client.get("/api/v1/namespaces/kube-system")
        seen.append((await objects(bench), namespace["metadata"].get("labels")))
        bench.opt_in(**{names.LABEL_OPT_IN: "false", names.LABEL_REMOVE: "true"})
        await bench.until(lambda: not bench.releases())
    assert seen[0] == seen[1]


async def install_as_predecessor(bench: GuestBench, archives: dict[str, Path]) -> None:
    """As kube-fip-operator did: the admin's values and `nameOverride`, no labels."""
    tolerations = '[{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"}]'
    for name, version, values in (
        ("kube-vip", "0.11.0", f'env={{"vip_interface":"eth0"}},tolerations={tolerations}'),
        ("kube-vip-cloud-provider", "0.2.10", "replicasCount=1"),
    ):
        given = f'{values},nameOverride="{name}"'
        await bench.helm("install", name, archives[f"{name}-{version}"], "-n", "kube-system", values=given)


async def test_releases_of_the_predecessor_are_taken_over_without_an_upgrade(
    bench: GuestBench, helms: dict[str, str], archives: dict[str, Path]
) -> None:
    bench.helm_program = helms["helm 3"]
    await install_as_predecessor(bench, archives)
    made = await objects(bench)
    bench.opt_in()
    await use(bench, helms["newer"])
    await check_quiet(bench)
    assert bench.revisions() == [1, 1]
    assert await objects(bench) == made


@pytest.mark.parametrize(("first", "then"), DIRECTIONS)
async def test_one_helm_rolls_back_to_a_revision_of_the_other(
    bench: GuestBench, helms: dict[str, str], archives: dict[str, Path], tmp_path: Path, first: str, then: str
) -> None:
    def lend(which: str) -> AbstractContextManager[HelmCommand]:
        helm = Helm(process=LocalHelm(find_helm(helms[which]), bench.guests), folder=tmp_path)
        access = GuestAccess(bench.proxy.url_of(bench.guest_id), TOKEN, bench.proxy.ca_pem)
        return helm.for_guest(HelmTarget(access=access), "release")

    place = {"namespace": "kube-system"}
    with lend(first) as command:
        await command.install_or_upgrade("kube-vip", archives["kube-vip-0.9.9"], {}, **place)
    made = await objects(bench)
    with lend(then) as command:
        await command.install_or_upgrade("kube-vip", archives["kube-vip-0.11.0"], {}, **place)
        await command.rollback("kube-vip", 1, no_hooks=True, **place)
    assert await objects(bench) == made
