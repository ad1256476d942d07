"""Errors of one guest cluster."""

from __future__ import annotations

from enum import StrEnum

from fipop.errors.base import FipopError


class GuestError(FipopError):
    """One guest cluster cannot be dealt with as wanted; the others do not suffer."""


class CarriedElsewhereError(GuestError):
    """An address may not be written to its owner's guest: another guest carries it."""

    def __init__(self, *, address: str, carrier: str) -> None:
        self.address = address
        self.carrier = carrier
        super().__init__(
            f"{address} is held for this guest and not written: {carrier}; annotation "
            "kubefip.k8s.binbash.org/ignore-claim with that guest's id writes it all the same"
        )


class GuestUnreadableError(GuestError):
    """A guest cannot be asked what it carries: its API, or the way to it, failed."""

    def __init__(self, *, guest_id: str, cause: str) -> None:
        self.guest_id = guest_id
        self.cause = cause
        super().__init__(f"guest {guest_id} cannot be asked: {cause}")


class KubeconfigError(GuestError):
    """A field of a guest's kubeconfig is missing, malformed or refused. Its value is told to nobody."""

    def __init__(self, *, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"the kubeconfig's {field} {reason}")


class PassTimeoutError(GuestError):
    """The pass over a guest was broken off at its deadline."""

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"the pass was broken off after {seconds:.0f} s")


class HelmFailure(StrEnum):
    """Why a helm process failed, as far as its words can be classified; the value completes a sentence."""

    NOT_STARTED = "the helm program could not be started"
    TIMED_OUT = "it took longer than its deadline"
    KILLED = "it was killed"
    FILES = "its files cannot be written: is the disk full, or not writable"
    UNREACHABLE = "the cluster or the chart's source did not answer"
    UNAUTHORIZED = "the credential is not accepted"
    FORBIDDEN = "the credential may not do that"
    DENIED = "an admission webhook or policy of the cluster refuses it"
    REFUSED = "the cluster answered what is not passed on"
    TOO_MUCH = "it wrote more than is taken from it"
    CHART_NOT_FOUND = "there is no such chart or version"
    CERTIFICATE = "the server's certificate is not trusted"
    RENDERING = "the chart cannot be rendered with these values"
    INVALID = "the cluster refuses an object of the chart"
    NAME_TAKEN = "an object of that name belongs to something else"
    IN_PROGRESS = "another operation on the release is under way"
    NAMESPACE_TERMINATING = "the namespace is being deleted"
    UNKNOWN = "for a reason that it did not tell plainly"


class HelmError(GuestError):
    """A helm process failed. Its own words are classified where it ended and travel no further.

    `cause` is our own sentence about what stood in the way of its requests; "" where nothing did.
    """

    def __init__(self, *, action: str, subject: str, failure: HelmFailure, cause: str = "") -> None:
        self.action = action
        self.subject = subject
        self.failure = failure
        self.cause = cause
        super().__init__(
            f"helm {action} of {subject} failed: {failure.value}" + (f": {cause}" if cause else "")
        )


class ChartError(GuestError):
    """A chart cannot be had. `source` is the admin's own word for it: a repository's URL or an `oci://` reference.

    `condition` is the reason of the condition that tells of it.
    """

    def __init__(self, *, source: str, version: str, reason: str, condition: str = "ReleaseFailed") -> None:
        self.source = source
        self.version = version
        self.reason = reason
        self.condition = condition
        super().__init__(f"chart {source} {version or '(newest)'}: {reason}")


class ReleaseRecordError(GuestError):
    """The Secret in which helm keeps a release holds no release that can be read."""

    def __init__(self, *, namespace: str, name: str, reason: str) -> None:
        self.namespace = namespace
        self.name = name
        self.reason = reason
        super().__init__(f"release {namespace}/{name} cannot be read: {reason}")


class InstallBlockedError(GuestError):
    """A release that is not ours keeps fipop from installing; `condition` is the reason of the condition."""

    condition: str


class ForeignReleaseError(InstallBlockedError):
    """A release has our labels in a namespace where fipop has none: nothing is installed beside it."""

    condition = "ForeignRelease"

    def __init__(self, *, namespace: str, name: str) -> None:
        super().__init__(
            f"release {namespace}/{name} has the labels of fipop in a namespace that fipop does not use: delete it, "
            f"or add {namespace} to kubevipReleaseNamespaces if fipop installed it"
        )


class ReleaseTakenError(InstallBlockedError):
    """Somebody else's release has the name that ours should have; it is left alone."""

    condition = "ReleaseTaken"

    def __init__(self, *, namespace: str, name: str, role: str) -> None:
        self.namespace = namespace
        self.name = name
        self.role = role
        super().__init__(
            f"release {namespace}/{name} is not the {role} of fipop or of kube-fip-operator: remove it, or "
            "give the release of fipop another name or namespace"
        )
