"""A run of pytest that left tests out does not pass, however it came to that."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
import pytest
from tests.harness.completeness import Completeness

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Completeness())
"""


def run_pytest(
    folder: Path, source: str, *options: str, conftest: str = CONFTEST
) -> subprocess.CompletedProcess[str]:
    """Run pytest on one file of tests in an empty folder."""
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", *options),
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


TWENTY = """
import pytest

@pytest.mark.parametrize("number", range(20))
def test_each(number):
    assert number >= 0
"""


def test_a_worker_that_dies_fails_the_run_and_the_tests_that_it_took_along_are_counted(
    tmp_path: Path,
) -> None:
    dying = "import os\n" + TWENTY + "    if number == 3:\n        os._exit(0)\n"
    done = run_pytest(tmp_path, dying, "--numprocesses=2", "--dist=loadfile", "--max-worker-restart=0")
    assert done.returncode != 0
    assert "of 20 collected tests did not run" in done.stdout


@pytest.mark.slow
def test_a_run_that_stops_early_and_calls_itself_passed_fails(tmp_path: Path) -> None:
    """Whatever ends a run, such as a plugin that asks it to stop: what did not run was not tested."""
    stopping = (
        CONFTEST
        + "\ndef pytest_runtest_logreport(report):\n    if '[6]' in report.nodeid: CONFIG.shouldstop = 'enough'\n"
    )
    stopping += "\ndef pytest_sessionstart(session):\n    global CONFIG\n    CONFIG = session\n"
    stopping += (
        "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_sessionfinish(session):\n    session.exitstatus = 0\n"
    )
    done = run_pytest(tmp_path, TWENTY, conftest=stopping)
    assert done.returncode == 1, done.stdout
    assert "13 of 20 collected tests did not run" in done.stdout
