"""Manifests that are there without helm: the CRDs, and the cloud provider of one guest."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.golden.normal import Json, Names, flatten, to_yaml

ROOT = Path(__file__).parents[2]


def make_crds() -> dict[str, str]:
    """Return each CRD: every field of its schema on one line, and apart from them what the descriptions say."""
    files = {}
    for file in sorted((ROOT / "crds").glob("*.yaml")):
        facts: Json = {}
        texts: Json = {}
        for path, value in flatten(yaml.safe_load(file.read_text()), Names()).items():
            is_text = path.endswith((".description", ".message", ".messageExpression"))
            (texts if is_text else facts)[_shorten(path)] = value
        files[f"crds/{file.stem}.yaml"] = to_yaml(facts)
        files[f"texts/crds/{file.stem}.yaml"] = to_yaml(texts)
    return files


def _shorten(path: str) -> str:
    schema = "spec.versions[0].schema.openAPIV3Schema"
    return path.replace(schema, "schema").replace(".properties.", ".")


def make_guest_manifest() -> dict[str, str]:
    """Return what scripts/manifest-guest.sh writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "guest.yaml"
        subprocess.run(
            [str(ROOT / "scripts/manifest-guest.sh"), str(file), "registry.example.com/fipop:1.2.3"],
            check=True,
        )
        return {"manifest-guest.yaml": dump_objects(list(yaml.safe_load_all(file.read_text())))}


def dump_objects(objects: list[Any]) -> str:
    """Return objects in the order of their kinds and names, without what helm adds for itself."""
    found = sorted((each for each in objects if each), key=_order)
    return "---\n".join(f"# {_title(each)}\n{to_yaml(each, sort=True)}" for each in found)


def _order(obj: Json) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _title(obj: Json) -> str:
    return f"{obj['kind']} {'/'.join(part for part in _order(obj)[1:] if part)}"
