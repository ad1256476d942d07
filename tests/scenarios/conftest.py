"""In all scenarios, what a cause wakes is compared with what it woke before each controller had its watches."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wakeups.comparison import Comparison, installed

_all = Comparison()


@pytest.fixture(autouse=True)
def compared_wakeups() -> Iterator[None]:
    comparison = Comparison()
    with installed(comparison):
        yield
    _all.causes.update(comparison.causes)
    _all.extra.update(comparison.extra)
    _all.keys += comparison.keys
    if path := os.environ.get("FIPOP_WAKEUPS"):
        counts = {"causes": _all.causes, "keys": _all.keys, "extra": _all.extra}
        Path(path).write_text(json.dumps(counts, indent=1), encoding="utf-8")
    assert comparison.lost[:3] == []
    assert not any(name.startswith("unnamed") for name in comparison.extra), list(comparison.extra)[:3]
