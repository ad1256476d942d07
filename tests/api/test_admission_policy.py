"""The chart's admission policies: what must stay while it is used, or while an administrator does not let it go."""

import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.chart import copy_chart
from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.errors import ApiError, ToolFailedError
from localfleet.waiting import eventually
from tests.chart.rendering import Chart

pytestmark = pytest.mark.xdist_group("management")

RANGES = "/apis/kubefip.k8s.binbash.org/v1/floatingipranges"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
RESTORE = "system:serviceaccount:cattle-resources-system:rancher-backup"
OTHER = "system:serviceaccount:default:rancher-backup"
ALLOW = "kubefip.k8s.binbash.org/allow-delete"


async def make_range(
    plane: ControlPlane, name: str, status: Json | None = None, annotations: dict[str, str] | None = None
) -> str:
    """Create a range with that status; answers its path."""
    body = {
        "apiVersion": "kubefip.k8s.binbash.org/v1",
        "kind": "FloatingIPRange",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"iprange": "10.135.10.192/26"},
    }
    await plane.client.create(RANGES, body)
    path = f"{RANGES}/{name}"
    if status is not None:
        await plane.client.patch(f"{path}/status", {"status": status})
    return path


async def force_delete(plane: ControlPlane, path: str) -> None:
    await plane.client.patch(path, {"metadata": {"annotations": {ALLOW: "true"}}})
    await plane.client.delete(path)


@pytest_asyncio.fixture(scope="module")
async def guarded(
    management: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """The shared management cluster with the policy at work, and without it for whoever comes next."""
    folder = copy_chart(tmp_path_factory.mktemp("chart"))
    chart = Chart(helm=ensure("helm"), folder=folder, home=tmp_path_factory.mktemp("helm"))
    rendered = chart.render(release="admission")
    policies = rendered.of_kind("ValidatingAdmissionPolicy")
    bindings = rendered.of_kind("ValidatingAdmissionPolicyBinding")
    for each in policies:
        await management.client.create(f"{ADMISSION}/validatingadmissionpolicies", each)
    for each in bindings:
        await management.client.create(f"{ADMISSION}/validatingadmissionpolicybindings", each)
    probe = await make_range(management, "policy-probe", {"capacity": {"used": 1}})

    async def is_at_work() -> bool:
        try:
            await management.client.delete(f"{probe}?dryRun=All")
        except ApiError as error:
            return error.status == HTTPStatus.FORBIDDEN
        return False

    async def is_gone() -> bool:
        return not await is_at_work()

    # The API server reads its policies a moment after they were written.
    await eventually(is_at_work, seconds=30, what="the admission policy")
    yield management
    for each in bindings:
        name = each["metadata"]["name"]
        await management.client.delete(f"{ADMISSION}/validatingadmissionpolicybindings/{name}")
    for each in policies:
        await management.client.delete(f"{ADMISSION}/validatingadmissionpolicies/{each['metadata']['name']}")
    await eventually(is_gone, seconds=30, what="the end of the admission policy")
    await management.client.delete(probe)


@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        {"conditions": []},
        {"capacity": {}},
        {"capacity": {"total": 62, "used": 0, "free": 62, "quarantined": 0, "outOfRange": 0}},
        {"capacity": {"total": 62, "used": 0, "free": 60, "quarantined": 2, "outOfRange": 0}},
    ],
    ids=["never reconciled", "empty", "conditions only", "no counts", "nothing held", "only quarantined"],
)
async def test_a_range_that_nobody_uses_can_be_deleted(guarded: ControlPlane, status: Json | None) -> None:
    path = await make_range(guarded, "unused", status)
    await guarded.client.delete(path)
    assert await guarded.client.find(path) is None


@pytest.mark.parametrize(
    ("capacity", "says"),
    [
        ({"used": 3, "outOfRange": 0}, "3 addresses are held. Delete"),
        ({"used": 1}, "1 address is held. Delete"),
        ({"used": 0, "outOfRange": 2}, "2 addresses are held, 2 of them outside of the range. Delete"),
    ],
    ids=[
        "capacity0-3 addresses held and 0 held out of range",
        "capacity1-1 addresses held",
        "capacity2-0 addresses held and 2 held out of range",
    ],
)
async def test_a_range_whose_addresses_are_held_stays_and_the_refusal_says_what_to_do(
    guarded: ControlPlane, capacity: dict[str, Any], says: str
) -> None:
    path = await make_range(guarded, "in-use", {"capacity": capacity})
    with pytest.raises(ApiError) as refused:
        await guarded.client.delete(path)
    assert refused.value.status == HTTPStatus.FORBIDDEN
    assert "in-use" in refused.value.message
    assert all(number in refused.value.message for number in re.findall(r"\d+", says))
    assert ALLOW in refused.value.message
    assert "deletionTimestamp" not in (await guarded.client.get(path))["metadata"]
    await force_delete(guarded, path)


