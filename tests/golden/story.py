"""A story of the in-memory operator: what users do step by step, and what they find after it.

How often and in which order the product writes and reads is not recorded: only what is there when it has come to rest.
"""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.golden.normal import Json, clean, shown, to_yaml
from tests.harness.memory import Key, Memory
from tests.harness.small_operator import SmallOperator

Tell = Callable[["Story"], Coroutine[Any, Any, None]]

KINDS = {
    "floatingipranges": "FloatingIPRange",
    "floatingipreservations": "FloatingIPReservation",
    "floatingips": "FloatingIP",
}


@dataclass
class _Step:
    title: str
    then: list[str] = field(default_factory=list)
    events: set[str] = field(default_factory=set)


class Story:
    """What a scenario uses: `step` says what users do next; operators are made here."""

    def __init__(self) -> None:
        self.memory = Memory()
        self._steps: list[_Step] = []
        self._seen: dict[str, str] = {}
        self._guests: dict[str, str] = {}

    def step(self, title: str) -> None:
        """End the step before, and begin the next one."""
        self._end_step()
        self._steps.append(_Step(title))

    def operator(self, former: SmallOperator | None = None) -> SmallOperator:
        """Make an operator; one with a `former` one finds what that stored, as after a restart."""
        made = SmallOperator(former, record_event=self._record)
        if former is not None:
            made.configuration.annotations = former.configuration.annotations
        made.configuration.on_complaint = self._complain
        self.memory, self._guests = made.memory, made.carried.config_maps
        return made

    def _record(self, about: Any, kind: Any, reason: str, message: str) -> None:
        name = "/".join(part for part in (about.namespace, about.name) if part)
        self._take_event(f"{kind} {reason} of {about.kind} {name}: {message}")

    def _complain(self, reason: str, message: str) -> None:
        self._take_event(f"Warning {reason} of ConfigMap kube-fip-config: {message}")

    def _take_event(self, text: str) -> None:
        self._steps[-1].events.add(clean(text))

    # What is recorded

    def _end_step(self) -> None:
        if not self._steps:
            return
        now = {
            title_of(key): line for key, obj in self.memory.objects.items() if (line := _line_of(key, obj))
        }
        changed = {title: line for title, line in now.items() if self._seen.get(title) != line}
        gone = {title: "gone" for title in self._seen if title not in now}
        self._steps[-1].then = [f"{title}: {line}" for title, line in sorted((changed | gone).items())]
        self._seen = now

    def objects(self, *plurals: str) -> Json:
        """Return the objects of these kinds as they are now."""
        return {
            title_of(key): clean(shown(key[0], obj))
            for key, obj in sorted(self.memory.objects.items())
            if key[0] in plurals
        }

    def recorded(self, promise: str) -> str:
        """Return the steps with what users see after each, and all objects in the end."""
        self._end_step()
        end = self.objects(*KINDS) | {
            f"ConfigMap of guest {guest_id}": {"cidr-global": text}
            for guest_id, text in sorted(self._guests.items())
        }
        return to_yaml({"promise": promise, "steps": [_show(each) for each in self._steps], "end": end})


def _show(step: _Step) -> Json:
    found: Json = {"step": step.title}
    if step.then:
        found["then"] = step.then
    if step.events:
        found["events"] = sorted(step.events)
    return found


def title_of(key: Key) -> str:
    """Return how a recording calls an object: `FloatingIP c-m-a/web`."""
    return f"{KINDS.get(key[0], key[0])} {'/'.join(part for part in key[1:] if part)}"


def _line_of(key: Key, obj: Json) -> str:
    """Return what a user sees of an object first; empty for kinds that are not recorded."""
    if key[0] not in KINDS:
        return ""
    status = obj.get("status") or {}
    if key[0] == "floatingipreservations":
        return "in quarantine" if obj["spec"].get("quarantinedUntil") else "held"
    ready = (each for each in status.get("conditions", ()) if each["type"] == "Ready")
    states = [f"Ready {each['status']} {each['reason']}" for each in ready]
    return ", ".join([*status.get("addresses", ()), *states]) or "no status"


async def tell(scenario: Tell) -> str:
    """Run a scenario; return what is recorded of it."""
    story = Story()
    await scenario(story)
    return story.recorded((inspect.getdoc(scenario) or "").splitlines()[0])
