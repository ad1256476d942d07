"""Parks Harvester's own kube-vip in a guest, and gives it its pods back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from fipop.errors import ApiError
from fipop.guest.harvester import (
    build_parking_patch,
    build_unparking_patch,
    find_harvester,
    is_parked,
    needs_parking,
)
from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import Status
from fipop.guest.observed import ObservedState
from fipop.guest.workloads import Workload, parse_daemon_set
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import DAEMON_SETS

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HarvesterParking:
    """Works in one session with a guest; `note` hears of what failed. Each gives what was observed, as it is then."""

    client: KubeClient
    cluster_name: str
    note: Callable[[ApiError], None]

    async def park(self, observed: ObservedState) -> ObservedState:
        """Have Harvester's make room, where ours is deployed and wants nodes."""
        state = observed.managed.get(Role.KUBE_VIP)
        deployed = state is not None and state.latest.status is Status.DEPLOYED
        ours = observed.workloads_of(Role.KUBE_VIP)
        for harvester in find_harvester(observed.workloads):
            if needs_parking(harvester, ours, deployed=deployed):
                log.info("Parking the kube-vip of Harvester", extra={"cluster": self.cluster_name})
                observed = await self._patch(observed, harvester, build_parking_patch(harvester))
        return observed

    async def unpark(self, observed: ObservedState) -> ObservedState:
        """Give Harvester's its pods back, before ours goes."""
        for harvester in find_harvester(observed.workloads) if observed.removable else ():
            if is_parked(harvester):
                log.info(
                    "Restoring the pods of the kube-vip of Harvester", extra={"cluster": self.cluster_name}
                )
                observed = await self._patch(observed, harvester, build_unparking_patch(harvester))
        return observed

    async def _patch(self, observed: ObservedState, harvester: Workload, patch: Json) -> ObservedState:
        try:
            found = await self.client.merge_patch(
                DAEMON_SETS, harvester.name, patch, namespace=harvester.namespace
            )
        except ApiError as error:
            self.note(error)
            return observed
        others = tuple(one for one in observed.workloads if one is not harvester)
        return replace(observed, workloads=(*others, parse_daemon_set(found)))
