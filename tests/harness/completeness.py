"""A run of tests in which a collected test did not run has failed, whatever the others said.

A worker that dies takes its tests with it: without this check, a run that stops there could pass as one that found
nothing.
"""

from collections.abc import Collection, Sequence

import pytest

SHOWN = 10
"""So many of the tests that did not run are named."""


class Completeness:
    """Compares what ran with what was collected, in the process that collects the reports."""

    def __init__(self) -> None:
        self._collected: dict[str, None] = {}
        self._ran: set[str] = set()

    @property
    def missing(self) -> Collection[str]:
        """The collected tests of which no report came, in their order."""
        return [each for each in self._collected if each not in self._ran]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected.update(dict.fromkeys(item.nodeid for item in session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._collected.update(dict.fromkeys(ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._ran.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (
            self.missing
            and not session.config.option.collectonly
            and session.exitstatus == pytest.ExitCode.OK
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.missing or terminalreporter.config.option.collectonly:
            return
        collected, missing = len(self._collected), list(self.missing)
        terminalreporter.write_sep(
            "=", f"{len(missing)} of {collected} collected tests did not run", red=True
        )
        for each in missing[:SHOWN]:
            terminalreporter.write_line(each)
        if len(missing) > SHOWN:
            terminalreporter.write_line(f"and {len(missing) - SHOWN} more")
