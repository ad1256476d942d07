"""Events on objects, as `kubectl describe` shows them: few, paced, and never in anybody's way."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from fipop.api.models import Meta
from fipop.boundary import loop_time
from fipop.errors import ApiAlreadyExistsError, FipopError
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import EVENTS, Resource

_LONGEST_MESSAGE_BYTES = 1024
_LONGEST_REASON = 128
_NAMESPACE_FOR_CLUSTER_SCOPED = "default"
"""The API server accepts events about cluster scoped objects in this namespace."""
_REMEMBERED_SERIES = 4096

_logger = logging.getLogger(__name__)


class EventType(StrEnum):
    """The two types that Kubernetes knows."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """The object that an event is about; no `namespace` for cluster scoped ones."""

    api_version: str
    kind: str
    name: str
    namespace: str | None = None
    uid: str | None = None


def reference_to(resource: Resource, meta: Meta) -> ObjectReference:
    """Return the reference to an object of a kind."""
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=meta.name,
        namespace=meta.namespace or None,
        uid=meta.uid or None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notice:
    """One thing that happened to one object; equal notices are one event with a count."""

    about: ObjectReference
    type: EventType
    reason: str
    message: str


@dataclass(slots=True, kw_only=True)
class _Series:
    """What was written of a notice; `written_at` is monotonic, None until the first success."""

    written_at: float | None = None
    is_queued: bool = False
    repeats: int = 0


class EventRecorder:
    """Takes notices at once and writes them from `run`, in the background.

    An equal notice within `repeat_seconds` is only counted, and the count written with the next one after that
    time. At most `burst`, then `per_second` are written, warnings first; what does not fit into the queue is dropped
    and counted in `dropped`. The API server being away loses events and nothing else: conditions tell the state.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        component: str = "fipop",
        instance: str = "fipop",
        repeat_seconds: float = 1800.0,
        per_second: float = 20.0,
        burst: int = 50,
        queue_size: int = 2000,
        monotonic: Callable[[], float] = loop_time,
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._repeat_seconds = repeat_seconds
        self._bucket = _Bucket(per_second=per_second, burst=burst)
        self._monotonic = monotonic
        self._queue: asyncio.PriorityQueue[tuple[bool, int, _Notice]] = asyncio.PriorityQueue(queue_size)
        self._sequence = 0
        self._series: OrderedDict[_Notice, _Series] = OrderedDict()
        self.dropped = 0

    def record(self, about: ObjectReference, type: EventType, reason: str, message: str) -> None:  # noqa: A002
        """Note that something happened to an object; returns at once and never fails."""
        notice = _Notice(about=about, type=type, reason=reason[:_LONGEST_REASON], message=_cut(message))
        series = self._series.setdefault(notice, _Series())
        self._series.move_to_end(notice)
        if len(self._series) > _REMEMBERED_SERIES:
            self._series.popitem(last=False)
        series.repeats += 1
        is_fresh = (
            series.written_at is not None and self._monotonic() < series.written_at + self._repeat_seconds
        )
        if series.is_queued or is_fresh:
            return
        is_normal = type is EventType.NORMAL
        self._sequence += 1
        # What is well waits behind what is not, and leaves room for it.
        if self._queue.full() or (is_normal and self._queue.qsize() >= self._queue.maxsize // 2):
            self.dropped += 1
        else:
            self._queue.put_nowait((is_normal, self._sequence, notice))
            series.is_queued = True

    async def run(self) -> None:
        """Write what was recorded, for ever; cancel it to stop."""
        while True:
            _, _, notice = await self._queue.get()
            try:
                await asyncio.sleep(self._bucket.take(self._monotonic()))
                await self._write_or_drop(notice)
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Return once everything recorded so far was written or dropped; needs `run` running."""
        await self._queue.join()

    async def _write_or_drop(self, notice: _Notice) -> None:
        series = self._series.get(notice) or _Series(repeats=1)
        repeats, series.repeats = series.repeats, 0
        try:
            await self._write(notice, repeats, is_known=series.written_at is not None)
        except FipopError as error:
            self.dropped += 1
            _logger.debug("Dropped event", extra={"event_reason": notice.reason, "error": str(error)})
        else:
            series.written_at = self._monotonic()
        # Not before: an equal notice during the write would be written once more.
        series.is_queued = False

    async def _write(self, notice: _Notice, repeats: int, *, is_known: bool) -> None:
        """Create the event or count it up: its name is made from what it says, so that a restart finds it again."""
        namespace = notice.about.namespace or _NAMESPACE_FOR_CLUSTER_SCOPED
        name = _event_name(notice)
        now = self._client.server_now().strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            await self._client.create(EVENTS, self._body(notice, name, namespace, now, repeats))
        except ApiAlreadyExistsError:
            written = await self._client.get(EVENTS, name, namespace=namespace)
            # One that a former process wrote lately stays as it is: a restart writes nothing.
            if written is not None and (is_known or not self._is_fresh(written)):
                count = written.get("count")
                patch = {"count": (count if isinstance(count, int) else 1) + repeats, "lastTimestamp": now}
                await self._client.merge_patch(EVENTS, name, patch, namespace=namespace)

    def _is_fresh(self, written: Json) -> bool:
        """Whether it was told less than a repetition ago."""
        try:
            told_at = datetime.fromisoformat(str(written.get("lastTimestamp")))
        except ValueError:
            return False
        age = self._client.server_now() - told_at.astimezone(UTC)
        return age.total_seconds() < self._repeat_seconds

    def _body(self, notice: _Notice, name: str, namespace: str, now: str, count: int) -> Json:
        about = {
            "apiVersion": notice.about.api_version,
            "kind": notice.about.kind,
            "name": notice.about.name,
            "namespace": notice.about.namespace,
            "uid": notice.about.uid,
        }
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {key: value for key, value in about.items() if value is not None},
            "type": str(notice.type),
            "reason": notice.reason,
            "message": notice.message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": count,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


class _Bucket:
    """Tells how long to wait before the next write, so that the rate holds; `now` is monotonic seconds."""

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._interval = 1.0 / per_second
        self._allowance = self._interval * (burst - 1)
        self._next = 0.0

    def take(self, now: float) -> float:
        """Return the seconds to wait, and count the write."""
        self._next = max(self._next, now - self._allowance)
        wait = max(0.0, self._next - now)
        self._next += self._interval
        return wait


def _cut(message: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in message)
    return printable.encode("utf-8", "replace")[:_LONGEST_MESSAGE_BYTES].decode("utf-8", "ignore")


def _event_name(notice: _Notice) -> str:
    about = notice.about
    parts = (
        about.api_version,
        about.kind,
        about.uid or "",
        about.name,
        notice.type,
        notice.reason,
        notice.message,
    )
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]
    return f"{about.name[:200].rstrip('.-')}.{digest}"
