"""Where rollouts are kept: ConfigMap `fipop-rollout`, and one for each target that is still needed.

Only a leader writes. Targets never change; the rollout is written with the version that was read.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from fipop.api import names
from fipop.errors import ApiAlreadyExistsError
from fipop.guest.helm.targets import Target, parse_target, render_target
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS
from fipop.operator.rollout.progress import RolloutState, parse_state, render_state

logger = logging.getLogger(__name__)

_IS_TARGET = f"{names.LABEL_ROLLOUT}=target"


@dataclass(slots=True, kw_only=True)
class RolloutStore:
    """Reads and writes the state of rollouts in the operator's namespace. Raises ApiError."""

    client: KubeClient
    namespace: str
    _version: str | None = None

    async def load(self) -> RolloutState | None:
        """Give the rollout; None where there is none, or nobody can read what stands there."""
        found = await self.client.get(CONFIG_MAPS, names.ROLLOUT_CONFIG_MAP, namespace=self.namespace)
        self._version = found["metadata"]["resourceVersion"] if found is not None else None
        state = parse_state(found.get("data") or {}) if found is not None else None
        if found is not None and state is None:
            logger.warning("Could not read ConfigMap of the rollout, starting again")
        return state

    async def load_targets(self) -> dict[str, Target]:
        """Give the targets that are kept, by name."""
        listing = await self.client.list(CONFIG_MAPS, namespace=self.namespace, label_selector=_IS_TARGET)
        targets = (
            parse_target(
                each["metadata"]["name"].removeprefix(names.TARGET_CONFIG_MAP_PREFIX), each.get("data") or {}
            )
            for each in listing.items
        )
        return {target.name: target for target in targets if target is not None}

    async def save(self, state: RolloutState) -> None:
        """Write the rollout. ApiConflictError where somebody else has written since."""
        if self._version is None:
            written = await self.client.create(
                CONFIG_MAPS, self._build(names.ROLLOUT_CONFIG_MAP, render_state(state))
            )
        else:
            patch = {"metadata": {"resourceVersion": self._version}, "data": render_state(state)}
            written = await self.client.merge_patch(
                CONFIG_MAPS, names.ROLLOUT_CONFIG_MAP, patch, namespace=self.namespace
            )
        self._version = written["metadata"]["resourceVersion"]

    async def save_target(self, target: Target) -> None:
        """Keep a target."""
        name = f"{names.TARGET_CONFIG_MAP_PREFIX}{target.name}"
        body = self._build(name, render_target(target))
        body["metadata"]["labels"] = {names.LABEL_ROLLOUT: "target"}
        try:
            await self.client.create(CONFIG_MAPS, body)
        except ApiAlreadyExistsError:
            # The same charts and values, of options that ask for them in other words perhaps.
            await self.drop_target(target.name)
            await self.client.create(CONFIG_MAPS, body)

    async def drop_target(self, name: str) -> None:
        """Keep a target no longer."""
        await self.client.delete(
            CONFIG_MAPS, f"{names.TARGET_CONFIG_MAP_PREFIX}{name}", namespace=self.namespace
        )

    def _build(self, name: str, data: dict[str, str]) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.namespace},
            "data": data,
        }
