"""docs/reference/api.md beside the schemas: every field and default is there."""

import re
from collections.abc import Iterator

import pytest
import yaml

from tests.chart.rendering import ROOT, Object

PAGE = (ROOT / "docs" / "reference" / "api.md").read_text()
ALIKE = ("conditions", "ipv4", "ipv6")
"""Fields whose own fields are those of a Kubernetes condition, or of the field above."""
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


def paths_in(schema: Object, prefix: str) -> Iterator[str]:
    """The fields of a field with the fields above them, as the page names them."""
    for name, part in schema.get("properties", {}).items():
        yield f"{prefix}{name}"
        if name not in ALIKE:
            yield from paths_in(part, f"{prefix}{name}.")
            yield from paths_in(part.get("items", {}), f"{prefix}{name}[].")


@pytest.mark.parametrize("kind", CRDS)
def test_every_field_has_a_row(kind: str) -> None:
    rows = set(re.findall(r"^\| `([\w.\[\]]+)` \|", section(kind), re.MULTILINE))
    for part in ("spec", "status"):
        missing = set(paths_in({"properties": properties_of(kind, part)}, "")) - rows
        assert not missing


@pytest.mark.parametrize("kind", CRDS)
def test_every_default_is_shown(kind: str) -> None:
    for name, schema in properties_of(kind, "spec").items():
        if "default" in schema:
            default = (
                str(schema["default"]).lower() if isinstance(schema["default"], bool) else schema["default"]
            )
            assert re.search(rf"^\| `{name}` \| [^|]+ \| `{default}` \|", section(kind), re.MULTILINE)


@pytest.mark.parametrize("kind", ["FloatingIPRange", "FloatingIP"])
def test_every_field_of_a_spec_is_in_an_example(kind: str) -> None:
    examples = [yaml.safe_load(each) for each in re.findall(r"```yaml\n(.+?)```", section(kind), re.DOTALL)]
    specs = [each["spec"] for each in examples if each.get("kind") == kind]
    assert set().union(*specs) == properties_of(kind, "spec").keys()


def test_every_short_name_is_there() -> None:
    for crd in CRDS.values():
        assert all(f"`{name}`" in PAGE for name in crd["spec"]["names"]["shortNames"])
