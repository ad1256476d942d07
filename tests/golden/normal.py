"""Values as a recording shows them: no uids, versions and times, and YAML that is short and compared line by line."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

Json = dict[str, Any]

MAX_FLOW = 120
"""Characters of a list or mapping that stands on one line."""
_TIME = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_METADATA = ("annotations", "finalizers", "labels")
"""What of the metadata is recorded: the title of an object has its name."""
_MOVING = {"digest", "lastTransitionTime", "observedGeneration", "releasedAt", "since", "uid"}


def clean(value: Any) -> Any:
    """Return a value with `(time)` in place of each time."""
    if isinstance(value, Mapping):
        return {key: clean(each) for key, each in value.items()}
    if isinstance(value, list):
        return [clean(each) for each in value]
    return _TIME.sub("(time)", value) if isinstance(value, str) else value


def shown(plural: str, obj: Json) -> Json:
    """Return what users see of an object: conditions by their type, and no spec of a range, which is the user's."""
    metadata = {key: obj["metadata"][key] for key in _METADATA if obj["metadata"].get(key)}
    spec = {} if plural == "floatingipranges" else _without_moving(obj.get("spec"))
    status = _without_moving(obj.get("status"))
    if "conditions" in status:
        status["conditions"] = _conditions(status["conditions"])
    found = {"metadata": metadata, "data": obj.get("data"), "spec": spec, "status": status}
    return {key: each for key, each in found.items() if each}


def _without_moving(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_moving(each) for key, each in sorted(value.items()) if key not in _MOVING}
    if isinstance(value, list):
        return [_without_moving(each) for each in value]
    return value if value is not None else {}


def _conditions(conditions: list[Json]) -> Json:
    """Return the conditions by their type; a message that several have stands at the first."""
    found: Json = {}
    seen = {""}
    for each in conditions:
        message = each.get("message", "")
        found[each["type"]] = f"{each['status']} {each.get('reason', '-')}"
        if message not in seen:
            found[each["type"]] += f": {message}"
        seen.add(message)
    return found


class _Dumper(yaml.SafeDumper):
    """Writes long texts on one line, those of several lines as blocks, and short lists and mappings on one line."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        node.flow_style = _fits(part for pair in node.value for part in pair)
        return node

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        node = super().represent_sequence(tag, sequence, flow_style)
        node.flow_style = _fits(node.value)
        return node


def _fits(nodes: Iterable[yaml.Node]) -> bool:
    widths = [_width(node) for node in nodes]
    return None not in widths and sum(each or 0 for each in widths) <= MAX_FLOW


def _width(node: yaml.Node) -> int | None:
    """Return how many characters a value takes on one line; None if it takes several lines."""
    if isinstance(node, yaml.ScalarNode):
        return None if "\n" in node.value else len(node.value) + 2
    if not node.flow_style:
        return None
    parts = [part for each in node.value for part in (each if isinstance(each, tuple) else (each,))]
    return sum(_width(part) or 0 for part in parts) + 2


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(value: Any, *, sort: bool = False) -> str:
    """Return a value as YAML."""
    made: str = yaml.dump(value, Dumper=_Dumper, sort_keys=sort, allow_unicode=True, width=10_000)
    return made
