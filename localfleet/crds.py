"""CustomResourceDefinitions brought into a control plane."""

import asyncio
from pathlib import Path

import yaml

from localfleet.client import ApiClient, Json
from localfleet.controlplane import is_true
from localfleet.waiting import eventually

_ROOT = Path(__file__).parent.parent
OUR_CRDS = _ROOT / "crds"
RANCHER_CRDS = Path(__file__).parent / "rancher-crds"

_SERVED_SECONDS = 90.0
_COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def load_crds(client: ApiClient, *folders: Path) -> None:
    """Apply all CRDs in the YAML files of `folders` and wait until the API server serves each version of them."""
    crds = [crd for folder in folders for file in sorted(folder.glob("*.yaml")) for crd in _read(file)]
    await asyncio.gather(*(_load(client, crd) for crd in crds))


def _read(file: Path) -> list[Json]:
    return [document for document in yaml.load_all(file.read_text(), yaml.CSafeLoader) if document]


async def _load(client: ApiClient, crd: Json) -> None:
    place = f"{_COLLECTION}/{crd['metadata']['name']}"
    await client.patch(place, crd, kind="apply")

    async def is_established() -> bool:
        return is_true(await client.get(place), "Established")

    await eventually(is_established, seconds=_SERVED_SECONDS, what=f"{place} to be established")
    for version in (version["name"] for version in crd["spec"]["versions"] if version["served"]):
        collection = f"/apis/{crd['spec']['group']}/{version}/{crd['spec']['names']['plural']}"

        async def is_served(path: str = collection) -> Json:
            return await client.get(f"{path}?limit=1")

        await eventually(is_served, seconds=_SERVED_SECONDS, what=f"{collection} to be served")
