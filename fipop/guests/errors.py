"""Errors of the connection to one guest cluster."""

from __future__ import annotations

from fipop.api.names import KUBECONFIG_SECRET_SUFFIX
from fipop.errors import FipopError, GuestError, TokenRefusedError


def explain_refusal(error: FipopError, *, workspace: str, cluster_name: str) -> FipopError:
    """Return an error of a guest cluster; if Rancher refused the token, one that names its Secret and the remedy."""
    if not isinstance(error, TokenRefusedError):
        return error
    secret = f"{workspace}/{cluster_name}{KUBECONFIG_SECRET_SUFFIX}"
    return GuestError(
        f"Rancher does not accept the token in Secret {secret}. Delete the Secret, then change an annotation of "
        f"Cluster {workspace}/{cluster_name}: Rancher creates the Secret again"
    )


class VisitTimeoutError(GuestError):
    """A session with a guest cluster was ended at its deadline."""

    def __init__(self, *, seconds: float) -> None:
        super().__init__(f"the visit of the guest cluster was stopped at its deadline of {seconds:.0f} s")
