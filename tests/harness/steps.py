"""Counts the work of a function in lines of Python: a measure of cost that no neighbour of the test changes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python this thread runs in `work`; what C code does in one call counts as one line."""
    steps = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps
