"""Errors of helm, and of the charts that it installs."""

from __future__ import annotations

from enum import StrEnum

from fipop.errors import GuestError


class HelmFailure(StrEnum):
    """Why a helm process failed, as classified from its output; the value completes a clause."""

    NOT_STARTED = "the helm program could not be started"
    TIMED_OUT = "it took longer than its deadline"
    KILLED = "it was killed"
    FILES = "it could not write its files. Check whether the disk is full or read-only"
    CUT = "the connection to the guest cluster was cut. fipop tries again"
    UNREACHABLE = "the cluster or the chart's source did not answer"
    UNAUTHORIZED = "the credential is not accepted"
    FORBIDDEN = "the credential does not have the right to do that"
    DENIED = "an admission webhook or policy of the cluster refused it, or its namespace is being deleted"
    RANCHER_WEBHOOK = (
        "an admission webhook of Rancher refused it or did not answer. Check the Deployment "
        "cattle-system/rancher-webhook of the guest cluster"
    )
    POD_SECURITY = (
        "PodSecurity of its namespace refused it. kube-vip uses the network of its nodes: label the namespace "
        "pod-security.kubernetes.io/enforce=privileged, or install into kube-system"
    )
    REFUSED = "fipop refused the answer of the cluster"
    TOO_MUCH = "it wrote more output than fipop reads"
    CHART_NOT_FOUND = "there is no such chart or version"
    CERTIFICATE = "the server's certificate is not trusted"
    NO_TLS = (
        "the registry speaks http, and fipop reads registries over TLS only. Serve it with TLS, use a chart repository "
        "over http, or mount the archive of the chart"
    )
    RENDERING = "the chart cannot be rendered with these values"
    INVALID = "the cluster refused an object of the chart"
    NAME_TAKEN = (
        "an object of that name belongs to something else. Set another name as nameOverride in the values of the "
        "chart, or remove the object"
    )
    IN_PROGRESS = "another operation on the release is under way"
    UNKNOWN = "its output names no known cause"


class HelmError(GuestError):
    """A helm process failed. Its output is classified and never shown.

    `cause` is a clause of fipop about a refused request or object; "" if none was refused. `quote` is helm's own
    reason, of a run without a guest cluster.
    """

    def __init__(
        self, *, action: str, subject: str, failure: HelmFailure, cause: str = "", quote: str = ""
    ) -> None:
        self.failure = failure
        self.cause = cause
        self.quote = quote
        reason, remedy = failure.value.partition(". ")[::2]
        text = ". ".join(filter(None, (reason + (f": {cause}" if cause else ""), remedy)))
        super().__init__(f"helm {action} of {subject} failed: {text}")


class ChartError(GuestError):
    """A chart is not available. `source` is as in the options: the URL of a repository or an `oci://` reference.

    `condition` is the reason of its condition.
    """

    def __init__(self, *, source: str, version: str, reason: str, condition: str = "ReleaseFailed") -> None:
        self.condition = condition
        super().__init__(f"chart {source} {version or '(newest)'} cannot be used: {reason}")
