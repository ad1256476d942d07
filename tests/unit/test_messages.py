"""Every message reads `<what happened to which object>: <cause>. <remedy>.`

Messages are collected from what makes them: the golden recording, the errors, the commands, the chart, the metrics.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from fipop import errors
from fipop.api.conditions import Verdict
from fipop.api.models import ReleaseStatus
from fipop.cli.main import main
from fipop.errors import (
    ApiForbiddenError,
    ChartError,
    ForeignReleaseError,
    HelmError,
    HelmFailure,
    ReleaseTakenError,
)
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import ConfigMapOutcome, ConfigMapReport, PassReport, ReleaseReport
from fipop.guest.workloads import Readiness
from fipop.settings.options import DEFAULTS
from fipop.state.observations import observe, provisioning
from fipop.texts import sentence
from scripts.prose import find_banned
from tests.harness.tasks import asking, build_task

ROOT = Path(__file__).parents[2]
TEXTS = ROOT / "tests/golden/recorded/texts"
LONGEST = 300
NAMES_AN_OBJECT = re.compile(
    r'"[^"]+"|[\w.-]+/[\w.-]+|\d+\.\d+\.|::|\bc-m-\w+|kube-\w+|[a-z]+-[a-z]+|guest cluster|[a-z]+[A-Z]\w+'
)
LINK = re.compile(r"docs/[\w./-]+\.md")
NOT_PROSE = {"fipop/guest/helm/failures.py", "fipop/guest/helm/processes.py", "fipop/settings/options.py"}
"""Patterns of what helm writes, a program, default values of charts."""
NEEDS_REMEDY = {
    *("AddressOutOfRange", "AddressSpaceChanged", "AnotherController", "ClusterMismatch", "Contradiction"),
    *("FamilyMissing", "ForeignRelease", "ForeignValue", "HarvesterNotFound", "Invalid", "InvalidSpec"),
    *("MassReleaseWithheld", "MassRemovalWithheld", "NoMatchingRange", "Paused", "QuotaExceeded"),
    *("RangeFull", "RangeInvalid", "RangeNotFound", "RangeRestricted", "ReleaseTaken"),
}
"""Reasons of what a person can change: their messages have a second sentence."""
LEGACY_METRICS = {"kubefipoperator_guestcluster_status"}


def faults_of(text: str, *, longest: int = LONGEST) -> list[str]:
    """Return in what a full sentence breaks the rules."""
    checks = {
        "a capital letter first": text[:1].isupper(),
        "a full stop last": text.endswith("."),
        f"at most {longest} characters": len(text) <= longest,
        "no gap": "  " not in text and ".." not in text.replace("...", "") and ": ." not in text,
    }
    return [need for need, is_met in checks.items() if not is_met] + find_banned(text)


def recorded() -> Iterator[tuple[str, str]]:
    """Yield kind and text of the recorded messages of conditions and events."""
    for file in (*sorted(TEXTS.glob("operator/*.yaml")), *sorted(TEXTS.glob("provider/*.yaml"))):
        for lines in (yaml.safe_load(file.read_text()).get("steps") or {}).values():
            yield from (split(line) for line in lines)
    for lines in yaml.safe_load((TEXTS / "services.yaml").read_text()).values():
        yield from (split(line) for line in lines)


def split(line: str) -> tuple[str, str]:
    about, _, text = line.partition(": ")
    return about, text


RECORDED = sorted({text: about for about, text in recorded() if text}.items())


@pytest.mark.parametrize(("text", "about"), RECORDED)
def test_a_recorded_message_is_a_sentence_about_an_object(text: str, about: str) -> None:
    assert faults_of(text) == [], about
    assert NAMES_AN_OBJECT.search(text), "it names the object"


def visit(config_map: ConfigMapReport, *releases: ReleaseReport) -> PassReport:
    """Return the report of a visit of a guest cluster that answers."""
    return PassReport(
        reachable=True,
        error=None,
        config_map=config_map,
        releases=releases,
        events=(),
        retry_after_seconds=None,
    )


def make_releases() -> Iterator[tuple[str, str]]:
    """Yield reason and message of what a visit of a guest cluster reports."""
    name, namespace = "kube-vip", "kube-system"
    ready = Readiness(ready=True, message="")
    bad = Readiness(ready=False, message="DaemonSet kube-system/kube-vip: 2 of 3 pods ready")
    release = ReleaseStatus(role="kube-vip", namespace=namespace, name=name)
    base: dict[str, Any] = {"release": release, "readiness": ready}
    chart = ChartError(source="https://charts.example", version="0.6.0", reason="the chart is not there")
    helm = HelmError(action="install", subject="release kube-system/kube-vip", failure=HelmFailure.TIMED_OUT)
    reports = [
        ReleaseReport(**base, error=helm),
        ReleaseReport(**base, error=chart),
        ReleaseReport(**base, error=ForeignReleaseError(namespace=namespace, name=name)),
        ReleaseReport(**base, error=ForeignReleaseError()),
        ReleaseReport(**base, error=ReleaseTakenError(namespace=namespace, name=name, role="kube-vip")),
        ReleaseReport(**base | {"readiness": bad}),
        ReleaseReport(**base, drift="chart kube-vip 0.6.0", left_because="RolloutPending"),
        ReleaseReport(**base, drift="chart kube-vip 0.6.0", left_because="RolledBack"),
        ReleaseReport(**base, drift="chart kube-vip 0.6.0"),
        ReleaseReport(**base, doubt=chart),
        ReleaseReport(**base, renamed=True),
        ReleaseReport(**base, beside=("default/vip",)),
    ]
    served = build_task(asking("web"))
    task = replace(served, opted_in=True)
    for report in reports:
        config_map = ConfigMapReport(outcome=ConfigMapOutcome.UNCHANGED)
        whole = visit(config_map, report)
        for options in (frozenset[str](), frozenset({"kubevipChartRef"})):
            settings = replace(DEFAULTS, unknown_options=options)
            found = observe(whole, replace(task, settings=settings))
            assert found.kube_vip is not None
            yield found.kube_vip.reason, found.kube_vip.message
    forbidden = str(ApiForbiddenError(verb="get", kind="ConfigMap", name="fipop-rollout", status=403))
    gate = ReleaseGate(unreadable=forbidden)
    found = observe(visit(config_map, reports[-1]), replace(task, gate=gate))
    assert found.kube_vip is not None
    yield found.kube_vip.reason, found.kube_vip.message
    for outcome in (ConfigMapOutcome.WITHHELD, ConfigMapOutcome.NOT_TRIED):
        found = observe(visit(ConfigMapReport(outcome=outcome)), served)
        configured = found.configured["c-m-a", "web"]
        yield configured.reason, configured.message
    silent = provisioning(installs=False).unreachable
    assert silent is not None
    assert silent.verdict is Verdict.UNKNOWN
    yield silent.reason, silent.message


@pytest.mark.parametrize(("reason", "text"), list(make_releases()))
def test_what_a_visit_reports_is_a_sentence(reason: str, text: str) -> None:
    if text:
        assert faults_of(text) == [], reason


def test_what_a_person_can_change_has_a_remedy() -> None:
    events = [(about.split()[1], text) for about, text in recorded() if about.startswith("event ")]
    told = [*events, *((reason, text) for reason, text in make_releases())]
    assert [each for each in told if each[0] in NEEDS_REMEDY and ". " not in each[1]] == []


def make_errors() -> Iterator[Exception]:
    """Yield one of each error of the tree, made of plausible values."""
    given = {
        "verb": "get",
        "kind": "FloatingIP",
        "name": "web",
        "namespace": "c-m-a",
        "status": 403,
        "text": "10.0.0.300",
        "problem": "is not an IPv4 or IPv6 address",
        "where": "spec.iprange",
        "part": "10.0.0.300",
        "position": 1,
        "found": 3,
        "limit": 2,
        "unit": "parts",
        "range_name": "lab",
        "former": "blue",
        "space": "red",
        "pool_text": "10.0.0.0/24",
        "family": "IPv4",
        "total": 2,
        "families": ("IPv6",),
        "used": 1,
        "quarantined": 1,
        "address": "10.0.0.1",
        "key": "cidr-global",
        "reason": "is excluded",
        "carrier": "Service a/b in guest cluster c-m-b carries 10.0.0.1",
        "guest_id": "c-m-a",
        "cause": "the connection was refused",
        "field": "current-context",
        "seconds": 60.0,
        "action": "upgrade",
        "subject": "release a/b",
        "failure": HelmFailure.TIMED_OUT,
        "source": "https://charts.example",
        "version": "1.0.0",
        "what": "Secret a/b",
        "role": "kube-vip",
        "server": "https://rancher.example",
        "path": "/ca.crt",
    }
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, errors.FipopError) and "__init__" in vars(kind):
            needed = inspect.signature(kind).parameters
            if "fields" not in needed:
                yield kind(**{name: given[name] for name in needed if name in given})


@pytest.mark.parametrize("error", list(make_errors()), ids=lambda error: type(error).__name__)
def test_an_error_can_be_quoted_and_completed(error: Exception) -> None:
    text = str(error)
    assert not text.endswith(".")
    assert text[:1] == text[:1].lower() or text.split(maxsplit=1)[0] in {"Rancher", "Secret"}
    if not isinstance(error, errors.AddressSyntaxError):  # always quoted after the name of a field
        assert faults_of(sentence(text)) == []


MODULES = {
    file.relative_to(ROOT).as_posix(): ast.parse(file.read_text())
    for file in sorted(ROOT.glob("fipop/**/*.py"))
}
LOGGERS = {"logger", "_logger", "log", "_log", "requests"}
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    for path, tree in MODULES.items():
        for node in ast.walk(tree):
            called = node.func if isinstance(node, ast.Call) else None
            owner = called.value if isinstance(called, ast.Attribute) else None
            is_logger = isinstance(owner, ast.Name) and owner.id in LOGGERS
            if is_logger and isinstance(node, ast.Call) and getattr(called, "attr", "") in LOG_METHODS:
                yield f"{path}:{node.lineno}", node


def test_a_log_line_has_a_constant_message_in_the_past_tense() -> None:
    bad = []
    for place, call in log_calls():
        args = call.args[1:] if getattr(call.func, "attr", "") == "log" else call.args
        message = args[0]
        texts = [message.body, message.orelse] if isinstance(message, ast.IfExp) else [message]
        for each in texts:
            if isinstance(each, ast.Name | ast.Attribute):
                continue  # held to the rules with all texts of the module
            text = each.value if isinstance(each, ast.Constant) else None
            if not isinstance(text, str) or len(args) > 1:
                bad.append(f"{place}: the message is constant, values are fields")
            elif (
                not text[:1].isupper()
                or text.endswith(".")
                or ";" in text
                or re.search("%|[Cc]annot|[Ff]ails", text)
            ):
                bad.append(f"{place}: {text}")
    assert bad == []


def texts_of_code() -> Iterator[tuple[str, str]]:
    """Yield place and text of all strings of the code that have words, docstrings apart."""
    for path, tree in MODULES.items():
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        parts: set[int] = set()
        for node in ast.walk(tree) if path not in NOT_PROSE else ():
            if isinstance(node, ast.JoinedStr):
                parts |= {id(each) for each in node.values}
                yield (
                    f"{path}:{node.lineno}",
                    "".join(
                        str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values
                    ),
                )
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in parts | prose
            ):
                yield f"{path}:{node.lineno}", node.value


def test_no_text_of_the_code_has_a_banned_word() -> None:
    found = {f"{place}: {text}": find_banned(text) for place, text in texts_of_code() if " " in text.strip()}
    assert {place: words for place, words in found.items() if words} == {}


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    for each in (command.commands if isinstance(command, click.Group) else {}).values():
        yield from commands(each)


@pytest.mark.parametrize("command", list(commands(main)), ids=lambda each: str(each.name))
def test_help_is_sentences(command: click.Command) -> None:
    helps = [each.help for each in command.params if isinstance(each, click.Option) and each.help]
    for text in (command.short_help or "", *helps):
        assert not text or faults_of(text) == [], text
    assert find_banned(command.help or "") == []


def descriptions(value: Any, names: set[str]) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (
            str(text).strip() for name, text in value.items() if name in names and isinstance(text, str)
        )
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from descriptions(each, names)


CHART_TEXTS = {
    **{f"crds/{each.name}": {"description"} for each in sorted((ROOT / "crds").glob("*.yaml"))},
    "values.schema.json": {"description"},
    "questions.yaml": {"description"},
}


@pytest.mark.parametrize("path", CHART_TEXTS)
def test_descriptions_are_sentences(path: str) -> None:
    found = [
        text
        for document in yaml.safe_load_all((ROOT / path).read_text())
        for text in descriptions(document, CHART_TEXTS[path])
    ]
    assert found
    assert {text: faults_of(text) for text in found if faults_of(text)} == {}


ALERT_TEXT = re.compile(r"^ +(?:summary: (.+)|description: >-\n +(.+))$", re.MULTILINE)


def test_alerts_are_sentences() -> None:
    found = [one or other for one, other in ALERT_TEXT.findall((ROOT / "files/alerts.yaml").read_text())]
    texts = [re.sub(r"\{\{ `\{\{.*?\}\}` \}\}|\{\{.*?\}\}", "X", each) for each in found]
    assert {text: faults_of(text) for text in texts if faults_of(text)} == {}


@pytest.mark.parametrize(
    "path",
    ["templates/NOTES.txt", "values.yaml", "app-readme.md", "files/dashboard.json", "files/alerts.yaml"],
)
def test_texts_of_the_chart_have_no_banned_word(path: str) -> None:
    assert find_banned((ROOT / path).read_text()) == []


def test_metrics_have_sentences() -> None:
    found = yaml.safe_load((TEXTS / "metrics.yaml").read_text())
    texts = [text for part in found.values() for name, text in part.items() if name not in LEGACY_METRICS]
    assert {text: faults_of(text) for text in texts if faults_of(text)} == {}


def test_an_option_must() -> None:
    found = [
        problem.removeprefix(option).strip()
        for option, problems in yaml.safe_load((TEXTS / "options.yaml").read_text())["options"].items()
        for problem in problems
    ]
    assert [each for each in found if not each.startswith("must ") or find_banned(each)] == []


@pytest.mark.parametrize("path", sorted((TEXTS / "commands").glob("*")), ids=lambda path: str(path.stem))
def test_what_commands_print_has_no_banned_word(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("$")]
    lines = [re.sub('"nobody"', '"x"', line) for line in lines]
    assert [line for line in lines if find_banned(line)] == []
    errors_shown = [line for line in lines if "rror: " in line]
    assert [line for line in errors_shown if not re.search(r"Error: [A-Z\"]", line)] == []


PRODUCT = ("fipop/**/*", "templates/**/*", "files/*", "crds/*", "examples/*", "*.yaml", "app-readme.md")


def test_advice_leads_to_pages_of_the_documentation() -> None:
    files = [
        file
        for pattern in PRODUCT
        for file in ROOT.glob(pattern)
        if file.suffix not in {".pyc", ".ico", ".png"}
    ]
    named = {page for file in files if file.is_file() for page in LINK.findall(file.read_text())}
    folders = {"how-to", "reference", "runbooks", "concepts", "contributing", "tutorials"}
    assert {page for page in named if page.split("/")[1] not in folders} == set()
    if (ROOT / "docs/reference").is_dir():
        assert {page for page in named if not (ROOT / page).is_file()} == set()
