"""A watch of one object by its name: for the one ConfigMap that kopf would watch among all others."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fipop.deadlines import LONGEST_WATCH_SECONDS
from fipop.jsons import Json
from fipop.kube.client import KubeClient, Listing
from fipop.kube.list_watch import LONGEST_BACKOFF_SECONDS, ListWatch
from fipop.kube.resources import Resource


class ObjectWatch:
    """Follows one object for ever: iterate `versions`; `last_heard_at` says whether the stream lives.

    Every round begins with a list of that one name, so what happened while blind (a cut, a version that is too
    old, a restored store) is seen at the latest when the server ends the watch, after `server_timeout_seconds`.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        server_timeout_seconds: int = LONGEST_WATCH_SECONDS - 10,
        longest_backoff_seconds: float = LONGEST_BACKOFF_SECONDS,
        chance: random.Random | None = None,
    ) -> None:
        self._source = ListWatch(
            client,
            resource,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            relist_seconds=0.0,
            server_timeout_seconds=server_timeout_seconds,
            longest_backoff_seconds=longest_backoff_seconds,
            chance=chance,
        )

    @property
    def last_heard_at(self) -> float | None:
        """The monotonic time of the last list, event or bookmark; None before the first."""
        return self._source.last_heard_at

    async def versions(self) -> AsyncGenerator[Json | None, None]:
        """Yield the object as it is, then every change; None while it does not exist. Ends only when closed."""
        seen: object = _NOTHING_SEEN
        async with aclosing(self._source.changes()) as changes:
            async for change in changes:
                if isinstance(change, Listing):
                    state = change.items[0] if change.items else None
                else:
                    state = change.object if change.type != "DELETED" else None
                identity = _identity(state)
                if identity != seen:
                    seen = identity
                    yield state


_NOTHING_SEEN = object()


def _identity(state: Json | None) -> object:
    """Return what tells one version of the object from another; None where it does not exist."""
    if state is None:
        return None
    metadata = state["metadata"]
    return metadata.get("uid"), metadata.get("resourceVersion")
