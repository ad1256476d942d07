"""All async tests of this folder run in virtual time."""

import pytest

from tests.harness.virtual_time import use_virtual_time


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module, name: str, obj: object) -> None:
    """Run an async test in virtual time; what fipop logs with a traceback fails it."""
    use_virtual_time(collector.obj, name, obj, may_crash=False)
