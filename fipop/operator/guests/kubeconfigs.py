"""The kubeconfigs that Rancher keeps for its guests: bytes here, read with distrust by `guest.kubeconfig`."""

from __future__ import annotations

import base64
import binascii

from fipop.errors import ApiForbiddenError, GuestError
from fipop.kube.client import KubeClient
from fipop.kube.resources import SECRETS
from fipop.rancher.matching import Guest


class KubeconfigMissingError(GuestError):
    """Rancher's Secret with the guest's kubeconfig is not there, may not be read, or holds none."""

    def __init__(self, *, secret: str, problem: str) -> None:
        self.secret = secret
        self.problem = problem
        super().__init__(f"Secret {secret} {problem}")


class NotConnectedError(GuestError):
    """Rancher is not connected to the guest: a kubeconfig leads nowhere."""

    def __init__(self) -> None:
        super().__init__("Rancher is not connected to the guest cluster")


async def read_kubeconfig(client: KubeClient, guest: Guest) -> bytes:
    """Read Rancher's Secret: anew for each use, as it is deleted and made again when URL, CA or token change.

    Raises NotConnectedError, KubeconfigMissingError and ApiError.
    """
    if not guest.connected:
        raise NotConnectedError
    secret = guest.kubeconfig_secret
    name = f"{secret.namespace}/{secret.name}"
    try:
        found = await client.get(SECRETS, secret.name, namespace=secret.namespace)
    except ApiForbiddenError as error:
        raise KubeconfigMissingError(
            secret=name, problem="cannot be read: add its namespace to secretNamespaces of the chart"
        ) from error
    if found is None:
        raise KubeconfigMissingError(secret=name, problem="does not exist")
    try:
        return base64.b64decode((found.get("data") or {}).get("value") or "", validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise KubeconfigMissingError(secret=name, problem="holds no kubeconfig") from error
