"""Brings a guest's ConfigMap to the wanted state: the keys of its floating IPs where its cloud provider reads them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from fipop.api import names
from fipop.deadlines import PERMIT_SECONDS
from fipop.errors import ApiError, FipopError
from fipop.guest.configmap.keys import DesiredKeys, build_keys
from fipop.guest.configmap.plan import Patch, Plan, plan_patch
from fipop.guest.reports import ConfigMapOutcome, ConfigMapReport, GuestTask
from fipop.ipam.pool import MAX_GUEST_PARTS
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS, NAMESPACES
from fipop.texts import clean

log = logging.getLogger(__name__)
PREDECESSOR_NAMESPACE = "kube-system"
"""Where kube-fip-operator wrote, whatever `kubevipNamespace` said."""

_LOGGED_KEYS = 20
MAX_NAMESPACES = 8
"""In so many namespaces of a guest a pass writes at most: whoever annotates thousands gets no more of our time."""


class _WithheldError(Exception):
    """The write was not permitted; `cause` is why that could not be found out, if that is the reason."""

    def __init__(self, cause: FipopError | None = None) -> None:
        self.cause = cause
        super().__init__()


def find_namespace(config_maps: Sequence[Json]) -> str | None:
    """Give the namespace of the ConfigMap that fipop wrote; None where it wrote none yet."""
    ours = sorted(_namespace(item) for item in config_maps if _is_annotated(item))
    return ours[0] if ours else None


async def settle_config_maps(
    client: KubeClient,
    task: GuestTask,
    config_maps: Sequence[Json],
    namespace: str,
    *,
    withheld: frozenset[str] = frozenset(),
) -> ConfigMapReport:
    """Write the wanted keys to the ConfigMap in `namespace`, and take ours out of those elsewhere.

    No key gets the addresses that are `withheld`.

    Elsewhere: where fipop wrote before, and where its predecessor always did.
    """
    desired = build_keys(task.floating_ips, task.granted - withheld)
    known = task.granted | task.retired
    by_namespace = {_namespace(item): item for item in config_maps}
    places = _find_places(by_namespace, namespace)
    # However many there are, what is read of them in one go is bounded.
    max_parts = MAX_GUEST_PARTS // len(places)
    permit = _Permit(task)
    changed: list[str] = []
    plan = Plan()
    outcome, error = ConfigMapOutcome.UNCHANGED, None
    try:
        for place in places:
            current = by_namespace.get(place)
            wanted = desired if place == namespace else DesiredKeys()
            found = plan_patch(
                current, wanted, granted=known, frozen=task.frozen, namespace=place, max_parts=max_parts
            )
            if place == namespace:
                plan = found
            if found.patch is not None:
                await _write(client, permit, found.patch, place)
                changed += found.patch.changed
                outcome = ConfigMapOutcome.WRITTEN
    except _WithheldError as withheld:
        outcome, error = ConfigMapOutcome.WITHHELD, withheld.cause
    except ApiError as failure:
        outcome, error = ConfigMapOutcome.FAILED, failure
    return ConfigMapReport(
        outcome=outcome,
        changed=tuple(sorted(set(changed))),
        blocked=plan.blocked,
        contradictions=desired.contradictions,
        error=error,
    )


def _find_places(by_namespace: Mapping[str, Json], namespace: str) -> list[str]:
    """Give the namespace to write to, and those that may hold keys of ours."""
    ours = [place for place, item in by_namespace.items() if _is_annotated(item)]
    stale = sorted({*ours, PREDECESSOR_NAMESPACE} & by_namespace.keys() - {namespace})
    # Our predecessor's place first: it is the one that a cloud provider may read.
    stale.sort(key=lambda place: place != PREDECESSOR_NAMESPACE)
    return [namespace, *stale][:MAX_NAMESPACES]


@dataclass(slots=True)
class _Permit:
    """The answer of `before_write`, which serves the writes of the next seconds."""

    task: GuestTask
    asked_at: float = float("-inf")

    async def require(self) -> None:
        """Raise _WithheldError where the addresses may not be written now."""
        clock = asyncio.get_running_loop()
        if clock.time() - self.asked_at <= PERMIT_SECONDS:
            return
        asked_at = clock.time()
        try:
            permitted = await self.task.before_write()
        except FipopError as error:
            raise _WithheldError(error) from error
        if not permitted or clock.time() - asked_at > PERMIT_SECONDS:
            raise _WithheldError
        self.asked_at = asked_at


async def _write(client: KubeClient, permit: _Permit, patch: Patch, namespace: str) -> None:
    try:
        await _write_once(client, permit, patch, namespace)
    except ApiError as error:
        if not patch.create or error.status != HTTPStatus.NOT_FOUND:
            raise
    else:
        return
    # The namespace is missing, as it may be where an administrator named one of his own.
    await client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    await _write_once(client, permit, patch, namespace)


async def _write_once(client: KubeClient, permit: _Permit, patch: Patch, namespace: str) -> None:
    await permit.require()
    keys = clean(", ".join(patch.changed[:_LOGGED_KEYS]))
    log.info(
        "Writing ConfigMap of guest cluster",
        extra={"cluster": permit.task.guest.cluster_name, "namespace": namespace, "keys": keys},
    )
    if patch.create:
        await client.create(CONFIG_MAPS, patch.body, namespace=namespace)
    else:
        await client.merge_patch(CONFIG_MAPS, names.GUEST_CONFIG_MAP, patch.body, namespace=namespace)


def _namespace(config_map: Json) -> str:
    return str(config_map["metadata"].get("namespace"))


def _is_annotated(config_map: Json) -> bool:
    return names.ANNOTATION_APPLIED in (config_map["metadata"].get("annotations") or {})
