"""Values that values.schema.json allows, chosen to be taken for something else by YAML or by a careless template."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from jsonschema import Draft7Validator

from tests.chart.rendering import ROOT, Object

SCHEMA: Object = json.loads((ROOT / "values.schema.json").read_text())
VALIDATOR = Draft7Validator(SCHEMA)
VALUES: Object = yaml.safe_load((ROOT / "values.yaml").read_text())

TURNS = 8
RELEASES = ("123", "null", "1.5", "true", "1e3", "0x1f", "a.b", "1" + "r" * 52)
NAMESPACES = ("123", "null", "true", "1e3", "n" * 63, "0x1f", "yes", "kube-fip")

_TEXTS = (
    *(
        "123",
        "true",
        "null",
        "1e3",
        "0x1f",
        "1.5",
        "no",
        "1:30",
        "~",
        "2024-01-01",
        "a: b",
        "a #b",
        "{}",
        "- a",
    ),
    *(
        "it's",
        '"',
        "*a",
        "!a",
        "%a",
        "a\nb\n",
        " a ",
        "é",
        "{{ .Values }}",
        "1" * 53,
        "1" * 63,
        "a" * 253,
        "",
    ),
)
"""Texts of any kind; which of them a value may be, its own form in the schema says."""
_OF_A_FORM = (
    *("http://123", "https://[fd00::5]:65535/1%20e3", "https://0x1f.example:1/#", "https://a.example/~"),
    *("oci://123:1/0x1f", "file:///123/1e3.tgz", "1.0.0", "0.0.0-0", "v1.2.3+123", "sha256:" + "0" * 64),
    *("1d", "1h30m", "15ms", "96Mi", "0.5", "100m", "10%", "100%", "123,true", "1e3, null", "5000.example/1"),
    *("--resync-seconds=60", "--log-format=text", "--helm=/1e3"),
)
_PASSED_ON = {
    *("affinity", "extraVolumes", "extraVolumeMounts", "tolerations", "topologySpreadConstraints"),
    *("metricsFrom", "webFrom", "egress", "webEgress"),
}
"""Parts of Kubernetes objects, which reach the API server as they are."""
_FIXED: dict[str, list[Any]] = {
    "image.digest": [""],  # it would hide the tag
    "leaderElection": [True],  # only one operator may run without
    "global.imagePullSecrets": [["0x1f", {"name": "1e3"}]],
    "extraEnv": [[{"name": f"A_{number}", "value": text} for number, text in enumerate(_TEXTS)]],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one rendering is made from; `given` has the value that each variable got."""

    release: str
    namespace: str
    given: dict[str, Any]

    @property
    def values(self) -> Object:
        values: Object = {}
        for variable, value in self.given.items():
            put(values, variable, value)
        return values


def turns() -> list[Turn]:
    """Return renderings in which every variable has a value, over all of them those that are misread most easily."""
    choices = {variable: found for variable, form in variables() if (found := _choices(variable, form))}
    return [
        Turn(
            release=RELEASES[turn],
            namespace=NAMESPACES[turn],
            given={variable: found[turn % len(found)] for variable, found in choices.items()},
        )
        for turn in range(TURNS)
    ]


def variables(form: Object = SCHEMA, path: str = "") -> Iterator[tuple[str, Object]]:
    """Iterate over what an administrator can set, with its form; maps of texts and lists are one variable each."""
    for name, each in form["properties"].items():
        variable = f"{path}.{name}".lstrip(".")
        found = SCHEMA["definitions"][each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        if "properties" in found:
            yield from variables(found, variable)
        else:
            yield variable, found


def put(values: Object, variable: str, value: Any) -> None:
    """Set a variable in a tree of values."""
    *parents, name = variable.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
    values[name] = value


def merged(values: Object, over: Object = VALUES) -> Object:
    """Return what helm checks: the chart's own values under those of an installation."""
    found = copy.deepcopy(over)
    for key, value in values.items():
        before = found.get(key)
        found[key] = merged(value, before) if isinstance(value, dict) and isinstance(before, dict) else value
        if value is None:
            del found[key]
    return found


def _choices(variable: str, form: Object) -> list[Any]:
    name = variable.rpartition(".")[2]
    if name in _PASSED_ON:
        return []
    if variable in _FIXED:
        return _FIXED[variable]
    if "enum" in form:
        return list(form["enum"])
    if name in {"limits", "requests"}:
        return [{"cpu": "1", "memory": 268435456, "ephemeral-storage": "1.5Gi"}]
    if name.endswith("ChartValues"):
        return [{"map": {text: text for text in _TEXTS}, "number": 1000000}, 'text: "1e3"\n']
    if name.endswith("Overrides"):
        return [[{"name": "1e3", "clusters": ["yes", "0x1F"]}], "- {name: a, clusterSelector: {}}\n"]
    kinds = form.get("type", "object")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "boolean" in kinds:
        return [True]
    if "object" in kinds:
        return [_map(form)]
    if "array" in kinds:
        return [_list(form["items"])]
    numbers = [form["maximum"], form["minimum"]] if "integer" in kinds else []
    texts = legal_texts(form) if "string" in kinds else []
    # An empty text asks for the default, which is nothing to look for.
    return numbers + ([text for text in texts if text] or texts)


def _map(form: Object) -> Object:
    """Return a map with every legal text as key and as value."""
    keys = [text for text in (*_TEXTS, "example.com/1", "1.2.3.4.5/1e3") if _takes(form, {text: "1"})]
    values = [text for text in _TEXTS if _takes(form, {"a": text})]
    keys += [f"k{number}" for number in range(len(values))]
    return {key: values[number % len(values)] for number, key in enumerate(keys)}


def _list(items: Object) -> list[Any]:
    return legal_texts(items) or [
        {"name": text} for text in legal_texts(SCHEMA["definitions"]["objectName"]) if text
    ]


def legal_texts(form: Object) -> list[str]:
    """Return the texts that are legal for a form."""
    return [text for text in (*_TEXTS, *_OF_A_FORM) if _takes(form, text)]


def _takes(form: Object, value: Any) -> bool:
    return Draft7Validator({"definitions": SCHEMA["definitions"], "allOf": [form]}).is_valid(value)
