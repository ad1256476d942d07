"""A release is refused unless everything that names its version names the same one."""

import pytest

from scripts.release_versions import find_version_problems

PYPROJECT = '[project]\nname = "fipop"\nversion = "1.2.3"\n'
CHART = "apiVersion: v2\nname: fipop\nversion: 1.2.3\nappVersion: 1.2.3\n"
CHANGELOG = "# Changelog\n\n## 1.2.3 (2026-01-31)\n\nNew.\n\n## 1.2.2 (2025-12-24)\n"


def problems(
    version: str = "1.2.3", *, pyproject: str = PYPROJECT, chart: str = CHART, changelog: str = CHANGELOG
) -> list[str]:
    return find_version_problems(version, pyproject=pyproject, chart=chart, changelog=changelog)


def test_a_version_that_all_texts_name_can_be_released() -> None:
    assert problems() == []


@pytest.mark.parametrize("version", ["0.2.0-rc1", "0.2.0-rc.1"])
def test_a_release_candidate_can_be_released(version: str) -> None:
    texts = [text.replace("1.2.3", version) for text in (PYPROJECT, CHART, CHANGELOG)]
    assert problems(version, pyproject=texts[0], chart=texts[1], changelog=texts[2]) == []


@pytest.mark.parametrize(
    "version", ["", "1.2", "v1.2.3", "1.2.3+build", "01.2.3", "1.2.3-", "1.2.3\n", "1.2.3 --help", "../1.2.3"]
)
def test_what_is_no_version_is_refused_at_once(version: str) -> None:
    assert problems(version) == [f'VERSION must be like 0.1.0 or 0.2.0-rc1; it is "{version}".']


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"pyproject": PYPROJECT.replace("1.2.3", "1.2.2")}, "project.version in pyproject.toml is 1.2.2, not 1.2.3."),
        ({"pyproject": "[project]\n"}, "project.version in pyproject.toml is None, not 1.2.3."),
        ({"chart": CHART.replace("\nversion: 1.2.3", "\nversion: 1.2.2")}, "version in Chart.yaml is 1.2.2, not"),
        ({"chart": CHART.replace("appVersion: 1.2.3", "appVersion: 1.2")}, "appVersion in Chart.yaml is 1.2, not"),
        ({"changelog": "# Changelog\n"}, 'CHANGELOG.md is missing: add "## 1.2.3 (YYYY-MM-DD)".'),
        ({"changelog": CHANGELOG.replace("## 1.2.3", "## 1.3.0")}, 'CHANGELOG.md is 1.3.0: add "## 1.2.3'),
        ({"changelog": CHANGELOG.replace("2026-01-31", "not released")}, '"not released" behind 1.2.3: write the date'),
        ({"changelog": CHANGELOG.replace(" (2026-01-31)", "")}, '"no date" behind 1.2.3: write the date'),
    ],
)  # fmt: skip
def test_each_text_that_does_not_agree_is_named_in_one_sentence(changed: dict[str, str], words: str) -> None:
    [problem] = problems(**changed)
    assert words in problem


def test_all_reasons_are_named_at_once() -> None:
    assert len(problems("2.0.0")) == 4
