"""kube-fip-operator beside us: as long as its Deployment has replicas, its objects are its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fipop.api import names
from fipop.errors import FipopError, StartError
from fipop.kube.client import KubeClient
from fipop.kube.resources import DEPLOYMENTS

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0


class Predecessor:
    """Looks whether the Deployment kube-fip/kube-fip-operator has replicas, wanted or still there."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.runs: bool | None = None
        self._problem = ""

    async def wait_gone(self) -> None:
        """Wait until it is known not to run; the log tells why, once."""
        while await self._check() is not False:  # noqa: ASYNC110 - it polls the API server
            await asyncio.sleep(POLL_SECONDS)

    async def watch(self, leads: Callable[[], bool]) -> None:
        """Raise StartError if it runs while this process leads: the process ends, and waits after its restart."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if leads() and await self._check():
                raise StartError(what="kube-fip-operator", problem="has replicas again. Scale it to 0")

    async def _check(self) -> bool | None:
        """Return whether it has replicas; None if that cannot be found out."""
        before = self.runs
        try:
            found = await self._client.get(
                DEPLOYMENTS, names.PREDECESSOR_DEPLOYMENT, namespace=names.OPERATOR_NAMESPACE
            )
        except FipopError as error:
            if str(error) != self._problem:
                logger.warning(
                    "Could not find out whether kube-fip-operator runs", extra={"error": str(error)}
                )
            self._problem = str(error)
            return None
        self._problem = ""
        spec, status = ((found or {}).get(part) or {} for part in ("spec", "status"))
        self.runs = found is not None and bool(spec.get("replicas", 1) or status.get("replicas", 0))
        if self.runs and not before:
            logger.error("kube-fip-operator has replicas: fipop assigns nothing until it has none")
        return self.runs
