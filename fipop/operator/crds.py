"""Our own CRDs, brought up to date at the start: helm installs what stands in `crds/` once and never upgrades it."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

import yaml

from fipop.api import names
from fipop.api.codec import parse_time
from fipop.errors import StartError
from fipop.jsons import Json, as_mapping
from fipop.kube.client import KubeClient
from fipop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, FLOATING_IP_RESERVATIONS

logger = logging.getLogger(__name__)

ANNOTATION_REVISION = f"{names.GROUP}/schema-revision"


def read_crds(folder: Path) -> list[Json]:
    """Read the CRDs that came with this program. StartError where they cannot be read."""
    return [_read_crd(path) for path in sorted(folder.glob("*.yaml"))]


def _read_crd(path: Path) -> Json:
    try:
        # libyaml's parser: the other one takes a tenth of a second of every start.
        crd = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise StartError(what=f"CRD file {path}", problem="cannot be read as YAML") from error
    if not isinstance(crd, dict) or crd.get("kind") != CUSTOM_RESOURCE_DEFINITIONS.kind:
        raise StartError(what=f"CRD file {path}", problem="must have a CustomResourceDefinition")
    return crd


async def settle_crds(client: KubeClient, crds: list[Json], *, update: bool) -> None:
    """Make sure that the cluster serves our schemas, or newer ones. StartError where it does not."""
    for wanted in crds:
        name = wanted["metadata"]["name"]
        found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        needed, present = revision_of(wanted), revision_of(found or {})
        if found is not None and present >= needed:
            continue
        if not update or found is None:
            state = (
                f"has schema revision {present}: fipop needs {needed}"
                if found is not None
                else "does not exist"
            )
            problem = f"{state}. Apply the crds/ of this version"
            raise StartError(what=f"CRD {name}", problem=problem)
        patch = {
            "metadata": {
                "resourceVersion": found["metadata"]["resourceVersion"],
                "annotations": wanted["metadata"].get("annotations") or {},
            },
            "spec": wanted["spec"],
        }
        await client.merge_patch(CUSTOM_RESOURCE_DEFINITIONS, name, patch)
        logger.info("Updated CRD", extra={"crd": name, "revision": needed})


def revision_of(crd: Json) -> int:
    """Return the revision of a schema; 0 for one of kube-fip-operator, which had none."""
    annotations = (crd.get("metadata") or {}).get("annotations") or {}
    text = str(annotations.get(ANNOTATION_REVISION) or "")
    return int(text) if text.isascii() and text.isdigit() else 0


async def find_our_age(client: KubeClient) -> datetime | None:
    """Return since when reservations exist here: what is older was made for the predecessor. None: they do not yet."""
    crd = await client.get(CUSTOM_RESOURCE_DEFINITIONS, FLOATING_IP_RESERVATIONS.full_name)
    return parse_time(as_mapping((crd or {}).get("metadata")).get("creationTimestamp"))
