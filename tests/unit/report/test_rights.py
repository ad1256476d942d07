"""Rights of the reader, and of the operator to Secrets."""

from dataclasses import replace
from typing import Any

from fipop.errors import ForbiddenError
from fipop.kube.resources import SUBJECT_ACCESS_REVIEWS
from fipop.report.findings import Severity
from fipop.report.rights import judge_rights, probe_secret_rights
from fipop.report.snapshot import Unread
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


async def test_without_an_operator_there_is_nothing_to_ask() -> None:
    alone = replace(SNAPSHOT, installation=healthy_installation(workload=None))
    assert await probe_secret_rights(reviewing(), alone) == []


def test_only_whoever_lacks_a_right_is_told_to_bind_one() -> None:
    for is_forbidden in (True, False):
        unread = (Unread(what="reservations", problem="why", forbidden=is_forbidden),)
        (found,) = judge_rights(replace(SNAPSHOT, unread=unread))
        assert ("Bind the ClusterRole" in found.advice) is is_forbidden
