"""docs/objects.md beside the schemas: every field and default is told."""

import re
from collections.abc import Iterator

import pytest
import yaml

from tests.chart.rendering import ROOT, Object

PAGE = (ROOT / "docs" / "objects.md").read_text()
FILES = sorted((ROOT / "crds").iterdir())
CRDS = {crd["spec"]["names"]["kind"]: crd for crd in (yaml.safe_load(file.read_text()) for file in FILES)}


def section(kind: str) -> str:
    found = re.search(rf"^## {kind}$(.+?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def properties_of(kind: str, part: str) -> dict[str, Object]:
    (version,) = CRDS[kind]["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"].get(part, {})
    found: dict[str, Object] = schema.get("properties", {})
    return found


def names_in(schema: Object) -> Iterator[str]:
    for name, part in {
        **schema.get("properties", {}),
        **schema.get("items", {}).get("properties", {}),
    }.items():
        yield name
        yield from names_in(part)


@pytest.mark.parametrize("kind", CRDS)
def test_every_field_is_told(kind: str) -> None:
    text = section(kind)
    for part in ("spec", "status"):
        for name, schema in properties_of(kind, part).items():
            assert f"`{name}`" in text
            if name != "conditions":
                assert [each for each in names_in(schema) if f"`{each}`" not in text] == []


@pytest.mark.parametrize("kind", CRDS)
def test_every_default_is_told(kind: str) -> None:
    for name, schema in properties_of(kind, "spec").items():
        if "default" in schema:
            default = (
                str(schema["default"]).lower() if isinstance(schema["default"], bool) else schema["default"]
            )
            assert f"| `{name}` | `{default}` |" in section(kind)


def test_every_short_name_is_told() -> None:
    for crd in CRDS.values():
        assert all(f"`{name}`" in PAGE for name in crd["spec"]["names"]["shortNames"])


def test_every_file_that_it_links_to_exists() -> None:
    for link in re.findall(r"\]\(\.\./([^)]+)\)", PAGE):
        assert (ROOT / link).exists()
