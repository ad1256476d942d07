import os
import select
from collections.abc import Callable

import pytest


@pytest.fixture
def ends() -> Callable[[int], bool]:
    """Whether the process with this id comes to its end within ten seconds."""

    def wait(pid: int) -> bool:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([descriptor], [], [], 10)[0])
        finally:
            os.close(descriptor)

    return wait
