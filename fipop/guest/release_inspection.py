"""What helm is asked about releases in a guest: what an old one was made from, and which objects belong to one.

helm answers in a process of its own, which has a memory limit; the guest needs a turn for it, as for an install. Each
revision is asked about once, and what was told is remembered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fipop.guest.errors import HelmError, ReleaseRecordError
from fipop.guest.helm.charts import Role, WantedRelease
from fipop.guest.helm.releases import ReleaseState
from fipop.guest.helm_turn import HelmTurn
from fipop.guest.missing_objects import parse_manifest
from fipop.guest.observed import ObservedState, look_again
from fipop.guest.release_memory import Place

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Inspector:
    """Asks helm about the releases of one guest, in that guest's turn."""

    turn: HelmTurn

    async def find_adopted(self, wanted: Sequence[WantedRelease]) -> ObservedState:
        """Ask about the releases without our labels until each role has adopted one, or none.

        One that helm cannot tell about is a problem of its role.
        """
        observed, notes = self.turn.observed, self.turn.task.memory
        while observed.unknown:
            role, state = next(iter(observed.unknown.items()))
            inspection = notes.inspect(state.latest)
            try:
                inspection.description = await self.turn.limits.helm.describe(self.turn.target, state.latest)
                self._log("Inspected release without labels of fipop", role, state)
            except HelmError as error:
                notes.note_silence(inspection, _unreadable(state, error))
                self._log("Could not inspect release", role, state, error=str(error))
            observed = look_again(observed, wanted, notes)
        return observed

    async def list_objects(self, states: Mapping[Role, ReleaseState]) -> dict[Role, tuple[Place, ...]]:
        """Give the objects of these releases, by role. Raises ReleaseRecordError where one cannot be told."""
        found = {}
        for role, state in states.items():
            inspection = self.turn.task.memory.inspect(state.latest)
            if inspection.objects is None:
                try:
                    inspection.objects = await self._ask_for_objects(state)
                except ReleaseRecordError as error:
                    self.turn.task.memory.note_silence(inspection, error)
                    raise
            found[role] = inspection.objects
        return found

    async def _ask_for_objects(self, state: ReleaseState) -> tuple[Place, ...]:
        try:
            manifest = await self.turn.limits.helm.manifest(self.turn.target, state.latest)
        except HelmError as error:
            raise _unreadable(state, error) from error
        # What the guest says was rendered: to read it is not to be every other guest's time.
        return await asyncio.to_thread(parse_manifest, manifest, state)

    def _log(self, message: str, role: Role, state: ReleaseState, *, error: str = "") -> None:
        level = logging.WARNING if error else logging.INFO
        fields = {
            "cluster": self.turn.task.guest.cluster_name,
            "release": state.latest.name,
            "role": role.value,
        }
        log.log(level, message, extra=fields | ({"error": error} if error else {}))


def _unreadable(state: ReleaseState, error: HelmError) -> ReleaseRecordError:
    reason = f"helm reported: {error.failure.value}" + (f": {error.cause}" if error.cause else "")
    return ReleaseRecordError(namespace=state.latest.namespace, name=state.latest.name, reason=reason)
