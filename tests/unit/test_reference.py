"""Every option, chart value, metric, reason, annotation and flag is on its page of docs/reference, and no other."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fipop.api import names, service
from fipop.cli.main import main
from fipop.cloudprovider import keepalived, needs
from fipop.cloudprovider.cluster import PoolSample
from fipop.cloudprovider.metrics import (
    API_REQUESTS,
    ASSIGNMENTS,
    REGISTRY,
    ServiceSnapshot,
    render_services,
)
from fipop.metrics import counters
from fipop.metrics.gauges import Gauges, build_registry
from fipop.rancher.matching import NoRange
from fipop.settings.options import DEFAULTS, settings_data
from tests.unit.metrics.samples import Scraped

ROOT = Path(__file__).parents[2]
SOURCES = {path: path.read_text() for path in (ROOT / "fipop").rglob("*.py")}
CODE = "\n".join(SOURCES.values())
READING = {"adopt", "check", "free", "status", "values", "who"}
REPORTING = {"complain", "record", "warn", "_warn", "_refuse", "unreachable", "describe_problem"}
ROOMS = "operator|addresses|guests|rollout|helm|cloudprovider"
REPORTERS = rf"fipop/(({ROOMS})/.*|runtime/configuration|errors)\.py$"


def listed(page: str, *headings: str) -> set[str]:
    """Return the code in the first cells of a page's tables, those of some sections or all."""
    sections = re.split(r"^## ", (ROOT / f"docs/reference/{page}.md").read_text(), flags=re.MULTILINE)
    chosen = [each for each in sections if not headings or each.partition("\n")[0] in headings]
    cells = re.findall(r"^\| ([^|]+) \|", "\n".join(chosen), re.MULTILINE)
    return {name.replace("…", names.GROUP) for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def chart_values(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, part in schema["properties"].items():
        is_map = "properties" in part and name != "settings"
        yield from chart_values(part, f"{prefix}{name}.") if is_map else [prefix + name]


def metrics() -> Iterator[tuple[str, str, frozenset[str], str]]:
    """Yield name, type, labels and help of each metric of both roles, once something was counted."""
    fleet = Scraped()
    counters.count_guest_event("demo", "harv1", counters.GuestEvent.API_CONNECTION, success=True)
    counters.observe_api_request("management", "get", 200, 0.1)
    for timed in (counters.QUEUE_WAIT_SECONDS, counters.RECONCILE_SECONDS, counters.VISIT_SECONDS):
        timed.labels("x").observe(0.1)
    for counted in (counters.RECONCILE_ERRORS, counters.ALLOCATIONS, counters.RELEASES, ASSIGNMENTS):
        counted.labels("x").inc()
    for counted in (counters.HELM_RUNS, API_REQUESTS):
        counted.labels("x", "y").inc()
    pool = PoolSample(key="cidr-shop", family="IPv4", total=9, used=4)
    snapshot = ServiceSnapshot(leading=True, pools=(pool,))
    provider = generate_latest(build_registry(REGISTRY, Gauges(lambda: render_services(snapshot)))).decode()
    for text in (fleet.render(), provider):
        for each in text_string_to_metric_families(text):
            name = f"{each.name}_total" if each.type == "counter" else each.name
            labels = frozenset(label for sample in each.samples for label in sample.labels) - {"le"}
            if not name.startswith(("process_", "python_")):
                yield name, each.type, labels, each.documentation


def annotations() -> set[str]:
    own = {
        f"{names.GROUP}/{each}"
        for each in re.findall(r'^[A-Z_]+ = f"\{.*GROUP\}/([a-z-]+)"', CODE, re.MULTILINE)
    }
    policy = re.findall(rf"{names.GROUP}/[a-z-]+", (ROOT / "templates/admission-policy.yaml").read_text())
    kept = {value for name, value in vars(names).items() if name.startswith(("ANNOTATION_", "LABEL_"))}
    of_services = {service.ADDRESSES, needs.INTERFACE, service.FORWARD_METHOD, needs.LEGACY_LABEL}
    of_services |= {service.FINALIZER, f"{service.IMPLEMENTATION}={service.KUBE_VIP}", service.IGNORE}
    of_services |= {service.VIP_HOST, service.LEASE_NAME, service.WITHOUT_ENDPOINTS}
    return own | kept | set(policy) | of_services | {keepalived.PLAN}


def flags(name: str) -> set[str]:
    command = main.get_command(click.Context(main), name)
    options = command.params if command is not None else []
    found = {
        flag for each in options if isinstance(each, click.Option) and not each.hidden for flag in each.opts
    }
    parts = command.commands.values() if isinstance(command, click.Group) else ()
    own = {flag for part in parts for each in part.params for flag in each.opts}
    return found | (own - listed("cli", "Common options"))


@pytest.mark.parametrize(
    ("page", "headings", "existing"),
    [
        ("options", ["All options"], set(settings_data(DEFAULTS))),
        (
            "helm-values",
            ["All values"],
            set(chart_values(json.loads((ROOT / "values.schema.json").read_text()))),
        ),
        ("annotations-and-labels", [], annotations()),
        *(
            ("cli", [f"fipop {name}", *(["Common options"] if name in READING else [])], flags(name))
            for name in main.list_commands(click.Context(main))
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0] if isinstance(each, list) and each else "",
)
def test_a_page_lists_what_there_is(page: str, headings: list[str], existing: set[str]) -> None:
    assert {each for each in listed(page, *headings) if page != "cli" or each.startswith("-")} == existing


def test_the_page_tells_every_metric_as_a_scrape_does() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(\w*fip\w+_\w+)` \| (\w+) \| (.+?) \| (.+) \|$", page, re.MULTILINE)
    told = {
        (name, kind, frozenset(re.findall(r"`(\w+)`", labels)), text) for name, kind, labels, text in rows
    }
    assert set(metrics()) == told


def reasons() -> Iterator[str]:
    """Yield the texts of `reason="…"`, and those handed to what writes conditions and events."""
    for path, source in SOURCES.items():
        for node in ast.walk(ast.parse(source)) if re.search(REPORTERS, str(path)) else ():
            if isinstance(node, ast.keyword) and node.arg == "reason":
                yield from (
                    str(each.value) for each in ast.walk(node.value) if isinstance(each, ast.Constant)
                )
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in REPORTING:
                yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))


def test_the_page_lists_every_reason() -> None:
    page = (ROOT / "docs/reference/conditions-and-events.md").read_text()
    found = {each for each in reasons() if re.fullmatch(r"([A-Z][a-z]+)+", each)} | {
        each.value for each in NoRange
    }
    assert len(found) > 30
    assert {each for each in found - {"Error"} if f"`{each}`" not in page} == set()
    rows = {each for each in listed("conditions-and-events") if re.fullmatch(r"([A-Z]\w+)+", each)}
    assert {each for each in rows - found if f'"{each}"' not in CODE and f"{each}Error" not in CODE} == set()
