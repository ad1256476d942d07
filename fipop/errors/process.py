"""Errors of the process, and of the way to an API server."""

from __future__ import annotations

from fipop.errors.base import FipopError


class StartError(FipopError):
    """What the program is started with is missing or cannot be used; `problem` continues the sentence after `what`."""

    def __init__(self, *, what: str, problem: str) -> None:
        self.what = what
        self.problem = problem
        super().__init__(f"{what} {problem}")


class NotLeadingError(FipopError):
    """A write by a replica that does not lead, or not any more; nothing was sent."""

    def __init__(self, *, verb: str, kind: str) -> None:
        self.verb = verb
        self.kind = kind
        super().__init__(f"cannot {verb} {kind}: this replica does not lead")


class KubeAccessError(FipopError):
    """There is no way to an API server as configured; nothing was sent."""

    def __init__(self, *, server: str, problem: str) -> None:
        self.server = server
        self.problem = problem
        super().__init__(f"no connection to {server or 'the API server'}: {problem}")


class AuthorityReplacedError(FipopError):
    """The certificate authority that a server is known by was replaced: the process has to start afresh."""

    def __init__(self, *, server: str, path: str) -> None:
        self.server = server
        self.path = path
        super().__init__(
            f"the certificate authority of {server} was replaced in {path}: only a fresh start reads it"
        )


class WatcherEndedError(FipopError):
    """The thread that watches ended though nobody stopped it: the process has to start afresh."""

    def __init__(self) -> None:
        super().__init__("the thread that watches ended by itself")
