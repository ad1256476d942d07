"""What only one group of tests uses ends with the group; else it works on, idly, until the worker's last test.

An idle control plane takes 2 % of a core, and an operator that visits guests every second more. Only a worker of a run
by groups knows when a group has ended: in other runs fixtures end as pytest ends them.
"""

from collections.abc import Collection, Mapping

import pytest


class GroupEnds:
    """Ends fixtures of a wide scope before pytest would: at the end of a group, or of a folder."""

    def __init__(self, *, with_group: Collection[str], with_folder: Mapping[str, str]) -> None:
        self._with_group = with_group
        self._with_folder = with_folder
        """Each fixture with the beginning of the ids of those tests that use it."""
        self._open: dict[pytest.FixtureDef[object], pytest.FixtureRequest] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> object:
        result = yield
        is_named = fixturedef.argname in self._with_group or fixturedef.argname in self._with_folder
        if is_named and fixturedef.scope in {"session", "package"}:
            self._open[fixturedef] = request
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        result = yield
        if nextitem is not None and item.config.getoption("loadgroup", False):
            ended = [each for each in self._open if self._has_ended(each.argname, item, nextitem)]
            for each in reversed(ended):
                each.finish(self._open.pop(each))
        return result

    def _has_ended(self, fixture: str, item: pytest.Item, nextitem: pytest.Item) -> bool:
        folder = self._with_folder.get(fixture)
        if folder is not None:
            return item.nodeid.startswith(folder) and not nextitem.nodeid.startswith(folder)
        return _group(item) != _group(nextitem)


def _group(item: pytest.Item) -> str:
    # xdist appends the group to the id.
    return item.nodeid.rpartition("@")[2]