async def test_the_annotation_lets_it_go(guarded: ControlPlane) -> None:
    path = await make_range(guarded, "allowed", {"capacity": {"used": 3}}, {ALLOW: "true"})
    await guarded.client.delete(path)
    assert await guarded.client.find(path) is None


@pytest.mark.parametrize("annotations", [{ALLOW: "yes"}, {ALLOW: ""}, {"allow-delete": "true"}])
async def test_no_other_word_lets_it_go(guarded: ControlPlane, annotations: dict[str, str]) -> None:
    path = await make_range(guarded, "half-allowed", {"capacity": {"used": 3}}, annotations)
    with pytest.raises(ApiError) as refused:
        await guarded.client.delete(path)
    assert refused.value.status == HTTPStatus.FORBIDDEN
    await force_delete(guarded, path)


async def test_a_restore_by_rancher_backup_prunes_a_range_in_use_and_no_other_account_does(
    guarded: ControlPlane,
) -> None:
    """With `prune`, it deletes what is not in the backup. By the account that its chart makes."""
    path = await make_range(guarded, "not-in-the-backup", {"capacity": {"used": 3}})
    await guarded.client.create(BINDINGS, binding_of(RESTORE, OTHER))
    try:
        with pytest.raises(ToolFailedError, match="3 addresses are held"):
            await guarded.kubectl("delete", "fiprange", "not-in-the-backup", f"--as={OTHER}")
        await guarded.kubectl("delete", "fiprange", "not-in-the-backup", f"--as={RESTORE}")
    finally:
        await guarded.client.delete(f"{BINDINGS}/restores")
    assert await guarded.client.find(path) is None


def binding_of(*users: str) -> Json:
    """Return a binding by which users may do anything: that the policy refuses is what is tried."""
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": "restores"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user} for user in users],
    }


async def test_deleting_all_ranges_at_once_leaves_those_in_use(guarded: ControlPlane) -> None:
    label = {"metadata": {"labels": {"test": "collection"}}}
    used = await make_range(guarded, "collection-used", {"capacity": {"used": 1}})
    await guarded.client.patch(used, label)
    with pytest.raises(ApiError) as refused:
        await guarded.client.delete(RANGES, labelSelector="test=collection")
    assert refused.value.status == HTTPStatus.FORBIDDEN
    assert await guarded.client.find(used)
    await force_delete(guarded, used)


async def test_a_range_in_use_can_still_be_edited(guarded: ControlPlane) -> None:
    path = await make_range(guarded, "edited", {"capacity": {"used": 1}})
    edited = await guarded.client.patch(path, {"spec": {"draining": True}})
    assert edited["spec"]["draining"] is True
    await force_delete(guarded, path)


MADE = "kubefip.k8s.binbash.org/made"
FLOATING_IPS = "/apis/kubefip.k8s.binbash.org/v1/namespaces/default/floatingips"
OPERATOR = "system:serviceaccount:kube-fip:admission"


async def test_the_operator_deletes_only_what_it_made_for_services_and_marks_nothing_else_so(
    guarded: ControlPlane,
) -> None:
    kind = {"apiVersion": "kubefip.k8s.binbash.org/v1", "kind": "FloatingIP", "spec": {}}
    made = {"name": "made", "annotations": {MADE: "digest"}}
    for metadata in (made, {"name": "by-hand"}):
        await guarded.client.create(FLOATING_IPS, {**kind, "metadata": metadata})
    await guarded.client.create(BINDINGS, binding_of(OPERATOR, OTHER))
    mark = '{"metadata":{"annotations":{"' + MADE + '":"digest"}}}'
    try:
        for arguments in (
            ["delete", "fip", "by-hand"],
            ["patch", "fip", "by-hand", "--type=merge", "-p", mark],
        ):
            with pytest.raises(ToolFailedError, match="The operator must not"):
                await guarded.kubectl(*arguments, "--namespace=default", f"--as={OPERATOR}")
        await guarded.kubectl(
            "patch", "fip", "by-hand", "--type=merge", "-p", mark.replace(MADE, "note"), "-n=default"
        )
        await guarded.kubectl("delete", "fip", "made", "--namespace=default", f"--as={OPERATOR}")
        await guarded.kubectl("delete", "fip", "by-hand", "--namespace=default", f"--as={OTHER}")
    finally:
        await guarded.client.delete(f"{BINDINGS}/restores")
