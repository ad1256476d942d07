"""The page of criteria lists each of them once, and what it says of this repository is so."""

import ast
import dataclasses
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scripts.project_sites import Sites, read_sites

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contributing" / "adoption-criteria.md"
TEXT = PAGE.read_text()
PASSING = """
description_good interact contribution contribution_requirements floss_license floss_license_osi license_location
documentation_basics documentation_interface sites_https discussion english maintained repo_public repo_track
repo_interim repo_distributed version_unique version_semver version_tags release_notes release_notes_vulns
report_process report_tracker report_responses enhancement_responses report_archive vulnerability_report_process
vulnerability_report_private vulnerability_report_response build build_common_tools build_floss_tools test
test_invocation test_most test_continuous_integration test_policy tests_are_added tests_documented_added warnings
warnings_fixed warnings_strict know_secure_design know_common_errors crypto_published crypto_call crypto_floss
crypto_keylength crypto_working crypto_weaknesses crypto_pfs crypto_password_storage crypto_random delivery_mitm
delivery_unsigned vulnerabilities_fixed_60_days vulnerabilities_critical_fixed no_leaked_credentials static_analysis
static_analysis_common_vulnerabilities static_analysis_fixed static_analysis_often dynamic_analysis
dynamic_analysis_unsafe dynamic_analysis_enable_assertions dynamic_analysis_fixed
"""
"""The criteria of the passing level, as criteria.yml of coreinfrastructure/best-practices-badge has them."""
STATES = ("met", "waits", "n/a", "not met")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CHART = yaml.safe_load((ROOT / "Chart.yaml").read_text())
CRYPTOGRAPHY = {"ssl", "hashlib", "secrets"}
"""The modules of Python's library that fipop uses for cryptography."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A criterion, its state, and where it is met or why not."""

    criterion: str
    state: str
    where: str


def rows(heading: str) -> list[Row]:
    table = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("| ")
    ]
    return [Row(criterion=each[0], state=each[-2], where=each[-1]) for each in cells[1:]]


OPENSSF = rows("OpenSSF Best Practices, passing")
ROWS = [*OPENSSF, *rows("Rancher's partner charts")]


def test_every_criterion_of_the_badge_is_listed_once() -> None:
    elsewhere = re.search(r"^Files cannot answer these: (.+?)\.$", TEXT, re.MULTILINE | re.DOTALL)
    assert elsewhere
    listed = [*(row.criterion for row in OPENSSF), *elsewhere[1].replace("\n", " ").split(", ")]
    assert sorted(listed) == sorted(PASSING.split())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.criterion)
def test_a_row_has_a_state_and_its_reason(row: Row) -> None:
    assert row.state in STATES
    assert row.where
    for target in re.findall(r"\]\(([^)#]+)", row.where):
        assert (PAGE.parent / target).exists(), target


def test_what_waits_names_a_site_that_is_empty() -> None:
    sites = dataclasses.asdict(read_sites(tomllib.loads((ROOT / "project.toml").read_text())))
    for row in (each for each in ROWS if each.state == "waits"):
        named = re.findall(r"`sites\.(\w+)`", row.where)
        assert named, row
        assert not [name for name in named if sites[name]], f"{row.criterion} waits no longer"


def test_the_table_of_sites_lists_each_of_them() -> None:
    table = TEXT.partition("## Project sites\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `sites\.(\w+)`", table, re.MULTILINE) == [
        each.name for each in dataclasses.fields(Sites)
    ]


def test_license_and_notice_are_what_package_and_chart_name() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]
    assert PROJECT["project"]["license"] == CHART["annotations"]["artifacthub.io/license"] == "Apache-2.0"
    assert PROJECT["project"]["license-files"] == ["LICENSE", "NOTICE"]
    assert all((ROOT / name).is_file() for name in PROJECT["project"]["license-files"])


def test_the_tools_that_the_page_names_are_on() -> None:
    tool = PROJECT["tool"]
    assert "S" in tool["ruff"]["lint"]["select"]
    assert "S" not in tool["ruff"]["lint"].get("per-file-ignores", {}).get("fipop/**", [])
    assert tool["mypy"]["strict"]
    # The one exception that the page names.
    assert tool["pytest"]["ini_options"]["filterwarnings"] == [
        "error",
        "ignore:coroutine 'worker' was never awaited:RuntimeWarning",
    ]


def calls(module: str) -> Iterator[tuple[str, str]]:
    """Return what fipop uses of a module, with the file."""
    for path in (ROOT / "fipop").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == module
            ):
                yield node.attr, path.relative_to(ROOT).as_posix()
            if isinstance(node, ast.ImportFrom) and node.module == module:
                yield from ((each.name, path.relative_to(ROOT).as_posix()) for each in node.names)


def test_fipop_hashes_with_sha256_alone_and_verifies_certificates() -> None:
    assert {name for name, _ in calls("hashlib")} == {"sha256", "file_digest"}
    assert [file for name, file in calls("ssl") if name in ("CERT_NONE", "_create_unverified_context")] == []


def test_fipop_has_no_cryptography_but_pythons() -> None:
    imported = {
        alias.name.partition(".")[0]
        for path in (ROOT / "fipop").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert (
        imported & {"ssl", "hashlib", "secrets", "hmac", "crypt", "cryptography", "OpenSSL", "nacl"}
        == CRYPTOGRAPHY
    )


@pytest.mark.parametrize("name", ["SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md"])
def test_forges_find_the_pages_for_people(name: str) -> None:
    text = (ROOT / name).read_text()
    assert text.startswith("# ")
    assert name in (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()


def test_the_folders_that_a_newcomer_is_shown_exist() -> None:
    table = (
        (ROOT / "CONTRIBUTING.md")
        .read_text()
        .partition("## The code in ten lines\n")[2]
        .partition("\n## ")[0]
    )
    named = [
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_readme_links_security_and_support_and_installs_from_a_registry() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "(SECURITY.md)" in readme
    assert "(docs/reference/support-policy.md)" in readme
    assert re.search(r"^\$ helm install fipop oci://\S+/charts/fipop --version \S+", readme, re.MULTILINE)
