"""What only one group of tests uses ends with the group; else it works on, idly, until the worker's last test.

An idle control plane takes 2 % of a core, and an operator that visits guests every second more. Only a worker of a run
by groups knows when a group has ended: in other runs fixtures end as pytest ends them.
"""

from collections.abc import Collection

import pytest


class GroupEnds:
    """Ends fixtures of these names, of a wide scope, at the end of a group and so before pytest would."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._open: dict[pytest.FixtureDef[object], pytest.FixtureRequest] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> object:
        result = yield
        if fixturedef.argname in self._names and fixturedef.scope in {"session", "package"}:
            self._open[fixturedef] = request
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        result = yield
        if nextitem is None or not item.config.getoption("loadgroup", False):
            return result
        if _group(item) != _group(nextitem):
            for each in reversed(list(self._open)):
                each.finish(self._open.pop(each))
        return result


def _group(item: pytest.Item) -> str:
    # xdist appends the group to the id.
    return item.nodeid.rpartition("@")[2]
