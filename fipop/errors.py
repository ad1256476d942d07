"""The errors that fipop raises on purpose: one class for each that a caller tells apart.

A text is a clause that can be quoted after a colon: `texts.sentence` makes a sentence of it for conditions, events and
the command line. Its remedy, if it has one, is a sentence without the full stop. It never quotes what a server said
beyond its HTTP code and machine reason.
"""

from __future__ import annotations

WRITE_REFUSED = "WriteRefused"
"""The reason of conditions and events while an API server refuses what an object needs."""


class FipopError(Exception):
    """Base of all errors of fipop."""


_GONE = (404, 410)
"""Of the codes without a class: a kind or a namespace does not exist, a version is too old."""
_NOT_ABOUT_THE_OBJECT = (401, 403, 404, 410)
"""Of the codes without a class: a credential, Rancher's refusal, a missing kind or namespace, a version too old."""


_WORDS = {
    "BadDate": "the answer has no time",
    "CertificateInvalid": "the certificate of the server is not trusted",
    "Compressed": "the answer is compressed, which fipop does not read",
    "ConnectionCut": "the connection was cut",
    "ConnectionFailed": "the connection failed",
    "ConnectionRefused": "the server refused the connection",
    "InvalidName": "no object can have this name",
    "NameResolution": "the name of the server could not be resolved",
    "NoAnswerYet": "the server has not answered yet",
    "NoKubernetesAnswer": "the answer is not one of a Kubernetes API",
    "NotLeading": "this replica does not lead any more",
    "ProxyRefused": "the proxy refused the connection",
    "RancherTokenRefused": "Rancher does not accept the token",
    "Redirect": "the server redirected the request, which fipop does not follow",
    "Timeout": "the server did not answer in time",
    "TlsHandshake": "the TLS handshake failed",
    "TooLarge": "the answer is larger than fipop reads",
    "TooManyPages": "the list has more pages than fipop reads",
}
"""The reasons that the client itself gives, for people. Those of Kubernetes stay as they are."""


class ApiError(FipopError):
    """A Kubernetes API refused a request; `status` is the HTTP code, `reason` that of its Status object.

    `refuser` is the admission policy or webhook that refused it; "" if the answer names none.
    """

    def __init__(self, what: str, *, status: int = 0, reason: str = "", refuser: str = "") -> None:
        code, known = str(status or ""), _WORDS.get(reason, "")
        answer = " ".join(part for part in (code, reason, refuser and f"by {refuser}") if part)
        answer = known + (f" (HTTP {code})" if code else "") if known else answer
        super().__init__(f"could not {what}: {answer or 'the API server did not answer'}")
        self.status = status
        self.reason = reason
        self.refuser = refuser

    @property
    def is_refusal(self) -> bool:
        """Whether the server answered that it does not do this: a right, a policy, a webhook or the object is why."""
        passes = isinstance(self, (NotFoundError, ConflictError, UnavailableError))
        return bool(self.refuser) or not (passes or self.status in _GONE)

    def explain(self) -> str:
        """Return a refusal as sentences with the remedy, for a condition or an event."""
        doubtful = "the rights of fipop, admission policies and webhooks"
        return f"fipop {self}. {'Exempt fipop from it' if self.refuser else f'Check {doubtful}'}."

    @property
    def is_lasting(self) -> bool:
        """Whether the server refuses the very object or name: the same request fails again."""
        passes = isinstance(self, (NotFoundError, ConflictError, ForbiddenError, UnavailableError))
        return not (passes or self.status in _NOT_ABOUT_THE_OBJECT)


class NotFoundError(ApiError):
    """404: the API server says that the object does not exist. `get` returns None and `delete` False instead."""


class ConflictError(ApiError):
    """409: the object changed since it was read, a precondition failed, or the name of a new object is taken."""


class ForbiddenError(ApiError):
    """403: RBAC, an admission policy or a namespace that is being deleted refused the request."""


class NamespaceTerminatingError(ForbiddenError):
    """Nothing can be created in a namespace any more: it is being deleted."""


class TokenRefusedError(ApiError):
    """Rancher itself, not the API server behind its proxy, refused the token."""


class UnavailableError(ApiError):
    """408, 429, 5xx, or no answer at all: no fault of the object, it may pass.

    A write can have been committed, unless `is_unsent`: read the object again. Do not repeat the request before
    `retry_after` seconds.
    """

    def __init__(
        self,
        what: str,
        *,
        status: int = 0,
        reason: str = "",
        refuser: str = "",
        retry_after: float = 0.0,
        is_unsent: bool = False,
    ) -> None:
        super().__init__(what, status=status, reason=reason, refuser=refuser)
        self.retry_after = retry_after
        self.is_unsent = is_unsent


class RequestTimeoutError(UnavailableError):
    """A request was not answered in its time."""


class ConnectionCutError(UnavailableError):
    """The connection ended without an answer."""


class UntrustedServerError(UnavailableError):
    """No connection was opened: the server has no certificate that this process trusts."""


class TooLargeError(UnavailableError):
    """An answer or a list exceeds the limits of the client."""


class GuestError(FipopError):
    """One guest cluster cannot be reconciled as wanted; the others are not affected."""


class StartError(FipopError):
    """Something that the process needs is missing or cannot be used: only a new one can go on, or a corrected one."""

    def __init__(self, *, what: str, problem: str) -> None:
        super().__init__(f"{what} {problem}")
