"""kube-fip-operator beside us: as long as its Deployment has replicas, its objects are its own.

Its chart names the Deployment after the release, so the image, or an argument, tells what a Deployment is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fipop.api import names
from fipop.errors import FipopError, ForbiddenError, StartError
from fipop.helm.workloads import runs_program
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import DEPLOYMENTS

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0


async def find_predecessors(client: KubeClient, namespace: str) -> tuple[Json, ...]:
    """Return the Deployments of kube-fip-operator: in its namespace, and in that of fipop.

    The chart lets fipop list those of its own namespace. In that of kube-fip-operator, if it is another one, the one of
    the usual name is found without that right. Raises ApiError.
    """
    listed = list((await client.list(DEPLOYMENTS, namespace=namespace)).items)
    if namespace != names.OPERATOR_NAMESPACE:
        try:
            listed += (await client.list(DEPLOYMENTS, namespace=names.OPERATOR_NAMESPACE)).items
        except ForbiddenError:
            name, place = names.PREDECESSOR_DEPLOYMENT, names.OPERATOR_NAMESPACE
            listed += filter(None, [await client.get(DEPLOYMENTS, name, namespace=place)])
    return tuple(each for each in listed if _is_predecessor(each))


def _is_predecessor(deployment: Json) -> bool:
    is_named = deployment["metadata"]["name"] == names.PREDECESSOR_DEPLOYMENT
    return is_named or runs_program(deployment, names.PREDECESSOR_DEPLOYMENT)


def has_replicas(deployment: Json) -> bool:
    """Return whether a Deployment has replicas, wanted or still there."""
    spec, status = (deployment.get(part) or {} for part in ("spec", "status"))
    return bool(spec.get("replicas", 1) or status.get("replicas", 0))


class Predecessor:
    """Looks whether a Deployment of kube-fip-operator has replicas; `namespace` is that of fipop."""

    def __init__(self, client: KubeClient, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
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
            found = await find_predecessors(self._client, self._namespace)
        except FipopError as error:
            if str(error) != self._problem:
                logger.warning(
                    "Could not find out whether kube-fip-operator runs", extra={"error": str(error)}
                )
            self._problem = str(error)
            return None
        self._problem = ""
        self.runs = any(map(has_replicas, found))
        if self.runs and not before:
            logger.error("kube-fip-operator has replicas: fipop assigns nothing until it has none")
        return self.runs
