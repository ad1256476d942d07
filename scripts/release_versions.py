"""Whether everything that names the version of a release names the same one: texts in, sentences out."""

from __future__ import annotations

import re
import tomllib

import yaml

# SemVer without build metadata: a + is allowed neither in the tag of an image nor by helm's registries.
_VERSION = re.compile(
    r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*)?"
)
_HEADING = re.compile(r"^## (?P<version>\S+)(?: +\((?P<note>[^)]*)\))? *$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def find_version_problems(version: str, *, pyproject: str, chart: str, changelog: str) -> list[str]:
    """Return a sentence for each text that does not name `version`.

    The texts are those of pyproject.toml, Chart.yaml and CHANGELOG.md.
    """
    if not _VERSION.fullmatch(version):
        return [f'VERSION must be like 0.1.0 or 0.2.0-rc1; it is "{version}".']
    named = yaml.safe_load(chart)
    found = {
        "project.version in pyproject.toml": tomllib.loads(pyproject)["project"].get("version"),
        "version in Chart.yaml": named.get("version"),
        "appVersion in Chart.yaml": named.get("appVersion"),
    }
    problems = [f"{place} is {each}, not {version}." for place, each in found.items() if str(each) != version]
    return [*problems, *_find_changelog_problems(version, changelog)]


def _find_changelog_problems(version: str, changelog: str) -> list[str]:
    headings = list(_HEADING.finditer(changelog))
    if not headings or headings[0]["version"] != version:
        first = headings[0]["version"] if headings else "missing"
        return [f'The first section of CHANGELOG.md is {first}: add "## {version} (YYYY-MM-DD)".']
    note = headings[0]["note"] or ""
    if not _DATE.fullmatch(note):
        wrong = note or "no date"
        return [
            f'CHANGELOG.md has "{wrong}" behind {version}: write the date of the release, as (YYYY-MM-DD).'
        ]
    return []
