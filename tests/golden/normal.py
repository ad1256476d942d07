"""Objects as a recording shows them: no uids and versions, times relative to the start, prose apart from the facts."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

Json = dict[str, Any]

START = datetime(2026, 1, 1, tzinfo=UTC)
"""What the clock of an API server in memory shows first."""
ABSENT = "(absent)"

_TIME = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_UID = re.compile(r"\buid-\d+\b")
_VERSION = re.compile(r'("version":)"\d+"')
_RANDOM = re.compile(r"\b[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}\b")
"""A random UUID without its dashes."""
_TEXTS = ("message",)
_VOLATILE = {
    *(
        "apiVersion",
        "kind",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.resourceVersion",
    ),
    *("metadata.generation", "metadata.managedFields", "metadata.creationTimestamp"),
}
"""What the title of an object says already, or what is the API server's."""
_EMPTY_IS_ABSENT = ("", "data", "spec", "status", "metadata.annotations", "metadata.labels")


@dataclass
class Names:
    """Gives each uid the name of its object, with a number where an object of that name was created again."""

    known: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def learn(self, uid: str, name: str) -> None:
        """Remember whose uid that is."""
        if uid and uid not in self.known:
            number = self._counts[name] = self._counts.get(name, 0) + 1
            self.known[uid] = f"uid of {name}" + (f" #{number}" if number > 1 else "")

    def clean(self, text: str) -> str:
        """Replace uids by names, and times by seconds since the start."""
        text = _UID.sub(lambda found: self.known.get(found[0], "uid of ?"), text)
        text = _TIME.sub(lambda found: relative(found[0]), text)
        text = _RANDOM.sub("(random)", text)
        return _VERSION.sub(r'\1"(as read)"', text)


def relative(time: str) -> str:
    """Return a time as the seconds since the start: `T+600s`; another day than about the start's stays."""
    passed = datetime.fromisoformat(time) - START
    if abs(passed) > timedelta(days=40):
        return time
    return f"T{passed.total_seconds():+g}s"


def flatten(value: Any, names: Names, path: str = "") -> dict[str, Any]:
    """Return what is set in an object by its path; conditions by their type, without their messages."""
    return dict(_flat(value, names, path))


def _flat(value: Any, names: Names, path: str) -> Iterator[tuple[str, Any]]:
    if path == "status.conditions" and isinstance(value, list):
        for each in sorted(value, key=lambda each: str(each["type"])):
            yield f"{path}[{each['type']}]", names.clean(_condition(each))
    elif isinstance(value, Mapping):
        yield from _flat_mapping(value, names, path)
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for number, each in enumerate(value):
            yield from _flat(each, names, f"{path}[{number}]")
    elif isinstance(value, list):
        yield path, "[" + ", ".join(names.clean(str(each)) for each in value) + "]"
    elif isinstance(value, str) and value.startswith('[{"'):
        # The ledger of Services: one line for each tenant of an address.
        for number, each in enumerate(json.loads(value)):
            yield f"{path}[{number}]", names.clean(json.dumps(each, separators=(",", ":")))
    else:
        yield path, names.clean(value) if isinstance(value, str) else value


def _flat_mapping(value: Mapping[str, Any], names: Names, path: str) -> Iterator[tuple[str, Any]]:
    numbers = {key: each for key, each in value.items() if type(each) is int}
    if len(numbers) > 1 and path.startswith("status"):
        yield path, ", ".join(f"{key} {each}" for key, each in sorted(numbers.items()))
        value = {key: each for key, each in value.items() if key not in numbers}
    elif not value and path not in _EMPTY_IS_ABSENT:
        yield path, "{}"
    for key in sorted(value):
        dotted = f"{path}[{key}]" if "." in key or "/" in key else f"{path}.{key}".removeprefix(".")
        if dotted not in _VOLATILE:
            yield from _flat(value[key], names, dotted)


def _condition(condition: Json) -> str:
    # Texts of a condition are recorded apart, and other fields than the known ones are shown as they are.
    known = {"type", "status", "reason", "lastTransitionTime", "observedGeneration", *_TEXTS}
    more = {key: each for key, each in condition.items() if key not in known}
    shown = (
        f"{condition['status']} {condition.get('reason', '-')} since {condition.get('lastTransitionTime')}"
    )
    if "observedGeneration" in condition:
        shown += f" of generation {condition['observedGeneration']}"
    return shown + (f" {json.dumps(more, sort_keys=True)}" if more else "")


def texts_of(value: Json, names: Names) -> dict[str, str]:
    """Return the messages of an object's conditions, by type."""
    conditions = (value.get("status") or {}).get("conditions") or ()
    return {str(each["type"]): names.clean(str(each.get("message", ""))) for each in conditions}


def changes(before: Json | None, after: Json | None, names: Names) -> dict[str, Any]:
    """Return what differs, by path: the value where an object was created, else `before -> after`."""
    old = flatten(before, names) if before is not None else {}
    new = flatten(after, names) if after is not None else {}
    if before is None:
        return new
    if after is None:
        return {}
    return {
        path: f"{_show(old, path)} -> {_show(new, path)}"
        for path in sorted(old | new)
        if old.get(path, ABSENT) != new.get(path, ABSENT)
    }


def _show(values: Mapping[str, Any], path: str) -> str:
    value = values.get(path, ABSENT)
    return '""' if value == "" else str(value)


class _Dumper(yaml.SafeDumper):
    """Writes long texts on one line, and those of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(value: Any, *, sort: bool = False) -> str:
    """Return a value as YAML that a person can read, and diff line by line."""
    made: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=sort, allow_unicode=True, width=10_000, default_flow_style=False
    )
    return made
