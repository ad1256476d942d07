"""`fipop rollout`: what it shows, what it writes with the rights of the user, and how it ends."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from fipop.cli.main import main
from fipop.kube.client import KubeClient
from fipop.rollout.kept import render_rollout
from fipop.rollout.plan import Phase, Rollout
from tests.harness.api_in_memory import ApiInMemory, Commit, Json, Key, Link
from tests.harness.releases import OTHER, TARGET, target
from tests.unit.report.snapshots import build_cluster

CONFIG, KEPT = (("configmaps", "kube-fip", name) for name in ("kube-fip-config", "fipop-rollout"))
STOPPED = Rollout(
    target=TARGET, stable=OTHER, phase=Phase.STOPPED, reason="too bad", failed={"c-m-1": TARGET.name}
)
ANNOTATION = "kubefip.k8s.binbash.org/rollout"
RETRY = f"retry/{TARGET.name}"


class Server(ApiInMemory):
    """One whose clock stands still: the test itself has no loop."""

    def timestamp(self) -> str:
        return "2026-01-01T00:00:00Z"

    def committed(self, key: Key, _before: Json | None, after: Json | None) -> None:
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        for listener in list(self.listeners):
            listener(Commit(version=0, at=moment, key=key, before=None, obj=after))


@pytest.fixture
def link() -> Link:
    found = Link(Server())
    show(found, STOPPED)
    found.server.put(CONFIG, config_map("kube-fip-config", {"kubevipUpdate": "true"}))
    return found


def show(link: Link, rollout: Rollout) -> None:
    """Store a rollout as the operator does."""
    data = render_rollout(rollout, {"succeeded": 2, "failed": 1})
    link.server.put(KEPT, config_map("fipop-rollout", data))


def config_map(name: str, data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "kube-fip", "name": name, **metadata},
        "data": data,
    }


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, link: Link) -> Callable[..., Any]:
    @asynccontextmanager
    async def connect(_reading: object) -> AsyncIterator[KubeClient]:
        yield KubeClient(link)

    def start(*arguments: str) -> Any:
        monkeypatch.setattr("fipop.cli.reading.ReadingOptions.connect", connect)
        monkeypatch.setattr("fipop.cli.reading.POLL_SECONDS", 0.01)
        result = CliRunner().invoke(main, ["rollout", *arguments], prog_name="fipop")
        assert "Traceback" not in result.output
        return result

    return start


def option(link: Link) -> object:
    return link.server.objects[CONFIG]["data"].get("kubevipRolloutPaused")


def test_status_shows_charts_counts_and_whoever_failed_and_a_stop_is_1(run: Callable[..., Any]) -> None:
    result = run("status")
    assert result.exit_code == 1
    for shown in (
        "kube-vip 2.0.0 → 1.0.0",
        "Stopped",
        "c-m-1",
        "too bad",
        "succeeded",
        "fipop rollout retry",
    ):
        assert shown in result.stdout
    found = json.loads(run("status", "-o", "json").stdout)
    assert (found["failed"], found["guests"]) == (["c-m-1"], {"succeeded": 2, "failed": 1})


def test_a_guest_cluster_that_failed_is_shown_by_its_name(run: Callable[..., Any], link: Link) -> None:
    found = build_cluster("demo", "c-m-1")
    link.server.put(("clusters", "fleet-default", "demo"), found)
    assert "Failed in demo (c-m-1)" in run("status").stdout


def test_a_change_of_values_alone_does_not_look_like_the_stable_target(
    run: Callable[..., Any], link: Link
) -> None:
    show(link, Rollout(target=TARGET, stable=target(tag="v2")))
    assert "kube-vip-cloud-provider 1.0.0 with other values, Progressing" in run("status").stdout


def test_pause_and_resume_set_the_option_alone(run: Callable[..., Any], link: Link) -> None:
    assert run("pause").exit_code == 0
    assert option(link) == "true"
    assert run("resume").exit_code == 0
    assert option(link) == "false"
    assert link.server.objects[CONFIG]["data"]["kubevipUpdate"] == "true"


@pytest.mark.parametrize("command", ["pause", "resume", "retry"])
def test_what_prints_a_sentence_takes_no_format(run: Callable[..., Any], command: str) -> None:
    result = run(command, "-o", "json")
    assert (result.exit_code, "No such option" in result.stderr) == (2, True)


def test_whoever_manages_the_options_with_gitops_is_warned(run: Callable[..., Any], link: Link) -> None:
    assert "Warning" not in run("pause").stderr
    labels = {"kustomize.toolkit.fluxcd.io/name": "platform"}
    link.server.put(CONFIG, config_map("kube-fip-config", {}, labels=labels))
    result = run("pause")
    assert (result.exit_code, "Warning: Flux applies" in result.stderr) == (0, True)


def test_a_retry_sets_the_annotation_for_the_current_target(run: Callable[..., Any], link: Link) -> None:
    assert run("retry").exit_code == 0
    assert link.server.objects[CONFIG]["metadata"]["annotations"][ANNOTATION] == RETRY


def test_a_second_retry_waits_until_the_operator_has_seen_the_first_one_go(
    run: Callable[..., Any], link: Link
) -> None:
    """The annotation acts once."""
    link.server.put(CONFIG, config_map("kube-fip-config", {}, annotations={ANNOTATION: RETRY}))
    show(link, replace(STOPPED, retried=RETRY))
    seen = []

    def operate(commit: Commit) -> None:
        if commit.key == CONFIG and commit.obj is not None:
            asked = (commit.obj["metadata"].get("annotations") or {}).get(ANNOTATION, "")
            seen.append(asked)
            if not asked:
                show(link, replace(STOPPED, retried=""))

    link.server.listeners.append(operate)
    assert run("retry").exit_code == 0
    assert seen == ["", RETRY]


def test_without_a_rollout_that_is_said(run: Callable[..., Any], link: Link) -> None:
    link.server.remove(KEPT)
    assert (run("status").exit_code, "no rollout" in run("status").stdout) == (0, True)
    result = run("retry")
    assert (result.exit_code, "there is no rollout in namespace kube-fip" in result.stderr.lower()) == (
        3,
        True,
    )


def test_a_missing_right_is_named(run: Callable[..., Any], link: Link) -> None:
    link.refuse = lambda verb, _target, _request: verb == "patch"
    result = run("pause")
    assert (result.exit_code, "patch configmaps/kube-fip-config" in result.stderr) == (1, True)


def test_a_wrong_namespace_is_named(run: Callable[..., Any], link: Link) -> None:
    link.server.remove(CONFIG)
    result = run("pause")
    assert (result.exit_code, "--operator-namespace" in result.stderr) == (1, True)
