"""Other installations of fipop: one leads for each management cluster, whichever namespace it is installed in.

The Lease decides among the replicas of one namespace. The CRD of FloatingIPReservation exists once, and names the
namespace that leads. A replica takes its Lease first, and reads the CRD then. It leads if the CRD names its namespace.

If the CRD names another one, it waits until the Lease there did not change for as long as a Lease lasts, by its own
clock: a holder that lives renews it, and one that stopped has a successor. The same holds for a Lease that is missing:
a leader whose namespace is deleted cannot create it again, and works on until its hold is over. Then the replica writes
its namespace at the version of the CRD that it judged, so of several that wait one succeeds. It reads the other Lease
once more: if it was taken before, it changed, and whoever takes it later reads the CRD.

Administrators and tools edit the CRD. So a leader reads it again and again: it writes a name that was lost, and ends if
another namespace is named that has a Lease. A replica that waits remembers each namespace that was named. If its own is
named suddenly, it waits for as long as a Lease lasts, until the former leader has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fipop.api import names
from fipop.deadlines import LEASE_DURATION_SECONDS
from fipop.errors import ApiError, ConflictError, StartError
from fipop.jsons import Json, as_mapping, as_text
from fipop.kube.client import KubeClient
from fipop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, FLOATING_IP_RESERVATIONS, LEASES
from fipop.texts import is_namespace

logger = logging.getLogger(__name__)

POLL_SECONDS = 4.0
"""Between two readings of the CRD: a leader ends long before another installation that was named leads."""


class Installations:
    """Whether the installation in `namespace` leads this management cluster, or another one does.

    `clock` runs on while the machine is suspended.
    """

    def __init__(self, client: KubeClient, *, namespace: str, clock: Callable[[], float]) -> None:
        self.leads = False
        """Whether this process leads: until its end."""
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._problem = ""
        """Why this replica is not ready; "" if it is."""
        self._is_waiting = False
        self._others: dict[str, None] = {}
        """The other namespaces that were named while this process waited; the last one is the last."""
        self._seen: object = None
        self._seen_since = 0.0

    def why_not_ready(self) -> dict[str, str]:
        """Return what keeps this replica from being ready, by a name; {} if nothing does."""
        return {"leader": self._problem} if self._problem else {}

    async def wait_for_lead(self) -> None:
        """Wait until this installation leads, while this process holds its Lease; the log says why it waits."""
        self._is_waiting = True
        while True:
            try:
                if await self._take():
                    break
                self._set_problem(*self._others)
            except ConflictError:
                pass  # the CRD changed since it was read
            except ApiError as error:
                self._set_problem(problem=f"it is not known whether another installation leads: {error}")
            await asyncio.sleep(POLL_SECONDS)
        self._set_problem()
        self.leads = True

    async def watch(self) -> None:
        """Keep the name of this installation on the CRD while it leads; else know whether another one does.

        Raises: StartError if another installation is named while this one leads.
        """
        while True:
            try:
                await self._check()
            except ApiError as error:
                logger.debug("Could not find out who leads", extra={"error": str(error)})
            await asyncio.sleep(POLL_SECONDS)

    async def _check(self) -> None:
        crd = await self._read_crd()
        named = read_leader_namespace(crd)
        is_other = named not in ("", self._namespace)
        if self.leads and is_other and await self._read_lease(named) is not None:
            raise StartError(what=f"fipop in namespace {named}", problem="leads: this process ends and waits")
        if self.leads and named != self._namespace:
            logger.warning("The CRD did not name this installation, writing it again", extra={"named": named})
            await self._write(crd)
        elif not self._is_waiting:
            self._set_problem(*[named] * is_other)

    async def _take(self) -> bool:
        """Return whether this installation leads; name it if no other one can. Raises: ApiError."""
        crd = await self._read_crd()
        named = read_leader_namespace(crd)
        is_ours = named == self._namespace
        if named and not is_ours:
            self._others = {each: None for each in self._others if each != named} | {named: None}
        leases = {each: await self._read_lease(each) for each in self._others if not is_ours}
        if (seen := (is_ours, leases)) != self._seen:
            self._seen, self._seen_since = seen, self._clock()
        if self._others and self._clock() - self._seen_since < LEASE_DURATION_SECONDS:
            return False
        if is_ours:
            return True
        await self._write(crd)
        return all([await self._read_lease(each) == lease for each, lease in leases.items()])

    def _set_problem(self, *others: str, problem: str = "") -> None:
        if others:
            problem = f'fipop in namespace "{others[-1]}" leads this management cluster'
        if problem and problem != self._problem:
            logger.warning("This installation waits", extra={"reason": problem})
        self._problem = problem

    async def _read_crd(self) -> Json:
        name = FLOATING_IP_RESERVATIONS.full_name
        crd = await self._client.get(CUSTOM_RESOURCE_DEFINITIONS, name, metadata_only=True)
        if crd is None:
            raise ApiError(f"get CRD {name}", status=404)
        return crd

    async def _read_lease(self, namespace: str) -> object:
        """Return the version of the Lease of another namespace; None if it has none. Raises: ApiError."""
        lease = await self._client.get(LEASES, names.LEASE_NAME, namespace=namespace, metadata_only=True)
        return None if lease is None else lease["metadata"]["resourceVersion"]

    async def _write(self, crd: Json) -> None:
        """Name this installation on the CRD. Raises: ApiError; ConflictError if the CRD changed since it was read."""
        metadata = {
            "resourceVersion": crd["metadata"]["resourceVersion"],
            "annotations": {names.ANNOTATION_LEADER_NAMESPACE: self._namespace},
        }
        name = FLOATING_IP_RESERVATIONS.full_name
        await self._client.merge_patch(CUSTOM_RESOURCE_DEFINITIONS, name, {"metadata": metadata})


def read_leader_namespace(crd: Json) -> str:
    """Return the namespace of the installation that leads, by the CRD of FloatingIPReservation; "" if none is named."""
    annotations = as_mapping(as_mapping(crd.get("metadata")).get("annotations"))
    named = as_text(annotations.get(names.ANNOTATION_LEADER_NAMESPACE))
    return named if is_namespace(named) else ""
