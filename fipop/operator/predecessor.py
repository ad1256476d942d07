"""kube-fip-operator beside us: as long as its Deployment has replicas, its objects are its own."""

from __future__ import annotations

import asyncio
import logging

from fipop.api import names
from fipop.errors import FipopError
from fipop.kube.client import KubeClient
from fipop.kube.resources import DEPLOYMENTS

logger = logging.getLogger(__name__)

GONE_SECONDS = 2.0
BACK_SECONDS = 15.0


class Predecessor:
    """Looks whether the Deployment kube-fip/kube-fip-operator has replicas, wanted or still there.

    `runs` is what the last look found: None before the first, and where it could not be found out.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.runs: bool | None = None

    async def wait(self, *, runs: bool) -> None:
        """Wait until it works, or does not (any more); while we wait for its end the log tells why, once."""
        told = ""
        while (why := await self._look()) or self.runs is not runs:
            problem = why or "kube-fip-operator still has replicas"
            if not runs and problem != told:
                logger.error("Waiting for kube-fip-operator to stop", extra={"reason": problem})
                told = problem
            await asyncio.sleep(BACK_SECONDS if runs else GONE_SECONDS)
        if told:
            logger.info("No replicas of kube-fip-operator are left")

    async def _look(self) -> str:
        """Set `runs`; the answer says why it is unknown, "" where it is known."""
        try:
            found = await self._client.get(
                DEPLOYMENTS, names.PREDECESSOR_DEPLOYMENT, namespace=names.OPERATOR_NAMESPACE
            )
        except FipopError as error:
            self.runs = None
            return f"could not find out whether kube-fip-operator has replicas: {error}"
        spec, status = ((found or {}).get(part) or {} for part in ("spec", "status"))
        self.runs = found is not None and bool(spec.get("replicas", 1) or status.get("replicas", 0))
        return ""
