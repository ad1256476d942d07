"""What is kept of rollouts: a ConfigMap, from which the next leader goes on and reports are made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fipop.api import names
from fipop.api.codec import format_time, parse_time
from fipop.errors import FipopError, NotFoundError
from fipop.helm.charts import parse_target, render_target
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS
from fipop.rollout.parts import Parts, render_parts
from fipop.rollout.plan import Phase, Rollout


@dataclass(slots=True, kw_only=True)
class RolloutStore:
    """Reads and writes the ConfigMap of one leader's rollouts."""

    client: KubeClient
    namespace: str
    is_loaded: bool = False
    problem: str = ""
    """Why it could not be read; "" if it was."""
    _stored: Json = field(default_factory=dict)
    """The ConfigMap as it was last read or written; empty if there is none."""

    @property
    def data(self) -> Mapping[str, str]:
        """The data of the ConfigMap, as it was last read or written."""
        return self._stored.get("data") or {}

    async def load(self) -> Rollout | None:
        """Return the rollout; None if there is none. Raises ApiError."""
        try:
            found = await self.client.get(CONFIG_MAPS, names.ROLLOUT_CONFIG_MAP, namespace=self.namespace)
        except FipopError as error:
            self.problem = str(error)
            raise
        self._stored, self.is_loaded, self.problem = found or {}, True, ""
        return parse_rollout(self.data)

    async def forget_if_deleted(self) -> None:
        """Read the ConfigMap, so that the next `save` creates it again if somebody deleted it. Raises ApiError."""
        name = names.ROLLOUT_CONFIG_MAP
        if self._stored and await self.client.get(CONFIG_MAPS, name, namespace=self.namespace) is None:
            self._stored = {}

    async def save(self, data: Mapping[str, str]) -> None:
        """Write what `render_rollout` returns. Raises ApiError; ConflictError if another leader wrote meanwhile."""
        name = names.ROLLOUT_CONFIG_MAP
        try:
            if self._stored:
                version = self._stored["metadata"]["resourceVersion"]
                patch = {"metadata": {"resourceVersion": version}, "data": data}
                self._stored = await self.client.merge_patch(
                    CONFIG_MAPS, name, patch, namespace=self.namespace
                )
            else:
                body = {"metadata": {"name": name}, "data": data}
                self._stored = await self.client.create(CONFIG_MAPS, body, namespace=self.namespace)
        except NotFoundError:
            self._stored = {}  # it was deleted: the next write makes it again
            raise


def render_rollout(rollout: Rollout, parts: Parts, waits: str) -> dict[str, str]:
    """Return the data of the ConfigMap. `parts`, and what it `waits` for, are for those who read it."""
    facts = {
        "target": rollout.target.name,
        "stable": rollout.stable.name if rollout.stable is not None else "",
        "phase": rollout.phase.value,
        "reason": rollout.reason,
        "failed": rollout.failed,
        "unproven": rollout.unproven,
        "takesUnready": rollout.takes_unready,
        "retried": rollout.retried,
        "orders": rollout.orders,
        "began": format_time(rollout.began) if rollout.began is not None else "",
    }
    return {
        "rollout": json.dumps(facts),
        "target": render_target(rollout.target),
        "stable": render_target(rollout.stable),
        "guests": render_parts(parts),
        "waits": waits,
    }


def parse_rollout(data: Mapping[str, str]) -> Rollout | None:
    """Read what `render_rollout` wrote; None for anything else: the rollout begins again with canaries."""
    target = parse_target(data.get("target", ""))
    try:
        facts = json.loads(data.get("rollout", ""))
        return (
            None
            if target is None
            else Rollout(
                target=target,
                stable=parse_target(data.get("stable", "")),
                phase=Phase(facts["phase"]),
                reason=str(facts["reason"]),
                failed={str(guest_id): str(name) for guest_id, name in facts["failed"].items()},
                unproven=tuple(map(str, facts["unproven"])),
                takes_unready=facts["takesUnready"] is True,
                retried=str(facts["retried"]),
                orders={str(role): str(order) for role, order in facts["orders"].items()},
                began=parse_time(facts.get("began")),
            )
        )
    except (ValueError, TypeError, AttributeError, LookupError):
        return None
