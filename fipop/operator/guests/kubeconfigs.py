"""The kubeconfigs that Rancher keeps for its guests: bytes here, read with distrust by `guest.kubeconfig`."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fipop.errors import ApiForbiddenError, GuestError
from fipop.kube.client import KubeClient
from fipop.kube.resources import SECRETS
from fipop.rancher.matching import Guest
from fipop.rancher.objects import ObjectRef

MOMENT_SECONDS = 1.0


class KubeconfigMissingError(GuestError):
    """Rancher's Secret with the guest's kubeconfig is not there, may not be read, or holds none."""

    def __init__(self, *, secret: str, problem: str) -> None:
        self.secret = secret
        self.problem = problem
        super().__init__(f"Secret {secret} {problem}")


@dataclass(slots=True)
class KubeconfigReader:
    """Reads Rancher's Secrets: anew after a moment, as they are deleted and made again when URL, CA or token change.

    For that moment it remembers what it read, for the pass and the look at a guest that come together.
    """

    client: KubeClient
    monotonic: Callable[[], float] = time.monotonic
    _recent: dict[ObjectRef, tuple[float, bytes]] = field(default_factory=dict)

    async def read(self, guest: Guest) -> bytes:
        """Give the guest's kubeconfig. Raises KubeconfigMissingError and ApiError."""
        secret, now = guest.kubeconfig_secret, self.monotonic()
        self._recent = {ref: known for ref, known in self._recent.items() if now < known[0]}
        if secret not in self._recent:
            self._recent[secret] = now + MOMENT_SECONDS, await self._get(secret)
        return self._recent[secret][1]

    async def _get(self, secret: ObjectRef) -> bytes:
        name = f"{secret.namespace}/{secret.name}"
        try:
            found = await self.client.get(SECRETS, secret.name, namespace=secret.namespace)
        except ApiForbiddenError as error:
            raise KubeconfigMissingError(
                secret=name, problem="may not be read: is its namespace among those that the chart grants?"
            ) from error
        if found is None:
            raise KubeconfigMissingError(secret=name, problem="is not there")
        try:
            return base64.b64decode((found.get("data") or {}).get("value") or "", validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise KubeconfigMissingError(secret=name, problem="holds no kubeconfig") from error
