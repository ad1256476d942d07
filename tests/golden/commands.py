"""What the commands that only read print of a recorded fleet: as JSON without prose, and apart from it all texts."""

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

_PROSE = ("message", "advice", "problem", "remark", "warning")
_MIN_BLANKS = 2
"""A text with so many blanks is a sentence."""
_PORT = re.compile(r"127\.0\.0\.1:\d+")
_ASK = ("--allow-loopback-guests",)

_TODAY: dict[str, tuple[str, ...]] = {
    "status": ("status",),
    "status-of-a-guest": ("status", "-n", "c-m-beta"),
    "who-holds-an-address": ("who", "10.0.0.10"),
    "who-holds-an-address-in-quarantine": ("who", "10.0.0.12"),
    "who-holds-an-address-out-of-range": ("who", "10.0.1.20"),
    "who-holds-an-ipv6-address": ("who", "fd00:2::1"),
    "who-holds-a-free-address": ("who", "10.0.2.77"),
    "who-holds-an-unknown-address": ("who", "192.0.2.1"),
    "who-is-a-cluster": ("who", "delta"),
    "who-is-a-guest-that-is-asked": ("who", "delta", "--guest", *_ASK),
    "who-is-a-guest-that-cannot-be-asked": ("who", "beta", "--guest", *_ASK),
    "who-is-a-guest-without-kubeconfig": ("who", "gamma", "--guest", *_ASK),
    "who-is-unknown": ("who", "nobody"),
    "history-of-an-address": ("history", "10.0.0.10"),
    "history-of-a-cluster": ("history", "omega"),
    "history-of-nothing": ("history", "192.0.2.1"),
    "free-of-a-full-range": ("free", "full"),
    "free-of-a-draining-range": ("free", "draining"),
    "free-of-both-families": ("free", "dual", "--count", "3"),
    "free-of-ipv6": ("free", "dual", "--count", "3", "--family", "IPv6"),
    "free-highest-first": ("free", "young", "--count", "3"),
    "free-of-a-broken-range": ("free", "broken"),
    "free-of-an-unknown-range": ("free", "nowhere"),
    "check": ("check", "--no-charts", *_ASK),
    "check-without-guests": ("check", "--no-charts", "--no-guests"),
    "check-a-guest": ("check", "--no-charts", "--guest", "alpha", *_ASK),
    "adopt": ("adopt", "--dry-run"),
}
_LIMITED: dict[str, tuple[str, ...]] = {
    "status-with-few-rights": ("status",),
    "who-with-few-rights": ("who", "10.0.0.10"),
    "check-with-few-rights": ("check", "--no-charts", "--no-guests"),
}
_PREDECESSOR: dict[str, tuple[str, ...]] = {
    "predecessor-status": ("status",),
    "predecessor-check": ("check", "--no-charts", "--no-guests"),
    "predecessor-adopt": ("adopt", "--dry-run"),
    "predecessor-adopt-with-guests": ("adopt", "--dry-run", "--guests", *_ASK),
}
_TABLES = ("table", "short", "wide", "csv")


COMMANDS = ("adopt", "check", "free", "history", "status", "who")


def make_commands(command: str) -> dict[str, str]:
    """Return for each command line of a command the facts of its JSON, and all forms that people read."""
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for fleet, cases, reader, has_crds in (
            ("today", _TODAY, FULL, True),
            ("today", _LIMITED, LIMITED, True),
            ("predecessor", _PREDECESSOR, FULL, False),
        ):
            chosen = {name: arguments for name, arguments in cases.items() if arguments[0] == command}
            if not chosen:
                continue
            with serve(fleet, Path(folder), has_crds=has_crds) as kubeconfigs:
                for name, arguments in chosen.items():
                    facts, texts = _run_all(arguments, kubeconfigs[reader])
                    files[f"commands/{name}.yaml"] = facts
                    files[f"texts/commands/{name}.txt"] = texts
    return files


def _run_all(arguments: tuple[str, ...], kubeconfig: Path) -> tuple[str, str]:
    shown = f"fipop {' '.join(arguments)}"
    code, out, err = _run(arguments, kubeconfig, "json")
    found = json.loads(out) if out.strip() else None
    facts = to_yaml({"command": shown, "exit code": code, "json": without_prose(found)})
    lines = [f"$ {shown} -o json   # prose of it", *dict.fromkeys(prose_of(found)), *err.splitlines()]
    for output in _TABLES:
        other, out, err = _run(arguments, kubeconfig, output)
        assert other == code, f"{shown} -o {output} ends with {other}, not with {code}"
        lines += [
            "",
            f"$ {shown} -o {output}",
            *out.splitlines(),
            *(f"stderr: {line}" for line in err.splitlines()),
        ]
    return facts, "\n".join(line.rstrip() for line in lines) + "\n"


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


def without_prose(value: Any, key: str = "") -> Any:
    """Return a value with `(text)` in place of each text that is prose."""
    if isinstance(value, dict):
        return {name: without_prose(each, name) for name, each in sorted(value.items())}
    if isinstance(value, list):
        return [without_prose(each) for each in value]
    return "(text)" if _is_prose(key, value) else value


def prose_of(value: Any, key: str = "") -> Iterator[str]:
    """Yield each text that `without_prose` leaves out, in its order."""
    if isinstance(value, dict):
        for name, each in sorted(value.items()):
            yield from prose_of(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from prose_of(each)
    elif _is_prose(key, value):
        yield f"{key}: {value}".removeprefix(": ")


def _is_prose(key: str, value: object) -> bool:
    return isinstance(value, str) and bool(value) and (key in _PROSE or value.count(" ") >= _MIN_BLANKS)
