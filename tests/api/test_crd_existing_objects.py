"""Objects that people have: the manifests of their runbooks, and what older installations stored."""

import copy
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.errors import ApiError
from localfleet.waiting import eventually
from tests.api.crd_constraints import BASES, CONDITION, GROUP, PLACES, ROOT, crds
from tests.api.emptying import wipe

pytestmark = pytest.mark.xdist_group("management")

RUNBOOKS = {
    "range.yaml": """\
apiVersion: kubefip.k8s.binbash.org/v1
kind: FloatingIPRange
metadata:
  annotations:
    harvesterClusterName: harvester-cluster1
    harvesterNetworkName: vlan10
  name: guest-vlan
spec:
  iprange: 10.135.10.192/26
""",
    "floatingip-static.yaml": """\
apiVersion: kubefip.k8s.binbash.org/v1
kind: FloatingIP
metadata:
  annotations:
    clustername: demo
    fiprange: guest-vlan
    updateConfigMap: "true"
  name: demo-vip
  namespace: c-m-ngd5hs2r
spec:
  ipaddress: 10.135.10.200
""",
    "floatingip-dynamic.yaml": """\
apiVersion: kubefip.k8s.binbash.org/v1
kind: FloatingIP
metadata:
  annotations:
    clustername: demo
    fiprange: guest-vlan
    updateConfigMap: "false"
  name: demo-vip
  namespace: c-m-ngd5hs2r
spec: {}
""",
}


@pytest.mark.parametrize("name", RUNBOOKS)
def test_the_manifests_of_the_runbooks_are_kept_to_the_letter(name: str) -> None:
    lines = (ROOT / "examples" / name).read_text().splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith("#")) == RUNBOOKS[name]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_says_what_to_edit_first(path: Path) -> None:
    assert "Edit first: " in path.read_text().split("\n\n")[0]


@pytest_asyncio.fixture(scope="module")
async def runbooks(management: ControlPlane) -> AsyncIterator[str]:
    """The namespace of the runbooks."""
    name = "c-m-ngd5hs2r"
    await management.create_namespace(name)
    yield name
    await management.client.delete(f"/api/v1/namespaces/{name}")


@pytest_asyncio.fixture
async def runbook_namespace(management: ControlPlane, runbooks: str) -> AsyncIterator[str]:
    """The namespace of the runbooks, which is empty before and after a test."""
    yield runbooks
    await wipe(management)


@pytest.mark.parametrize(
    "file",
    [
        "floatingip-static.yaml",
        "floatingip-dynamic.yaml",
        "floatingip-shared.yaml",
        "floatingip-static-dual-stack.yaml",
        "dual-stack.yaml",
    ],
)
async def test_the_examples_work_with_kubectl_create(
    management: ControlPlane, runbook_namespace: str, file: str
) -> None:
    """Each floating IP on its own, without its range and before its guest."""
    await management.kubectl("create", "--validate=strict", "-f", str(ROOT / "examples" / file))
    (made,) = await management.client.items(f"{GROUP}/namespaces/{runbook_namespace}/floatingips")
    assert made["metadata"]["annotations"]["clustername"] == "demo"


async def test_the_example_of_a_range_works_with_kubectl_create(management: ControlPlane) -> None:
    path = f"{PLACES['FloatingIPRange']}/guest-vlan"
    await wipe(management)
    await management.kubectl("create", "--validate=strict", "-f", str(ROOT / "examples" / "range.yaml"))
    made = await management.client.get(path)
    await management.client.delete(path)
    assert made["spec"]["iprange"] == "10.135.10.192/26"


OLD_PROPERTIES: dict[str, Json] = {
    "FloatingIPRange": {"iprange": {"type": "string"}, "region": {"type": "string"}},
    "FloatingIP": {"ipaddress": {"type": "string"}},
}


