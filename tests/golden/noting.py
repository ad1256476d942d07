"""Takes down what the product writes to an API server in memory: every call that writes, and what came of it.

A call is known by its task (a context variable), so that what people do at the same time is not taken for the
product's, and several calls at once are told apart.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from fipop.errors import ApiError
from tests.golden.normal import Json, Names, changes, texts_of
from tests.harness.history import Change
from tests.harness.memory import Key, Memory, copy_json
from tests.harness.small_operator import PromptClient
from tests.harness.small_provider import Loop

_CALL: ContextVar["Call | None"] = ContextVar("call", default=None)

KINDS = {
    "configmaps": "ConfigMap",
    "floatingipranges": "FloatingIPRange",
    "floatingipreservations": "FloatingIPReservation",
    "floatingips": "FloatingIP",
    "services": "Service",
}


def title_of(key: Key) -> str:
    """Return how a recording calls an object: `FloatingIP c-m-a/web`."""
    return f"{KINDS.get(key[0], key[0])} {'/'.join(part for part in key[1:] if part)}"


@dataclass
class Call:
    """One call of the product that writes; `before` and `after` are None where there is no such object then."""

    title: str
    about: str
    has_committed: bool = False
    before: Json | None = None
    after: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event that the product posts about an object."""

    about: str
    type: str
    reason: str
    message: str


@dataclass
class Step:
    """What people did, and what the product wrote and reported then, each in its order."""

    title: str
    writes: list[Json] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Log:
    """Takes down the steps of one story. `writer` names who writes, where there is more than one."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.names = Names()
        self._last: dict[Key, Json] = {}

    def begin(self, title: str) -> None:
        """Begin the next step."""
        self.steps.append(Step(title=title))

    def listen(self, memory: Memory) -> None:
        """Hear of all commits from here on."""
        for key, obj in memory.objects.items():
            self._learn(key, obj)
        if self._hear not in memory.listeners:
            # Before the others: a listener may cause the next change.
            memory.listeners.insert(0, self._hear)

    def _learn(self, key: Key, obj: Json) -> None:
        self._last[key] = copy_json(obj)
        self.names.learn(obj["metadata"]["uid"], title_of(key))

    def _hear(self, change: Change) -> None:
        key = change.key
        call, before = _CALL.get(), self._last.pop(key, None)
        if change.obj is not None:
            self._learn(key, change.obj)
        if call is not None:
            call.has_committed, call.before, call.after = True, before, self._last.get(key)

    async def note(self, title: str, about: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Take down a call about an object, after it returned or failed."""
        call = Call(title=title, about=about)
        token = _CALL.set(call)
        problem = ""
        try:
            return await work()
        except ApiError as error:
            problem = f" -> {error.status or type(error).__name__}"
            raise
        finally:
            _CALL.reset(token)
            self._take(call, problem)

    def _take(self, call: Call, problem: str) -> None:
        step = self.steps[-1]
        if not call.has_committed:
            step.writes.append({call.title + (problem or " -> nothing to change"): None})
            return
        if call.after is None and not call.title.endswith(f"delete {call.about}"):
            problem += " -> gone, with its last finalizer"
        shown = changes(call.before, call.after, self.names)
        is_change = call.before is not None and call.after is not None
        unseen = "only texts, or versions that were read" if is_change else None
        step.writes.append({call.title + problem: shown or unseen})
        old = texts_of(call.before or {}, self.names)
        for name, text in texts_of(call.after or {}, self.names).items():
            if old.get(name) != text:
                step.texts.append(f"{call.about} {name}: {text}")

    def record(self, about: Any, kind: Any, reason: str, message: str) -> None:
        """Take down an event, as the product's recorder of events is told it."""
        self.take_event(
            Event(
                about=f"{about.kind} {'/'.join(part for part in (about.namespace, about.name) if part)}",
                type=str(kind),
                reason=reason,
                message=message,
            )
        )

    def take_event(self, event: Event) -> None:
        """Take down an event."""
        step = self.steps[-1]
        step.events.append(f"{event.type} {event.reason} on {event.about}")
        step.texts.append(f"event {event.reason} on {event.about}: {self.names.clean(event.message)}")


class _Noting:
    """The calls that write, each noted in `log`; `writer` stands before them where there are several."""

    log: Log
    writer: str = ""

    async def _noted(self, verb: str, resource: Any, name: str, namespace: str, part: str, work: Any) -> Any:
        key = (resource.plural, namespace, name)
        title = " ".join(text for text in (self.writer, verb, title_of(key), part) if text)
        return await self.log.note(title, title_of(key), work)

    async def create(self, resource: Any, body: Json, **more: Any) -> Any:
        meta = body["metadata"]
        made = super().create  # type: ignore[misc]
        return await self._noted(
            "create",
            resource,
            meta["name"],
            meta.get("namespace") or "",
            "",
            lambda: made(resource, body, **more),
        )

    async def replace(self, resource: Any, body: Json, **more: Any) -> Any:
        meta = body["metadata"]
        made = super().replace  # type: ignore[misc]
        return await self._noted(
            "replace",
            resource,
            meta["name"],
            meta.get("namespace") or "",
            more.get("subresource") or "",
            lambda: made(resource, body, **more),
        )

    async def merge_patch(self, resource: Any, name: str, patch: Json, **more: Any) -> Any:
        made = super().merge_patch  # type: ignore[misc]
        return await self._noted(
            "patch",
            resource,
            name,
            more.get("namespace") or "",
            more.get("subresource") or "",
            lambda: made(resource, name, patch, **more),
        )

    async def delete(self, resource: Any, name: str, **more: Any) -> Any:
        made = super().delete  # type: ignore[misc]
        return await self._noted(
            "delete", resource, name, more.get("namespace") or "", "", lambda: made(resource, name, **more)
        )


class NotingClient(_Noting, PromptClient):
    """The in-memory operator's client, with a log."""


class NotingLoop(_Noting, Loop):
    """The in-memory provider's client, with a log."""
