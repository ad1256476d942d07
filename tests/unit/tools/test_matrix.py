"""The runs on other versions of Kubernetes, and what the repository keeps of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from localfleet.assets import KUBERNETES, Assets
from tests.matrix.__main__ import known_versions, main, read_counts
from tests.matrix.results import Result, read_results, record

OLD = Result(kubernetes="1.9.4", go="1.26.8", date="2026-11-24", passed=400, failed=0, skipped=2, minutes=9.5)
NEW = replace(OLD, kubernetes="1.10.1", minutes=8.0)
REPORT = """<?xml version="1.0"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10" time="7.0">
<testcase name="one"/></testsuite></testsuites>"""


def test_what_is_recorded_is_read_again_in_the_order_of_versions(tmp_path: Path) -> None:
    path = tmp_path / "results.toml"
    assert read_results(path) == ()
    record(NEW, path)
    record(OLD, path)
    assert read_results(path) == (OLD, NEW)


def test_a_new_run_replaces_that_of_the_same_minor_version(tmp_path: Path) -> None:
    path = tmp_path / "results.toml"
    for each in (OLD, NEW):
        record(each, path)
    again = replace(OLD, kubernetes="1.9.11", failed=1)
    record(again, path)
    assert read_results(path) == (again, NEW)


def test_errors_count_as_failures() -> None:
    found = read_counts(REPORT)
    assert (found.passed, found.failed, found.skipped) == (4, 3, 3)
    empty = read_counts("<testsuites/>")
    assert (empty.passed, empty.failed, empty.skipped) == (0, 0, 0)


def test_a_version_that_cannot_be_built_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["1.2"])
    assert ended.value.code == 2
    assert "VERSION must be one of 1.30," in capsys.readouterr().err


def test_the_record_is_of_the_versions_that_are_built_and_without_failures() -> None:
    """A version that was raised is run again before it is claimed."""
    pinned = []
    for version in known_versions():
        listings = Assets(environment={KUBERNETES: version}).listings()
        pinned += [each.version.removeprefix("v") for each in listings if each.name == "kube-apiserver"]
    results = read_results()
    assert [each.kubernetes for each in results] == pinned
    assert [each.failed for each in results] == [0] * len(results)
    assert all(each.passed > 800 for each in results)
