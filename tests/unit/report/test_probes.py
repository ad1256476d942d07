"""Checks that have to ask somebody: rights to Secrets, sources of charts."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fipop.errors import ForbiddenError
from fipop.kube.resources import SUBJECT_ACCESS_REVIEWS
from fipop.report.findings import Severity
from fipop.report.probes import judge_rights, probe_charts, probe_credential, probe_secret_rights
from fipop.report.snapshot import Unread
from fipop.settings.options import DEFAULTS, parse_settings
from tests.harness.answering_client import AnsweringClient
from tests.unit.report.snapshots import build_cluster, healthy_installation, snapshot

SNAPSHOT = snapshot(
    clusters=[build_cluster("demo", "c-m-a"), build_cluster("other", "c-m-b", namespace="team")]
)


def reviewing(*granted: str) -> Any:
    async def create(resource: object, body: dict[str, Any]) -> dict[str, Any]:
        assert resource == SUBJECT_ACCESS_REVIEWS
        assert body["spec"]["user"] == "system:serviceaccount:kube-fip:fipop"
        return {"status": {"allowed": body["spec"]["resourceAttributes"]["namespace"] in granted}}

    return AnsweringClient(create=create)


async def test_every_namespace_of_guests_and_that_of_credentials_is_asked_about() -> None:
    checks = await probe_secret_rights(reviewing("fleet-default", "cattle-global-data"), SNAPSHOT)
    failed = [each.subject.name for each in checks if each.severity is Severity.CRITICAL]
    assert failed == ["team"]
    assert len(checks) == 3


async def test_who_may_not_ask_is_told_which_right_is_missing() -> None:
    async def refuse(*_: object) -> None:
        raise ForbiddenError("create SubjectAccessReview", status=403)

    (check,) = await probe_secret_rights(AnsweringClient(create=refuse), SNAPSHOT)
    assert check.severity is Severity.WARNING
    assert "create subjectaccessreviews" in check.message


async def test_without_an_operator_or_options_there_is_nothing_to_ask() -> None:
    assert (
        await probe_secret_rights(
            reviewing(), replace(SNAPSHOT, installation=healthy_installation(workload=None))
        )
        == []
    )
    assert (
        await probe_charts(
            AnsweringClient(), replace(SNAPSHOT, installation=healthy_installation(has_settings=None)), None
        )
        == []
    )


async def test_charts_are_tried_by_helm_and_without_helm_that_is_said(tmp_path: Path) -> None:
    (check,) = await probe_charts(AnsweringClient(), SNAPSHOT, None)
    assert (check.severity, "no helm program" in check.message) == (Severity.WARNING, True)
    program = tmp_path / "helm"
    program.write_text("#!/bin/sh\necho 'Error: no such host' >&2\nexit 1\n")
    program.chmod(0o755)
    checks = await probe_charts(AnsweringClient(), SNAPSHOT, str(program))
    assert [each.severity for each in checks] == [Severity.CRITICAL] * 2


async def test_charts_are_tried_with_the_credential_as_the_reader_may_read_it(tmp_path: Path) -> None:
    """A closed source was called wrong, whoever asked."""
    program = tmp_path / "helm"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    asked = []

    async def get(_resource: object, name: str, **_: object) -> Any:
        asked.append(name)
        raise ForbiddenError("get Secret", status=403)

    settings, _ = parse_settings({"kubevipChartSecret": "charts"}, DEFAULTS)
    found = replace(SNAPSHOT, installation=healthy_installation(settings=settings))
    checks = await probe_charts(AnsweringClient(get=get), found, str(program))
    assert asked == ["charts"] * 2
    assert {each.reason for each in checks} == {"ChartAccessMissing"}


@pytest.mark.parametrize(
    ("more", "verdict", "words"),
    [
        ({}, Severity.WARNING, "kube-vip.io"),
        ({"kubevipChartRepoUrl": "https://registry.example/charts"}, Severity.OK, ""),
        (None, Severity.WARNING, "read the credential"),
    ],
)
async def test_a_source_that_the_credential_does_not_go_to_is_told_before_it_stops(
    more: dict[str, str] | None, verdict: Severity, words: str
) -> None:
    texts = {"username": "u", "password": "p"}

    async def get(*_: object, **_place: str) -> Any:
        if more is None:
            raise ForbiddenError("get Secret", status=403)
        return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}}

    options = {"kubevipChartRef": "oci://registry.example/charts/kube-vip", "kubevipChartSecret": "charts"}
    settings, _ = parse_settings(options | (more or {}), DEFAULTS)
    found = replace(SNAPSHOT, installation=healthy_installation(settings=settings))
    (check,) = await probe_credential(AnsweringClient(get=get), found)
    assert (check.severity, words in check.message) == (verdict, True)
    assert await probe_credential(AnsweringClient(), SNAPSHOT) == []


def test_each_right_that_the_reader_lacks_is_a_warning() -> None:
    (well,) = judge_rights(SNAPSHOT)
    assert well.severity is Severity.OK
    (missing,) = judge_rights(replace(SNAPSHOT, unread=(Unread(what="reservations", problem="no right"),)))
    assert (missing.severity, missing.subject.name) == (Severity.WARNING, "reservations")
