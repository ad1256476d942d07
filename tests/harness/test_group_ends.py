"""A fixture that only one group uses ends with the group."""

from pathlib import Path

import pytest

from tests.harness.test_completeness import run_pytest

CONFTEST = """
import pytest
from tests.harness.group_ends import GroupEnds

def pytest_configure(config):
    config.pluginmanager.register(GroupEnds({"server"}))

def note(text):
    with open(NOTES, "a") as file:
        file.write(text + "\\n")

@pytest.fixture(scope="session")
def machine():
    note("machine")
    yield
    note("machine ends")

@pytest.fixture(scope="session")
def server(machine):
    note("server")
    yield
    note("server ends")

@pytest.fixture(autouse=True)
def name(request):
    note(request.node.name.partition("@")[0])
"""
SOURCE = """
import pytest

@pytest.mark.xdist_group("one")
def test_1(server): pass

@pytest.mark.xdist_group("two")
def test_2(machine): pass

@pytest.mark.xdist_group("one")
def test_3(server): pass
"""
OTHERS = """
import pytest

@pytest.mark.xdist_group("three")
def test_4(): pass
"""


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        (
            ("--numprocesses=1", "--dist=loadgroup", "--no-loadscope-reorder"),
            "machine, server, test_1, test_3, server ends, test_2, test_4, machine ends",
        ),
        (("-p", "no:xdist"), "machine, server, test_1, test_2, test_3, test_4, server ends, machine ends"),
    ],
    ids=["by groups", "in one process"],
)
def test_a_fixture_ends_with_the_last_test_that_uses_it(
    tmp_path: Path, options: tuple[str, ...], notes: str
) -> None:
    (tmp_path / "test_other.py").write_text(OTHERS)
    written = tmp_path / "notes"
    done = run_pytest(tmp_path, SOURCE, *options, conftest=f"NOTES = {str(written)!r}\n{CONFTEST}")
    assert done.returncode == 0, done.stdout
    assert ", ".join(written.read_text().split("\n")[:-1]) == notes
