"""What some guest clusters get beside the values of all: the entries of a YAML list, each with whom it is for.

The entries that fit a guest cluster are merged over the values of all, in the order of the list, as helm merges values
files: a mapping into a mapping, and anything else replaces what was there. A null deletes a default of the chart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, PlainValidator, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from fipop.api.codec import describe_problem
from fipop.settings.values import (
    ChartDigest,
    ChartVersion,
    EntryName,
    LabelKey,
    LabelValue,
    Names,
)
from fipop.settings.yaml import RefusedError, find_line, parse_yaml

_UNKNOWN = "is not a known field"
Operator: TypeAlias = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class _Fields:
    """The base of a dataclass whose field `chart_version` is `chartVersion` in the YAML, which has no others."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(
        alias_generator=to_camel, extra="forbid", hide_input_in_errors=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement(_Fields):
    """What a selector asks of one label, as the API server reads it."""

    key: LabelKey
    operator: Operator
    values: tuple[LabelValue, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what the API server refuses."""
        if bool(self.values) != (self.operator in ("In", "NotIn")):
            raise RefusedError("must have values with In and NotIn, and none with Exists and DoesNotExist")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels fulfil it. A label that is missing is not in any values."""
        is_found = labels.get(self.key) in self.values if self.values else self.key in labels
        return is_found == (self.operator in ("In", "Exists"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector(_Fields):
    """A selector of labels; an empty one selects everything."""

    match_labels: dict[LabelKey, LabelValue] = field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels fulfil all of it."""
        is_equal = all(labels.get(key) == value for key, value in self.match_labels.items())
        return is_equal and all(each.matches(labels) for each in self.match_expressions)


def _keep_image(values: dict[str, Any]) -> dict[str, Any]:
    """Refuse values that would leave a chart without its image."""
    image = values.get("image", {})
    if not isinstance(image, dict) or image.get("repository", "-") in (None, ""):
        raise RefusedError("must keep the repository of the image")
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Override(_Fields):
    """What some guest clusters get for one chart. All that is given of the first three must fit."""

    name: EntryName
    workspaces: Names = ()
    clusters: Names = ()
    """The names of provisioning Clusters."""
    cluster_selector: Selector | None = None
    chart_version: ChartVersion = ""
    """"" for the version of all."""
    chart_digest: ChartDigest = ""
    values: Annotated[dict[str, Any], AfterValidator(_keep_image)] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse an entry that names no guest clusters, and a digest without a version."""
        if not (self.workspaces or self.clusters or self.cluster_selector):
            raise RefusedError("must have workspaces, clusters or clusterSelector")
        if self.chart_digest and not self.chart_version:
            raise RefusedError("must have a chartVersion beside chartDigest")

    def fits(self, workspace: str, cluster: str, labels: Mapping[str, str]) -> bool:
        """Return whether it is for a guest cluster, by its provisioning Cluster's namespace, name and labels."""
        return (
            (not self.workspaces or workspace in self.workspaces)
            and (not self.clusters or cluster in self.clusters)
            and (self.cluster_selector is None or self.cluster_selector.matches(labels))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The overrides for a chart: their text and the entries. No repr shows them: they can have secrets."""

    text: str = field(default="", repr=False)
    entries: tuple[Override, ...] = field(default=(), repr=False, compare=False)


_LEVELS = {1: Override, 2: Selector, 4: Requirement}
"""Whose fields have so many steps from their entry."""
ENTRIES = TypeAdapter(tuple[Override, ...])
"""Reads and writes entries as JSON."""


def parse_overrides(text: str) -> Overrides:
    """Read the overrides for a chart, at most 64 KiB. Raises RefusedError, which names an entry and its line."""
    parsed = parse_yaml(text)
    found = parsed if isinstance(parsed, list) else []
    if parsed is not None and found is not parsed:
        raise RefusedError("must be a YAML list")
    try:
        entries = ENTRIES.validate_python(found)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise RefusedError(_describe(text, found, first["loc"], first["msg"])) from None
    known: set[str] = set()
    for number, each in enumerate(entries):
        if each.name in known:
            raise RefusedError(_describe(text, found, (number, "name"), "must be unique"))
        known.add(each.name)
    return Overrides(text=text, entries=entries)


OverridesText = Annotated[Overrides, PlainValidator(parse_overrides)]


def merge_values(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return two sets of values as helm merges two values files, the second one over the first one."""
    merged = dict(below)
    for key, value in above.items():
        former = merged.get(key)
        if isinstance(former, Mapping) and isinstance(value, Mapping):
            merged[key] = merge_values(former, value)
        else:
            merged[key] = value
    return merged


def _describe(text: str, found: list[Any], place: tuple[int | str, ...], problem: str) -> str:
    """Return which entry is wrong, where and why, without a value: it can be a secret."""
    number, *fields = place
    entry = found[int(number)]
    name = entry.get("name") if isinstance(entry, dict) else None
    shown = f'"{name[:63]}"' if isinstance(name, str) and name.isprintable() else str(int(number) + 1)
    # pydantic names a key of a mapping by one step more.
    where = ".".join(str(each) for each in fields if each != "[key]")
    what = f"{where} {_say(problem)}".strip()
    if what.endswith(_UNKNOWN) and (level := _LEVELS.get(len(fields))):
        what += ": use " + ", ".join(to_camel(each.name) for each in dataclass_fields(level))
    return f"must have only valid entries: entry {shown}, line {find_line(text, place)}: {what}"


def _say(problem: str) -> str:
    text = describe_problem(problem).replace("Unexpected keyword argument", _UNKNOWN)
    return re.sub("be a (valid )?dictionary.*", "be a mapping", text).replace("be a valid tuple", "be a list")
