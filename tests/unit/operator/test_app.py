"""What the program tells of itself, without an API server."""

import time
from pathlib import Path
from types import SimpleNamespace

from fipop.kube.connection import Connection
from fipop.operator.app import Operator
from fipop.operator.options import OperatorOptions


def test_a_settings_watch_that_never_worked_counts_as_silent(tmp_path: Path) -> None:
    """It was left out until it had worked once: blind for ever, and live."""
    helm = tmp_path / "helm"
    helm.write_text("#!/bin/sh\n")
    helm.chmod(0o755)
    options = OperatorOptions(
        connection=Connection(server="https://127.0.0.1:1"), identity="me", version="0", helm=str(helm)
    )
    operator = Operator(options, set_log_level=lambda _: None)
    assert operator._health().silences == {}
    watcher = SimpleNamespace(running=True, waiting_for=(), silences=lambda: {"others": 1.0})
    operator._watcher = watcher  # type: ignore[assignment]
    operator._working_since = time.monotonic() - 500
    silences = operator._health().silences
    assert silences["others"] == 1.0
    assert silences["kube-fip-config"] >= 500
