"""What can go wrong in the local fleet.

LocalFleetError
├── AssetError             a program is not to be had: says which, and what to do
├── ToolFailedError        a program that should run to its end failed
├── ProcessFailedError     a program that should keep running ended, or did not get ready in time
├── NoFreePortError
├── DeadlineError          the world did not become as expected in time
└── ApiError               an API server said no (`status`, `reason`)
"""

from collections.abc import Sequence

_LAST_LINES = 20


class LocalFleetError(Exception):
    """Root of all errors of the local fleet."""


class AssetError(LocalFleetError):
    def __init__(self, *, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"{name}: {problem}")


class ToolFailedError(LocalFleetError):
    def __init__(self, *, argv: Sequence[str], returncode: int, output: str) -> None:
        self.argv = tuple(argv)
        self.returncode = returncode
        self.output = output
        super().__init__(f"{' '.join(argv)} ended with {returncode}:\n{last_lines(output)}")


class ProcessFailedError(LocalFleetError):
    def __init__(self, *, name: str, problem: str, log: str) -> None:
        self.name = name
        self.problem = problem
        self.log = log
        super().__init__(f"{name} {problem}; the end of its log:\n{last_lines(log)}")


class NoFreePortError(LocalFleetError):
    def __init__(self, *, tried: int) -> None:
        self.tried = tried
        super().__init__(f"no free loopback port among {tried} tried")


class DeadlineError(LocalFleetError):
    def __init__(self, *, what: str, seconds: float, last: object) -> None:
        self.what = what
        self.seconds = seconds
        self.last = last
        super().__init__(f"waited {seconds:g} s in vain for {what}; seen last: {last!r}")


class ApiError(LocalFleetError):
    """An answer outside 2xx.

    `reason` is the API's machine-readable one (`NotFound`, `Conflict`, `Invalid`, …).
    """

    def __init__(self, *, method: str, path: str, status: int, reason: str, message: str) -> None:
        self.method = method
        self.path = path
        self.status = status
        self.reason = reason
        self.message = message
        super().__init__(f"{method} {path}: {status} {reason}: {message}")


def last_lines(text: str) -> str:
    """The end of a log, for a message."""
    return "\n".join(text.strip().splitlines()[-_LAST_LINES:])
