"""What the commands that only read print of a recorded fleet: as a wide table, and once for each form as JSON."""

import gc
import json
import logging
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from fipop.cli.main import main
from tests.golden.fleet_server import FULL, LIMITED, serve
from tests.golden.normal import to_yaml

_SHOWN = 2
_PORT = re.compile(r"127\.0\.0\.1:\d+")

_TODAY: dict[str, tuple[str, ...]] = {
    "status": ("status",),
    "who-holds-an-address": ("who", "10.0.0.10"),
    "who-holds-an-address-in-quarantine": ("who", "10.0.0.12"),
    "who-holds-a-free-address": ("who", "10.0.2.77"),
    "who-holds-an-unknown-address": ("who", "192.0.2.1"),
    "who-is-a-cluster": ("who", "delta"),
    "who-is-a-guest-that-is-asked": ("who", "delta", "--guest"),
    "who-is-a-guest-without-kubeconfig": ("who", "gamma", "--guest"),
    "who-is-unknown": ("who", "nobody"),
    "free-of-a-full-range": ("free", "full"),
    "free-of-both-families": ("free", "dual", "--count", "3"),
    "free-highest-first": ("free", "young", "--count", "3"),
    "free-of-an-unknown-range": ("free", "nowhere"),
    "check": ("check",),
    "adopt": ("adopt", "--dry-run"),
    "rollout-status": ("rollout", "status"),
}
_LIMITED: dict[str, tuple[str, ...]] = {
    "status-with-few-rights": ("status",),
    "who-with-few-rights": ("who", "10.0.0.10"),
    "check-with-few-rights": ("check",),
}
_PREDECESSOR: dict[str, tuple[str, ...]] = {
    "predecessor-status": ("status",),
    "predecessor-check": ("check",),
    "predecessor-adopt": ("adopt", "--dry-run", "--guests"),
}
_WITH_JSON = {
    "adopt",
    "rollout-status",
    "check",
    "free-of-both-families",
    "status",
    "who-holds-an-address",
    "who-is-a-cluster",
}
"""One of each form of JSON: the other command lines print the same form."""


def make_commands() -> dict[str, str]:
    """Return what each command line prints, and its exit code."""
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for fleet, cases, reader, has_crds in (
            ("today", _TODAY, FULL, True),
            ("today", _LIMITED, LIMITED, True),
            ("predecessor", _PREDECESSOR, FULL, False),
        ):
            with serve(fleet, Path(folder), has_crds=has_crds) as kubeconfigs:
                for name, arguments in cases.items():
                    found = _run_both(arguments, kubeconfigs[reader], with_json=name in _WITH_JSON)
                    files[f"{name}.yaml"] = to_yaml(found)
    return files


def _run_both(arguments: tuple[str, ...], kubeconfig: Path, *, with_json: bool) -> dict[str, Any]:
    shown = f"fipop {' '.join(arguments)}"
    code, out, err = _run(arguments, kubeconfig, "wide")
    found: dict[str, Any] = {"command": f"{shown} -o wide", "exit code": code}
    found |= {name: _lines(text) for name, text in (("prints", out), ("stderr", err)) if text}
    if with_json:
        other, out, _ = _run(arguments, kubeconfig, "json")
        assert other == code, f"{shown} -o json ends with {other}, not with {code}"
        found["json"] = _first(json.loads(out))
    return found


def _first(value: Any) -> Any:
    """Return JSON with the first two of each list of objects, which show its form: the table has all of them."""
    if isinstance(value, dict):
        return {key: _first(each) for key, each in value.items()}
    if isinstance(value, list):
        objects = any(isinstance(each, dict) for each in value)
        left = len(value) - _SHOWN if objects else 0
        return [_first(each) for each in (value[:_SHOWN] if objects else value)] + [f"and {left} more"] * (
            left > 0
        )
    return value


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _run(arguments: tuple[str, ...], kubeconfig: Path, output: str) -> tuple[int, str, str]:
    argv = [*arguments, "--kubeconfig", str(kubeconfig), "-o", output]
    environment = {"NO_COLOR": "1", "COLUMNS": "120", "FIPOP_NAMESPACE": None, "KUBECONFIG": None}
    with _as_in_a_process():
        result = CliRunner().invoke(main, argv, prog_name="fipop", env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, _clean(result.stdout), _clean(result.stderr)


@contextmanager
def _as_in_a_process() -> Iterator[None]:
    """Have a command find the logging of a new process, and take back what it does to a process that ends."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        gc.enable()


def _clean(text: str) -> str:
    return _PORT.sub("rancher.example.com", text)
