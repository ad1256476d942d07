"""What a machine lacks for real kube-vips is said, and nothing is tried without it."""

import os
from pathlib import Path

import pytest

from localfleet.wire import find_obstacle


def test_a_machine_without_root_or_iproute2_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    lacks = "Network namespaces need root." if os.geteuid() else "The program ip (iproute2) is not installed."
    assert find_obstacle() == lacks
