"""A story of the operator over the fleet in memory: what users do step by step, and what they find after it.

How often and in which order the operator writes and reads is not recorded: only what is there when it has settled.
"""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.golden.normal import Json, clean, shown, to_yaml
from tests.harness.api_in_memory import Key
from tests.harness.fleet import Fleet
from tests.harness.virtual_time import run_virtually

Tell = Callable[["FleetStory"], Coroutine[Any, Any, None]]

KINDS = {
    "floatingipranges": "FloatingIPRange",
    "floatingipreservations": "FloatingIPReservation",
    "floatingips": "FloatingIP",
}


@dataclass
class _Step:
    """What users do, what they find then, and which events were reported meanwhile."""

    title: str
    then: list[str] = field(default_factory=list)
    events: set[str] = field(default_factory=set)


class FleetStory:
    """What a story uses: `step` says what users do next, `fleet` is what they do it to."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self._steps: list[_Step] = []
        self._seen: dict[str, str] = {}
        self._heard = 0

    def step(self, title: str) -> None:
        """End the step before, and begin the next one."""
        self._end_step()
        self._steps.append(_Step(title))

    def _end_step(self) -> None:
        commits = self.fleet.memory.commits
        if self._steps:
            objects = self.fleet.memory.objects
            now = {_title_of(key): line for key, obj in objects.items() if (line := _line_of(key, obj))}
            changed = {title: line for title, line in now.items() if self._seen.get(title) != line}
            gone = {title: "gone" for title in self._seen if title not in now}
            self._steps[-1].then = [f"{title}: {line}" for title, line in sorted((changed | gone).items())]
            self._seen = now
            for each in commits[self._heard :]:
                if each.key[0] == "events" and each.obj is not None:
                    self._steps[-1].events.add(_event(each.obj))
        self._heard = len(commits)

    def recorded(self, promise: str) -> str:
        """Return the steps with what users see after each, and all objects in the end."""
        self._end_step()
        end = {
            _title_of(key): clean(shown(key[0], obj))
            for key, obj in sorted(self.fleet.memory.objects.items())
            if key[0] in KINDS
        } | {
            f"ConfigMap of guest {guest_id}": data
            for guest_id, guest in sorted(self.fleet.guests.items())
            if (data := guest.config_map)
        }
        return to_yaml({"promise": promise, "steps": [_show(each) for each in self._steps], "end": end})


def _show(step: _Step) -> Json:
    """Return a step as it is recorded."""
    found: Json = {"step": step.title}
    if step.then:
        found["then"] = step.then
    if step.events:
        found["events"] = sorted(step.events)
    return found


def _title_of(key: Key) -> str:
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


def _event(obj: dict[str, Any]) -> str:
    about = obj.get("regarding") or obj["involvedObject"]
    name = "/".join(part for part in (about.get("namespace"), about["name"]) if part)
    text = obj.get("note") or obj.get("message") or ""
    made: str = clean(f"{obj['type']} {obj['reason']} of {about['kind']} {name}: {text}")
    return made


def tell_operator(scenario: Tell) -> str:
    """Run a story in virtual time; return what is recorded of it."""

    async def run() -> str:
        story = FleetStory()
        await scenario(story)
        return story.recorded((inspect.getdoc(scenario) or "").splitlines()[0])

    return run_virtually(run())
