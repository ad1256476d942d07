"""Reads what links point at, and remembers what it said for a moment: many guests have the same credential."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from fipop.errors import ForbiddenError
from fipop.interfaces import loop_time
from fipop.jsons import JsonView
from fipop.kube.client import KubeClient
from fipop.kube.resources import SECRETS, Resource
from fipop.rancher.objects import ObjectRef

T = TypeVar("T")

KEPT_SECONDS = 10.0
"""A new guest's links are resolved several times within seconds, whenever one of its objects changes."""
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object cannot be had, and why in a sentence."""

    message: str


@dataclass(slots=True)
class LinkReader:
    """Keeps what objects said, never the objects: there are secrets in them."""

    client: KubeClient
    _known: dict[tuple[Resource, ObjectRef], tuple[float, Any]] = field(default_factory=dict)

    async def read(
        self, resource: Resource, ref: ObjectRef, parse: Callable[[JsonView], T]
    ) -> T | Unreadable:
        """Return an object as `parse` reads it. One that does not exist is asked for again each time."""
        until, said = self._known.get((resource, ref), (0.0, None))
        now = loop_time()
        if now < until:
            return cast("T", said)
        what = f"{resource.kind} {ref.namespace}/{ref.name}"
        try:
            found = await self.client.get(resource, ref.name, namespace=ref.namespace)
        except ForbiddenError:
            remedy = "add its namespace to secretNamespaces of the chart"
            if resource != SECRETS:
                remedy = (
                    "the chart grants that in the ClusterRole of fipop. Install the chart of this version"
                )
            return Unreadable(f"fipop cannot read {what}: {remedy}")
        if found is None:
            self._known.pop((resource, ref), None)
            return Unreadable(f"{what} does not exist")
        parsed = parse(found)
        if len(self._known) >= _MOST:
            self._known = {key: value for key, value in self._known.items() if value[0] > now}
        self._known[resource, ref] = now + KEPT_SECONDS, parsed
        return parsed
