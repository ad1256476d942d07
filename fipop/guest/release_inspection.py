"""What helm is asked about releases in a guest: what an old one was made from, and which objects belong to one.

helm answers in a process of its own, which has a memory limit; the guest needs a turn for it, as for an install. Each
revision is asked about once, and what was told is remembered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fipop.errors import HelmError, ReleaseRecordError
from fipop.guest.helm.charts import Role, WantedRelease
from fipop.guest.helm.releases import ReleaseState
from fipop.guest.helm.runner import HelmTarget
from fipop.guest.limits import GuestLimits
from fipop.guest.memory import Place
from fipop.guest.missing_objects import parse_manifest
from fipop.guest.observed import ObservedState, look_again
from fipop.guest.reports import GuestTask

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspector:
    """Asks helm about the releases of one guest, in that guest's turn."""

    task: GuestTask
    limits: GuestLimits
    target: HelmTarget

    async def find_adopted(self, observed: ObservedState, wanted: Sequence[WantedRelease]) -> ObservedState:
        """Ask about the releases without our labels until each role has adopted one, or none.

        One that helm cannot tell about is a problem of its role.
        """
        guest_id, memory = self.task.guest_id, self.limits.memory
        while observed.unknown:
            role, state = next(iter(observed.unknown.items()))
            inspection = memory.inspect(guest_id, state.latest)
            try:
                inspection.description = await self.limits.helm.describe(self.target, state.latest)
                self._log("asked helm about a release without our labels", role, state)
            except HelmError as error:
                inspection.fail(_unreadable(state, error), self.limits.monotonic())
                self._log("helm cannot tell about a release", role, state, error=str(error))
            observed = look_again(observed, guest_id, wanted, memory, monotonic=self.limits.monotonic())
        return observed

    async def list_objects(self, states: Mapping[Role, ReleaseState]) -> dict[Role, tuple[Place, ...]]:
        """Give the objects of these releases, by role. Raises ReleaseRecordError where one cannot be told."""
        found = {}
        for role, state in states.items():
            inspection = self.limits.memory.inspect(self.task.guest_id, state.latest)
            if inspection.objects is None:
                try:
                    manifest = await self.limits.helm.manifest(self.target, state.latest)
                    # What the guest says was rendered: to read it is not to be every other guest's time.
                    inspection.objects = await asyncio.to_thread(parse_manifest, manifest, state)
                except HelmError as error:
                    failure = _unreadable(state, error)
                    inspection.fail(failure, self.limits.monotonic())
                    raise failure from error
                except ReleaseRecordError as error:
                    inspection.fail(error, self.limits.monotonic())
                    raise
            found[role] = inspection.objects
        return found

    def _log(self, message: str, role: Role, state: ReleaseState, *, error: str = "") -> None:
        level = logging.WARNING if error else logging.INFO
        fields = {"cluster": self.task.cluster_name, "release": state.latest.name, "role": role.value}
        log.log(level, message, extra=fields | ({"error": error} if error else {}))


def _unreadable(state: ReleaseState, error: HelmError) -> ReleaseRecordError:
    reason = error.failure.value + (f": {error.cause}" if error.cause else "")
    return ReleaseRecordError(
        namespace=state.latest.namespace, name=state.latest.name, reason=f"helm says: {reason}"
    )
