"""What all tests share: how hypothesis looks for examples, which tests stay together, and that none is left out."""

import gc
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.harness.completeness import Completeness
from tests.harness.group_ends import GroupEnds

# A run is repeatable: the same code gives the same result, on a slow machine, too.
# Fresh examples, and ten times as many, are for `make night`.
NO_TIME = (HealthCheck.too_slow,)
settings.register_profile(
    "repeatable",
    max_examples=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=NO_TIME,
)
settings.register_profile("fresh", max_examples=300, deadline=None, suppress_health_check=NO_TIME)
settings.register_profile(
    "hunt",
    phases=(Phase.explicit, Phase.generate),
    derandomize=True,
    deadline=None,
    suppress_health_check=NO_TIME,
)
"""For tests that are to fail: the first example will do, nobody reads the smallest one."""
settings.load_profile("repeatable")

GC_THRESHOLDS = gc.get_threshold()
pytest_plugins = ("tests.harness.planes",)
OF_ONE_GROUP = (
    *(
        "bare_stack",
        "guest",
        "installs",
        "management",
        "second_guest",
        "seen",
        "service_guest",
        "stack",
        "tab",
    ),
    *("fleet", "lane", "side"),
)
"""The fixtures with control planes, operators or browsers that the tests of one group share."""
LONGEST_ID = 200
"""Characters. Some tests have values of many MiB."""


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all tests are collected
    config.pluginmanager.register(GroupEnds(OF_ONE_GROUP), "group-ends")
    # The workers of xdist report to this process; only it knows what all of them ran.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Completeness(), "completeness")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long value by its beginning: ids are kept, compared and sent to every worker."""
    if isinstance(val, str | bytes) and len(val) > LONGEST_ID:
        begin = val[:20] if isinstance(val, str) else val[:20].decode("ascii", "replace")
        return f"{argname}-{begin.encode('unicode_escape').decode('ascii')}-and-more-{len(val)}"
    return None


def pytest_collection_finish() -> None:
    # What was collected stays: the garbage collector need not look through it again and again.
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    # A command or an operator, which a test may run in this process, changes both until its process ends.
    gc.enable()
    gc.set_threshold(*GC_THRESHOLDS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Keep the tests of a file on one worker, unless they name a group: they share what their fixtures start."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
