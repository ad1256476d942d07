"""What `make matrix` found, as the repository keeps it: results.toml beside this file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).with_name("results.toml")
_HEADER = "# Written by `make matrix`; docs/reference/compatibility.md shows it. Do not edit.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run of the API tests on one Kubernetes."""

    kubernetes: str
    """What its kube-apiserver calls itself, as `1.30.0`."""
    go: str
    """The Go that built it."""
    date: str
    passed: int
    failed: int
    skipped: int
    minutes: float

    @property
    def minor(self) -> str:
        return ".".join(self.kubernetes.split(".")[:2])


def read_results(path: Path = RESULTS) -> tuple[Result, ...]:
    """Return the recorded runs, the oldest Kubernetes first."""
    found = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return _in_order(Result(kubernetes=version, **fields) for version, fields in found.items())


def record(result: Result, path: Path = RESULTS) -> None:
    """Put one run in the place of an earlier one of the same minor version."""
    others = (each for each in read_results(path) if each.minor != result.minor)
    path.write_text(
        _HEADER + "".join(_render(each) for each in _in_order((*others, result))), encoding="utf-8"
    )


def _in_order(results: Iterable[Result]) -> tuple[Result, ...]:
    return tuple(sorted(results, key=lambda each: [int(part) for part in each.kubernetes.split(".")]))


def _render(result: Result) -> str:
    fields = {name: value for name, value in asdict(result).items() if name != "kubernetes"}
    lines = [
        f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
        for name, value in fields.items()
    ]
    return "\n".join(["", f'["{result.kubernetes}"]', *lines, ""])