def old_crd(kind: str) -> Json:
    """A CRD as an older installation has it: no status subresource, no defaults, no rules."""
    crd = copy.deepcopy(crds()[kind])
    schema: Json = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": OLD_PROPERTIES[kind]},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    crd["spec"]["versions"] = [
        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    ]
    return crd


async def replace_crd(plane: ControlPlane, crd: Json) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    current = await plane.client.get(path)
    crd = copy.deepcopy(crd)
    crd["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
    await plane.client.replace(path, crd)


@pytest_asyncio.fixture
async def todays_crds(management: ControlPlane) -> AsyncIterator[None]:
    """Nothing before the test; after it the CRDs are those of today, whatever it made of them."""
    yield
    for crd in crds().values():
        await replace_crd(management, crd)


async def test_objects_of_the_old_crds_keep_working(
    management: ControlPlane, namespace: str, todays_crds: None
) -> None:
    """Without a spec, or with values that the rules of today would refuse: status and labels can be written."""
    client = management.client
    places = {
        "FloatingIPRange": PLACES["FloatingIPRange"],
        "FloatingIP": f"{GROUP}/namespaces/{namespace}/floatingips",
    }
    bare = {kind: {**BASES[kind], "metadata": {"name": "old-bare"}} for kind in places}
    odd = {kind: {**BASES[kind], "metadata": {"name": "old-odd"}} for kind in places}
    for kind in places:
        del bare[kind]["spec"]
        await replace_crd(management, old_crd(kind))
    odd["FloatingIPRange"]["spec"] = {"iprange": "300.0.0.0/24,fd00:12:::/64,10.0.0.9-10.0.0.1"}
    odd["FloatingIP"]["spec"] = {"ipaddress": "300.0.0.1"}

    async def old_is_served() -> bool:
        """The old schema gives no defaults, so a dry run tells which one is at work."""
        found = ["spec" in await client.create(f"{places[kind]}?dryRun=All", bare[kind]) for kind in places]
        return not any(found)

    await eventually(old_is_served, what="the old schemas")
    for kind, place in places.items():
        await client.create(place, bare[kind])
        await client.create(place, odd[kind])
        await replace_crd(management, crds()[kind])

    async def new_is_served() -> bool:
        found = [await client.get(f"{places[kind]}/old-bare") for kind in places]
        return all("spec" in obj for obj in found)

    await eventually(new_is_served, what="the new schemas")
    paths = [f"{places[kind]}/{name}" for kind in places for name in ("old-bare", "old-odd")]
    for path in paths:

        async def status_is_written(path: str = path) -> Json | None:
            try:
                return await client.patch(f"{path}/status", {"status": {"conditions": [CONDITION]}})
            except ApiError as error:
                assert error.status == HTTPStatus.NOT_FOUND, error  # noqa: PT017 - the subresource comes late
                return None

        written = await eventually(status_is_written, what=f"the status of {path}")
        assert written["status"]["conditions"] == [CONDITION]
        labelled = await client.patch(path, {"metadata": {"labels": {"a": "b"}}})
        assert labelled["metadata"]["labels"] == {"a": "b"}
    for path, wrong in zip(
        paths[1::2], ({"iprange": "300.0.0.1/24"}, {"ipaddress": "300.0.0.2"}), strict=True
    ):
        with pytest.raises(ApiError, match="Invalid"):
            await client.patch(path, {"spec": wrong})
    assigned = await client.patch(f"{places['FloatingIP']}/old-bare", {"spec": {"ipaddress": "10.0.0.1"}})
    assert assigned["spec"] == {"ipaddress": "10.0.0.1"}
    for path in paths:
        await client.delete(path)


def test_the_backup_example_names_all_our_kinds() -> None:
    example = yaml.safe_load((ROOT / "examples" / "backup-resourceset.yaml").read_text())
    text = json.dumps(example["resourceSelectors"])
    for crd in crds().values():
        assert crd["spec"]["names"]["plural"] in text
