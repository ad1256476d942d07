"""Errors of calls to a Kubernetes API, translated once at the door."""

from __future__ import annotations

from fipop.errors.base import FipopError


class ApiError(FipopError):
    """A call to a Kubernetes API failed.

    `status` is the HTTP status (0 when no answer came), `reason` the machine-readable reason of the answer's
    Status object (never its free text: what a remote said does not travel further).
    """

    outcome_unknown = False
    """Whether a write that failed so may have been committed: the caller must look before it does anything else."""

    def __init__(
        self,
        *,
        verb: str,
        kind: str,
        name: str | None = None,
        namespace: str | None = None,
        status: int = 0,
        reason: str = "",
    ) -> None:
        self.verb = verb
        self.kind = kind
        self.name = name
        self.namespace = namespace
        self.status = status
        self.reason = reason
        super().__init__(self._message())

    def _message(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name) if part)
        what = f"{self.kind} {place}".rstrip()
        answer = " ".join(part for part in (str(self.status) if self.status else "", self.reason) if part)
        return f"cannot {self.verb} {what}: {answer or 'no answer'}"


class ApiConflictError(ApiError):
    """409 Conflict: the resourceVersion or a precondition (uid) no longer holds. Read again, then decide."""


class ApiAlreadyExistsError(ApiError):
    """409 AlreadyExists: an object of that name is there. Look who owns it."""


class ApiInvalidError(ApiError):
    """422 or 400: the server refuses the object or the patch as it is; trying again unchanged is in vain."""


class ApiForbiddenError(ApiError):
    """403: RBAC, an admission policy or a terminating namespace stands in the way."""


class NamespaceTerminatingError(ApiForbiddenError):
    """403 with cause NamespaceTerminating: nothing can be created there any more."""


class ApiNotFoundError(ApiError):
    """404 that does not say "this object is gone": no such resource, subresource or namespace, or a proxy's word.

    A missing object is no error where it is asked for: get answers None and delete answers False.
    """


class ApiUnauthorizedError(ApiError):
    """401: the credential is unknown or has expired."""


class ApiGoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class ApiThrottledError(ApiError):
    """429: not done; try again after `retry_after_seconds`."""

    def __init__(self, *, retry_after_seconds: float = 1.0, **fields: object) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(**fields)  # type: ignore[arg-type]


class ApiServerError(ApiError):
    """5xx: the server failed; a write may have been committed before it did."""

    outcome_unknown = True


class ApiAnswerError(ApiServerError):
    """What came is no answer of a Kubernetes API: a redirect, too large, compressed unasked, not JSON."""


class ApiUnreachableError(ApiError):
    """No answer: connection refused, cut, or the deadline passed; a write may have been committed.

    `reason` is our own word: ConnectionRefused, ConnectionFailed, NameResolution, CertificateInvalid,
    TlsHandshake, AddressRefused, ConnectionCut, Timeout, NoAnswerYet.
    """

    outcome_unknown = True

    def __init__(self, *, outcome_unknown: bool = True, **fields: object) -> None:
        self.outcome_unknown = outcome_unknown
        super().__init__(**fields)  # type: ignore[arg-type]


PASSING_ERRORS = (ApiServerError, ApiThrottledError, ApiUnreachableError)
"""What an API server answers while it is in trouble: no fault of the object, and no reason to pass it over."""
