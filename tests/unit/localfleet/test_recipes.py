from pathlib import Path

import pytest

from localfleet.recipes import Recipe, build_catalogue, parse_go_mod, plan_build

MODULES = Path(__file__).parents[3] / "localfleet" / "modules"
RECIPE = Recipe(
    name="tool",
    module="tool",
    package="example.invalid/tool/cmd",
    pinned="example.invalid/tool",
    stamps=("example.invalid/tool.version={version}", "example.invalid/tool.minor={minor}"),
)
GO_MOD = """module localfleet/tool

go 1.26.0

require example.invalid/tool v1.36.3

require (
\texample.invalid/other v0.1.0 // indirect
)

replace example.invalid/tool v1.36.3 => example.invalid/fork v9.9.9
"""


def test_a_go_mod_without_a_go_version_is_refused() -> None:
    with pytest.raises(ValueError, match="no Go version"):
        parse_go_mod("module localfleet/tool\n")


@pytest.mark.parametrize(
    "other",
    [
        plan_build(RECIPE, GO_MOD.replace("v0.1.0", "v0.1.1"), "", "Linux-x86_64"),
        plan_build(RECIPE, GO_MOD, "example.invalid/other v0.1.0 h1:x=", "Linux-x86_64"),
        plan_build(RECIPE, GO_MOD, "", "Linux-aarch64"),
        plan_build(
            Recipe(name="tool", module="tool", package=RECIPE.package, pinned=RECIPE.pinned),
            GO_MOD,
            "",
            "Linux-x86_64",
        ),
    ],
    ids=["go.mod", "go.sum", "machine", "flags"],
)
def test_whatever_changes_the_result_changes_the_key(other: object) -> None:
    assert plan_build(RECIPE, GO_MOD, "", "Linux-x86_64").key != other.key


KUBERNETES = sorted(folder.name for folder in MODULES.glob("kubernetes*"))
MODULES_OF_PROGRAMS = [
    (name, module)
    for name, recipe in build_catalogue().go.items()
    if recipe.pinned
    for module in (KUBERNETES if recipe.pinned == "k8s.io/kubernetes" else [recipe.module])
]


@pytest.mark.parametrize(("name", "module"), MODULES_OF_PROGRAMS)
def test_every_program_of_others_is_pinned_with_its_checksums(name: str, module: str) -> None:
    recipe = build_catalogue().go[name]
    folder = MODULES / module
    go_sum = (folder / "go.sum").read_text()
    plan = plan_build(recipe, (folder / "go.mod").read_text(), go_sum, "any")
    assert f"{recipe.pinned} {plan.version} h1:" in go_sum
    assert f'"{recipe.package}"' in (folder / "tools.go").read_text(), "go mod tidy would drop it"


def test_our_own_program_needs_no_other_module() -> None:
    (own,) = (each for each in build_catalogue().go.values() if not each.pinned)
    go_mod = (MODULES / own.module / "go.mod").read_text()
    assert parse_go_mod(go_mod).versions == {}
    sources = ("package main\n", "package main\n\nfunc main() {}\n")
    assert len({plan_build(own, go_mod, source, "any").key for source in sources}) == 2


@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_the_staging_modules_belong_to_the_pinned_kubernetes(kubernetes: str) -> None:
    text = (MODULES / kubernetes / "go.mod").read_text()
    minor_and_patch = parse_go_mod(text).versions["k8s.io/kubernetes"].removeprefix("v1.")
    staging = [line.split() for line in text.splitlines() if line.startswith("\tk8s.io/") and "=>" in line]
    assert len(staging) >= 30
    assert {line[3] for line in staging} == {f"v0.{minor_and_patch}"}
    wanted = kubernetes.removeprefix("kubernetes").removeprefix("-")
    assert not wanted or minor_and_patch.startswith(f"{wanted.removeprefix('1.')}.")
