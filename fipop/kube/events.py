"""Events on objects, as `kubectl describe` shows them: best effort, and they delay nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from fipop.api.codec import format_time
from fipop.errors import ApiError, ConflictError, UnavailableError
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import EVENTS, Resource

_MOST_WAITING, _MOST_KNOWN = 1000, 10_000
_KEPT = timedelta(hours=1)
"""For how long an API server keeps an event: a Warning that a retry repeats meanwhile is not sent."""
_PAUSE_SECONDS = 0.05
_MOST_TRIES, _RETRY_SECONDS = 12, 10.0
"""How often an event is sent while the API server is away, as client-go does."""
_LONGEST_MESSAGE_BYTES = 1024
_LONGEST_REASON = 128
_NAMESPACE_FOR_CLUSTER_SCOPED = "default"
"""The API server accepts events about cluster-scoped objects in this namespace."""

logger = logging.getLogger(__name__)


class EventType(StrEnum):
    """The two types that Kubernetes knows."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """The object that an event is about; no `namespace` for cluster-scoped ones."""

    api_version: str
    kind: str
    name: str
    namespace: str | None = None
    uid: str | None = None


class Named(Protocol):
    """What tells an object from others of its kind; "" if it has no namespace, or no uid is known."""

    @property
    def name(self) -> str:
        """The name within the namespace."""

    @property
    def namespace(self) -> str:
        """The namespace."""

    @property
    def uid(self) -> str:
        """The identity of this very object, not of its name."""


def reference_to(resource: Resource, meta: Named) -> ObjectReference:
    """Return the reference to an object of a kind."""
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=meta.name,
        namespace=meta.namespace or None,
        uid=meta.uid or None,
    )


class EventRecorder:
    """Takes events at once, and writes them from `run`.

    The name of an event is made from its text, so an equal one is written once in the hour for which an API server
    keeps it, by whichever process. `is_repeated` ones are written each time: a rollout can return to a former target.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        now: Callable[[], datetime],
        instance: str,
        component: str = "fipop",
    ) -> None:
        self._now = now
        self._client = client
        self._source = {"reportingComponent": component, "reportingInstance": instance}
        self._component = component
        self._waiting: asyncio.Queue[Json] = asyncio.Queue(_MOST_WAITING)
        self._written: dict[str, datetime] = {}
        self._repeats = 0

    def record(
        self,
        about: ObjectReference,
        type: EventType,  # noqa: A002 - the field's name
        reason: str,
        message: str,
        *,
        is_repeated: bool = False,
    ) -> None:
        """Have an event about an object written; returns at once and never fails."""
        self._repeats += is_repeated
        occurrence = f"{self._source['reportingInstance']} {self._repeats}" if is_repeated else ""
        involved = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
        }
        text = json.dumps([involved, type, reason, message, occurrence])
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        name = f"{about.name[:200].rstrip('.-')}.{digest}"
        if name in self._written and self._now() - self._written[name] < _KEPT:
            return
        event = {
            "metadata": {
                "name": name,
                "namespace": about.namespace or _NAMESPACE_FOR_CLUSTER_SCOPED,
            },
            "involvedObject": {key: value for key, value in involved.items() if value is not None},
            "type": str(type),
            "reason": reason[:_LONGEST_REASON],
            "message": _cut(message),
            "count": 1,
            "source": {"component": self._component},
            **self._source,
        }
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            logger.debug("Dropped event", extra={"event_reason": reason})

    async def run(self) -> None:
        """Write what was recorded, for ever; cancel it to stop."""
        while True:
            await self._write(await self._waiting.get())
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _write(self, event: Json) -> None:
        """Write an event: who recorded it has noted that it is said."""
        now = self._now()
        text = format_time(now)
        for _ in range(_MOST_TRIES):
            try:
                with suppress(ConflictError):  # it was written within the last hour
                    await self._client.create(
                        EVENTS, {**event, "firstTimestamp": text, "lastTimestamp": text}
                    )
            except ApiError as error:
                logger.debug("Could not write event", extra={"error": str(error)})
                if isinstance(error, UnavailableError):
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                return
            if event["type"] == EventType.WARNING:
                self._note_written(event["metadata"]["name"], now)
            return

    def _note_written(self, name: str, now: datetime) -> None:
        if len(self._written) >= _MOST_KNOWN:
            self._written.clear()
        self._written[name] = now


def _cut(message: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in message)
    return printable.encode("utf-8", "replace")[:_LONGEST_MESSAGE_BYTES].decode("utf-8", "ignore")
