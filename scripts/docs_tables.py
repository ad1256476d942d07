"""Compare the tables of docs/ that are made from the code, the CRDs and the chart with what those have now.

    python -m scripts.docs_tables            one line for each table that differs; fails if there is any
    python -m scripts.docs_tables --update   write the tables into the pages

A table stands in a page between the lines `<!-- begin generated: NAME -->` and `<!-- end generated: NAME -->`. What a
cell says comes from the descriptions of the CRDs and of values.schema.json, the help of metrics and commands, and
scripts/docs_tables.toml for what none of these describes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import click
import yaml
from tests.matrix.results import read_results

from fipop.cli.main import main as program
from fipop.errors import PoolSyntaxError
from fipop.ipam.pool import parse_pool
from fipop.metrics.samples import GuestEvent
from fipop.metrics.services import PoolSample, ServiceMetrics, ServiceSnapshot
from fipop.settings.options import DEFAULTS, settings_data
from localfleet.assets import Assets
from tests.unit.metrics.samples import Fleet

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROWS = ROOT / "scripts" / "docs_tables.toml"
UPDATE = "python -m scripts.docs_tables --update"
NO_MAXIMUM = 2_147_483_647
"""A largest number that no reader needs to know."""
LONGEST_DEFAULT = 120
"""A default with more characters is left to values.yaml."""
READING_COMMANDS = ("status", "who", "history", "free", "check", "adopt")
_MARK = re.compile(
    r"(?P<begin>^<!-- begin generated: (?P<name>[\w-]+) -->\n)"
    r"(?P<body>.*?)(?P<end>^<!-- end generated: (?P=name) -->$)",
    re.MULTILINE | re.DOTALL,
)
_ALERT = re.compile(
    r"^ *- alert: (?P<name>\w+)\n.*?^ *for: (?P<after>\w+)\n.*?^ *severity: (?P<severity>\w+)$",
    re.MULTILINE | re.DOTALL,
)

Json: TypeAlias = Mapping[str, Any]


class TableError(Exception):
    """A page asks for a table that cannot be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a schema; `path` has dots between names."""

    path: str
    schema: Json


def build_tables() -> dict[str, str]:
    """Return the text of each table by its name."""
    tables = {
        "options": _options(),
        "option-chart-values": _option_chart_values(),
        "helm-values": _helm_values(),
        "alerts": _alerts(),
        "pool-errors": _pool_errors(),
        "commands": _commands(),
        "common-options": _option_table("", _common_options()),
        "kubernetes": _kubernetes(),
        **_metrics(),
        **_rows(),
    }
    for kind in _crds():
        tables |= _api(kind)
    for name in program.list_commands(click.Context(program)):
        own = [each for each in _options_of(name) if each.opts not in [one.opts for one in _common_options()]]
        tables[f"command-{name}"] = _option_table(
            name, own if name in READING_COMMANDS else _options_of(name)
        )
    return tables


def replace_tables(text: str, tables: Mapping[str, str]) -> str:
    """Return a page with its tables as they are in `tables`. Raises TableError for an unknown name."""

    def replace(found: re.Match[str]) -> str:
        if found["name"] not in tables:
            raise TableError(f'there is no table "{found["name"]}"')
        return f"{found['begin']}\n{tables[found['name']]}\n\n{found['end']}"

    return _MARK.sub(replace, text)


def names_of(text: str) -> list[str]:
    """Return the names of the tables that a page has."""
    return [each["name"] for each in _MARK.finditer(text)]


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        re.sub(r"  +", " ", f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |")
        for row in lines
    )


def describe_type(schema: Json, definitions: Json) -> str:
    """Return in words which values a JSON schema allows."""
    schema = _resolve(schema, definitions)
    if "x-type" in schema:
        return str(schema["x-type"])
    if "enum" in schema:
        return ", ".join(
            f"`{json.dumps(each) if isinstance(each, bool) else each}`" for each in _once(schema["enum"])
        )
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        return _describe_union(schema, kind)
    if kind == "integer":
        return f"integer{_describe_bounds(schema)}"
    if kind == "array":
        return f"list of {_describe_items(schema.get('items', {}), definitions)}"
    if kind == "object" and schema.get("additionalProperties") not in (None, False):
        return "map"
    return {"string": _describe_text(schema)}.get(kind, kind)


def _once(values: Sequence[Any]) -> list[Any]:
    """Leave out texts that mean the same as a boolean."""
    return [each for each in values if each not in ("true", "false") or True not in values]


def _resolve(schema: Json, definitions: Json) -> Json:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    name = reference.rpartition("/")[2]
    words = _data()["types"]
    found = _resolve(definitions[name], definitions)
    return {**found, "x-type": words[name]} if name in words else found


def _describe_union(schema: Json, kinds: Sequence[str]) -> str:
    if "object" in kinds:
        return "YAML"
    if "%" in schema.get("pattern", ""):
        return "number or percentage"
    return f"integer{_describe_bounds(schema)}"


def _describe_bounds(schema: Json) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None and most < NO_MAXIMUM:
        return f", {least} to {most}"
    return f", at least {least}" if least is not None else ""


def _describe_items(schema: Json, definitions: Json) -> str:
    found = describe_type(schema, definitions)
    return f"{found}s" if re.fullmatch(r"[\w ]+", found) else found


def _describe_text(schema: Json) -> str:
    if schema.get("format") == "date-time":
        return "time"
    if "sha256" in schema.get("pattern", ""):
        return "digest"
    return "string"


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(ROWS.read_text(encoding="utf-8"))


@cache
def _values_schema() -> Json:
    found: Json = json.loads((ROOT / "values.schema.json").read_text(encoding="utf-8"))
    return found


@cache
def _values() -> Json:
    found: Json = yaml.safe_load((ROOT / "values.yaml").read_text(encoding="utf-8"))
    return found


@cache
def _crds() -> dict[str, Json]:
    found = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "crds").iterdir()))
    return {crd["spec"]["names"]["kind"]: crd for crd in found}


# Options and chart values


def _options() -> str:
    schema = _values_schema()
    settings = schema["properties"]["settings"]["properties"]
    rows = []
    for name, default in settings_data(DEFAULTS).items():
        is_long = name.endswith("Values")
        shown = "see below" if is_long else f"`{default}`" if default else "none"
        kind = describe_type(settings[name], schema["definitions"])
        rows.append((f"`{name}`", kind, shown, settings[name]["description"]))
    return render_table(("Option", "Type", "Default", "Description"), rows)


def _option_chart_values() -> str:
    values = {name: text for name, text in settings_data(DEFAULTS).items() if name.endswith("Values")}
    return "\n\n".join(f"```yaml\n# {name}\n{text.rstrip()}\n```" for name, text in values.items())


def _helm_values() -> str:
    schema = _values_schema()
    rows = []
    for field in _value_fields(schema["properties"], ""):
        if "description" not in field.schema:
            raise TableError(f"values.schema.json does not describe {field.path}")
        default = "see below" if field.path == "settings" else _show_default(_value_at(field.path))
        kind = describe_type(field.schema, schema["definitions"])
        rows.append((f"`{field.path}`", kind, default, field.schema["description"]))
    return render_table(("Value", "Type", "Default", "Description"), rows)


def _value_fields(properties: Json, prefix: str) -> Iterator[Field]:
    for name, schema in properties.items():
        path = f"{prefix}{name}"
        if "properties" in schema and path != "settings":
            yield from _value_fields(schema["properties"], f"{path}.")
        else:
            yield Field(path=path, schema=schema)


def _value_at(path: str) -> Any:
    found: Any = _values()
    for name in path.split("."):
        found = found[name]
    return found


def _show_default(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, str | bool) else _in_one_line(value)
    if isinstance(value, str) and value:
        text = value
    return f"`{text}`" if len(text) <= LONGEST_DEFAULT else "see `values.yaml`"


def _in_one_line(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _kubernetes() -> str:
    """Return the versions of Kubernetes that tests run on: the recorded ones, and the one of `make test`."""
    header = ("Kubernetes", "Tests", "Passed", "Failed", "Skipped", "Date", "Built with")
    rows = [
        (
            each.kubernetes,
            "`make matrix`",
            str(each.passed),
            str(each.failed),
            str(each.skipped),
            each.date,
            f"Go {each.go}",
        )
        for each in read_results()
    ]
    listings = Assets(environment={}).listings()
    (usual,) = (each.version.removeprefix("v") for each in listings if each.name == "kube-apiserver")
    rows.append((usual, "`make test`", "–", "–", "–", "each change", "–"))
    return render_table(header, sorted(rows, key=lambda row: [int(part) for part in row[0].split(".")]))


# Objects and pools


def _api(kind: str) -> dict[str, str]:
    crd = _crds()[kind]
    [version] = crd["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    tables = {}
    for part in ("spec", "status"):
        if part in properties:
            fields = list(_api_fields(properties[part], ""))
            tables[f"{kind}-{part}"] = _field_table(kind, part, fields)
            if part == "spec":
                tables[f"{kind}-rules"] = _rule_table(version["schema"]["openAPIV3Schema"], fields)
    rows = [
        (each["name"].upper(), f"`{each['jsonPath']}`", "`-o wide`" if each.get("priority") else "always")
        for each in version["additionalPrinterColumns"]
    ]
    tables[f"{kind}-columns"] = render_table(("Column", "Field", "Shown"), rows)
    return tables


def _api_fields(schema: Json, prefix: str) -> Iterator[Field]:
    for name, child in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield Field(path=path, schema=child)
        if name not in ("conditions", "ipv4", "ipv6"):
            yield from _api_fields(child, f"{path}.")
            yield from _api_fields(child.get("items", {}), f"{path}[].")


def _field_table(kind: str, part: str, fields: Sequence[Field]) -> str:
    has_defaults = part == "spec" and kind != "FloatingIPReservation"
    rows = []
    for each in fields:
        told = _describe_field(f"{kind}.{part}.{each.path}", each.schema)
        default = _show_default(each.schema["default"]) if "default" in each.schema else "none"
        cells = [
            f"`{each.path}`",
            _describe_api_type(each.schema),
            *([default] if has_defaults else []),
            told,
        ]
        rows.append(cells)
    return render_table(("Field", "Type", *(["Default"] if has_defaults else []), "Description"), rows)


def _describe_field(path: str, schema: Json) -> str:
    told = schema.get("description") or _data()["fields"].get(path)
    if told is None:
        raise TableError(f"neither the CRD nor {ROWS.name} describes {path}")
    return str(told).strip()


def _describe_api_type(schema: Json) -> str:
    words = describe_type(schema, {})
    if "maxItems" in schema:
        words += f", at most {schema['maxItems']}"
    if "maxLength" in schema and "enum" not in schema:
        words += f", at most {schema['maxLength']} characters"
    return words


def _rule_table(root: Json, fields: Sequence[Field]) -> str:
    """Return the rules of the API server that a message explains, by field."""
    named = [("the object", root), ("`spec`", root["properties"]["spec"])]
    for each in fields:
        named += [(f"`{each.path}`", each.schema), (f"`{each.path}[]`", each.schema.get("items", {}))]
    rows = [
        (name, " ".join(rule["message"].split()))
        for name, schema in named
        for rule in schema.get("x-kubernetes-validations", ())
    ]
    return render_table(("Field", "Rule"), rows)


def _pool_errors() -> str:
    rows = []
    for text in _data()["pools"]["wrong"]:
        try:
            parse_pool(text)
        except PoolSyntaxError as error:
            rows.append((f"`{text}`", str(error)))
        else:
            raise TableError(f"the pool {text} has no error")
    return render_table(("pool", "message"), rows)


# Metrics and alerts


def _metrics() -> dict[str, str]:
    operator = _show_metrics(_render_operator_metrics())
    is_legacy = [row[0].startswith("`kubefipoperator_") for row in operator]
    header = ("Metric", "Type", "Labels", "Description")
    return {
        "metrics-legacy": render_table(
            header, [row for row, old in zip(operator, is_legacy, strict=True) if old]
        ),
        "metrics-operator": render_table(
            header, [row for row, old in zip(operator, is_legacy, strict=True) if not old]
        ),
        "metrics-provider": render_table(header, _show_metrics(_render_provider_metrics())),
    }


def _render_operator_metrics() -> str:
    """Return a scrape with at least one sample of each metric."""
    metrics = Fleet().metrics
    metrics.count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, success=True)
    metrics.observe_queue_wait("objects", 1.0)
    metrics.observe_reconcile("FloatingIP", 1.0, success=False)
    metrics.observe_pass(1.0, success=True)
    metrics.observe_api_request("management", "get", 200, 1.0)
    metrics.count_allocation("allocated")
    metrics.count_release("freed")
    metrics.count_helm_run("upgrade", success=True)
    return metrics.render().decode()


def _render_provider_metrics() -> str:
    pool = PoolSample(key="cidr-global", family="IPv4", total=2, used=1)
    metrics = ServiceMetrics(lambda: ServiceSnapshot(leading=True, pools=(pool,)), version="0")
    metrics.count_assignment("assigned")
    metrics.observe_assignment(1.0)
    metrics.count_request("get", 200)
    return metrics.prepare()().decode()


def _show_metrics(scrape: str) -> list[tuple[str, str, str, str]]:
    """Return a row for each metric of ours in a scrape, in alphabetical order."""
    told = dict(re.findall(r"^# HELP ((?:kube)?fip\w+) (.+)$", scrape, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE ((?:kube)?fip\w+) (\w+)$", scrape, re.MULTILINE))
    labels: dict[str, dict[str, None]] = {}
    for name, shown in re.findall(r"^((?:kube)?fip\w+)(?:\{(.*)\})? ", scrape, re.MULTILINE):
        family = name if name in kinds else re.sub(r"_(bucket|sum|count)$", "", name)
        labels.setdefault(family, {}).update(dict.fromkeys(re.findall(r'(\w+)="', shown)))
    return [
        (
            f"`{name}`",
            kinds[name],
            ", ".join(f"`{each}`" for each in labels.get(name, {}) if each != "le") or "none",
            told[name],
        )
        for name in sorted(kinds)
    ]


def _alerts() -> str:
    text = (ROOT / "files" / "alerts.yaml").read_text(encoding="utf-8")
    rows = [
        (f"[{each['name']}](#{each['name'].lower()})", each["severity"], each["after"])
        for each in _ALERT.finditer(text)
    ]
    return render_table(("Alert", "Severity", "Fires after"), rows)


# Commands


def _command(name: str) -> click.Command:
    found = program.get_command(click.Context(program), name)
    assert found is not None
    return found


def _commands() -> str:
    rows = []
    for name in program.list_commands(click.Context(program)):
        command = _command(name)
        arguments = [
            each.make_metavar(click.Context(command)) for each in command.params if not _is_option(each)
        ]
        shown = ", ".join(f"`{each}`" for each in arguments) or "none"
        rows.append((f"[fipop {name}](#fipop-{name})", shown, command.get_short_help_str(limit=1000)))
    return render_table(("Command", "Argument", "Description"), rows)


def _is_option(parameter: click.Parameter) -> bool:
    return parameter.param_type_name == "option"


def _options_of(name: str) -> list[click.Option]:
    return [each for each in _command(name).params if isinstance(each, click.Option) and not each.hidden]


def _common_options() -> list[click.Option]:
    """Return the options that all commands that read have."""
    of_others = [[each.opts for each in _options_of(name)] for name in READING_COMMANDS[1:]]
    return [
        each for each in _options_of(READING_COMMANDS[0]) if all(each.opts in others for others in of_others)
    ]


def _option_table(command: str, options: Sequence[click.Option]) -> str:
    rows = []
    for each in options:
        words = _data()["commands"].get(f"{command} {each.opts[-1]}".strip(), {})
        told = each.help or words.get("description")
        if told is None:
            raise TableError(
                f"neither its help nor {ROWS.name} describes the option {each.opts[-1]} of {command}"
            )
        default = words.get("default") or _show_option_default(each)
        names = ", ".join(f"`{name}`" for name in sorted(each.opts, key=len))
        rows.append((names, _describe_option(each), default, " ".join(told.split())))
    return (
        render_table(("Option", "Type", "Default", "Description"), rows) if rows else "No options of its own."
    )


def _show_option_default(option: click.Option) -> str:
    variable = f"the variable `{option.envvar}`" if option.envvar else ""
    if not option.show_default or not isinstance(option.default, str | int | float):
        return variable or "none"
    text = str(option.default).lower() if isinstance(option.default, bool) else f"{option.default}"
    return f"`{text}`, or {variable}" if variable else f"`{text}`"


def _describe_option(option: click.Option) -> str:
    if option.is_flag:
        return "flag"
    if isinstance(option.type, click.Choice):
        return ", ".join(f"`{each}`" for each in option.type.choices)
    if isinstance(option.type, click.IntRange):
        return f"integer{_describe_bounds({'minimum': option.type.min, 'maximum': option.type.max or NO_MAXIMUM})}"
    if isinstance(option.type, click.FloatRange):
        return f"number, at least {option.type.min:g}"
    if isinstance(option.type, click.Path):
        return "file" if option.type.file_okay else "folder"
    words = {"text": "string", "goduration": "duration", "gobool": "boolean"}
    return words.get(option.type.name.replace(" ", ""), option.type.name)


# Rows that only the file of rows has


def _rows() -> dict[str, str]:
    """Return the tables of reasons, events and findings."""
    tables = {}
    for name, table in _data()["tables"].items():
        header, keys = table["header"], table["keys"]
        rows = [(f"`{key}`", *(row.get(each, "") for each in keys)) for key, row in table["rows"].items()]
        tables[name] = render_table(header, rows)
    return tables


def _pages() -> list[Path]:
    return [path for path in sorted(DOCS.rglob("*.md")) if names_of(path.read_text(encoding="utf-8"))]


def find_problems(pages: Sequence[Path], tables: Mapping[str, str], root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each table of a page that differs, and for each table that no page has."""
    found: set[str] = set()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        found.update(names_of(text))
        for name in names_of(text):
            marked = next(each for each in _MARK.finditer(text) if each["name"] == name)
            if name not in tables:
                yield f'{page.relative_to(root)}: there is no table "{name}"'
            elif marked["body"].strip() != tables[name]:
                yield f"{page.relative_to(root)}: the table {name} differs; run: {UPDATE}"
    for name in sorted(set(tables) - found):
        yield f"no page of docs/ has the table {name}"


def main(arguments: Sequence[str]) -> int:
    """Compare or update; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.docs_tables", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--update", action="store_true", help="write the tables into the pages")
    options = parser.parse_args(arguments)
    try:
        tables = build_tables()
        if options.update:
            for page in _pages():
                text = page.read_text(encoding="utf-8")
                page.write_text(replace_tables(text, tables), encoding="utf-8")
        problems = list(find_problems(_pages(), tables))
    except TableError as error:
        problems = [str(error)]
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{len(tables)} tables of docs/ are as the code has them")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
