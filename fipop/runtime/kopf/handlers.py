"""kopf's handlers: one of events for each watched resource, and the login.

A handler of events puts the object into the store of its kind and returns None: kopf would write anything else into
the object's status. There are no other kinds: docs/contributing/decisions/on-event-only.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import kopf

from fipop.jsons import JsonView
from fipop.kube.resources import Resource
from fipop.runtime.relist import EventType


def build_registry(
    resources: Collection[Resource],
    put: Callable[[Resource, EventType, JsonView], None],
    log_in: Callable[..., Awaitable[kopf.AiohttpSession]],
) -> kopf.OperatorRegistry:
    """Register the handlers; `put` and `log_in` are called in kopf's thread, `log_in` again after each answer 401."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(log_in)

    def register(resource: Resource) -> None:
        @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry)
        async def put_into_store(event: kopf.RawEvent, **_: Any) -> None:
            # The type of an object that a list shows is None.
            put(resource, EventType(event["type"] or EventType.LISTED), event["object"])

    for each in resources:
        register(each)
    return registry
