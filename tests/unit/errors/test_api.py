"""Errors of calls to a Kubernetes API: their sentence, and whether a write may have been done."""

import pytest

from fipop.errors import (
    PASSING_ERRORS,
    ApiAnswerError,
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiServerError,
    ApiThrottledError,
    ApiUnreachableError,
    NamespaceTerminatingError,
)

CALL = {"verb": "create", "kind": "FloatingIP", "name": "web", "namespace": "c-m-a"}


def test_the_sentence_names_the_call_and_the_answer() -> None:
    refused = str(ApiConflictError(**CALL, status=409, reason="Conflict"))
    assert "create FloatingIP c-m-a/web: 409 Conflict" in refused
    assert "list Node: Timeout" in str(ApiUnreachableError(verb="list", kind="Node", reason="Timeout"))
    assert "did not answer" in str(ApiError(verb="list", kind="Node"))


@pytest.mark.parametrize(
    ("kind", "is_unknown"),
    [(ApiServerError, True), (ApiAnswerError, True), (ApiConflictError, False), (ApiForbiddenError, False)],
)
def test_only_who_may_have_failed_later_leaves_the_outcome_open(
    kind: type[ApiError], is_unknown: bool
) -> None:
    assert kind(**CALL).outcome_unknown is is_unknown


def test_what_was_never_sent_was_not_done() -> None:
    assert ApiUnreachableError(**CALL).outcome_unknown
    assert not ApiUnreachableError(**CALL, outcome_unknown=False).outcome_unknown


def test_trouble_of_the_server_is_told_from_a_fault_of_the_object() -> None:
    assert isinstance(ApiThrottledError(retry_after_seconds=3, **CALL), PASSING_ERRORS)
    assert not isinstance(NamespaceTerminatingError(**CALL), PASSING_ERRORS)
    assert isinstance(NamespaceTerminatingError(**CALL), ApiForbiddenError)
