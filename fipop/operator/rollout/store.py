"""Where rollouts are kept: ConfigMap `fipop-rollout`, and two of fixed names for the targets that are still needed.

RBAC grants ConfigMaps by name, and more than two targets are never needed: the one that is rolled out, and the stable
one. Only a leader writes, and each ConfigMap with the version that it read.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fipop.api import names
from fipop.errors import NotFoundError
from fipop.guest.helm.targets import Target, parse_target, render_target
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS
from fipop.operator.rollout.progress import RolloutState, parse_state, render_state

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RolloutStore:
    """Reads and writes the state of rollouts in the operator's namespace. Raises ApiError.

    `_held` names the target in each of the two ConfigMaps, "" for none.
    """

    client: KubeClient
    namespace: str
    _versions: dict[str, str] = field(default_factory=dict)
    _held: dict[str, str] = field(default_factory=lambda: dict.fromkeys(names.TARGET_CONFIG_MAPS, ""))
    _stable: str = ""

    async def load(self) -> RolloutState | None:
        """Return the rollout; None where there is none, or nobody can read what stands there."""
        found = await self._read(names.ROLLOUT_CONFIG_MAP)
        state = parse_state(found) if found is not None else None
        if found is not None and state is None:
            logger.warning("Could not read ConfigMap of the rollout, starting again")
        self._stable = state.stable if state is not None else ""
        return state

    async def load_targets(self) -> dict[str, Target]:
        """Return the targets that are kept, by name."""
        targets = {}
        for name in self._held:
            target = parse_target(await self._read(name) or {})
            self._held[name] = ""
            if target is not None and target.name not in targets:
                targets[target.name] = target
                self._held[name] = target.name
        return targets

    async def save(self, state: RolloutState) -> None:
        """Write the rollout. ConflictError where somebody else has written since."""
        await self._write(names.ROLLOUT_CONFIG_MAP, render_state(state))
        self._stable = state.stable

    async def save_target(self, target: Target) -> None:
        """Keep a target, replacing any but the stable one. ConflictError where somebody else has written since.

        That may be the one that is rolled out: the next rollout is about to replace it.
        """
        replaceable = (name for name, held in self._held.items() if held != self._stable)
        name = self._place_of(target.name) or self._place_of("") or next(replaceable)
        await self._write(name, render_target(target))
        self._held[name] = target.name

    async def drop_target(self, name: str) -> None:
        """Keep a target no longer."""
        place = self._place_of(name)
        if place is not None:
            await self._write(place, None)
            self._held[place] = ""

    def _place_of(self, target: str) -> str | None:
        return next((name for name, held in self._held.items() if held == target), None)

    async def _read(self, name: str) -> dict[str, Any] | None:
        found = await self.client.get(CONFIG_MAPS, name, namespace=self.namespace)
        self._versions[name] = found["metadata"]["resourceVersion"] if found is not None else ""
        return found.get("data") or {} if found is not None else None

    async def _write(self, name: str, data: dict[str, str] | None) -> None:
        written = None
        if version := self._versions.get(name):
            patch = {"metadata": {"resourceVersion": version}, "data": data}
            with suppress(NotFoundError):  # somebody deleted it: it is made again
                written = await self.client.merge_patch(CONFIG_MAPS, name, patch, namespace=self.namespace)
        if written is None:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
            written = await self.client.create(CONFIG_MAPS, body, namespace=self.namespace)
        self._versions[name] = written["metadata"]["resourceVersion"]
