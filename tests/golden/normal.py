"""YAML as a recording shows it: short, and compared line by line."""

from collections.abc import Iterable
from typing import Any

import yaml

Json = dict[str, Any]

MAX_FLOW = 120
"""Characters of a list or mapping that stands on one line."""


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
