"""Errors of requests to a Kubernetes API: their sentence, and whether the object itself is refused."""

import pytest

from fipop.errors import ApiError, ConflictError, ForbiddenError, NotFoundError, UnavailableError


def test_the_sentence_names_the_request_and_the_answer() -> None:
    refused = str(ConflictError("create FloatingIP c-m-a/web", status=409, reason="Conflict"))
    assert refused == "could not create FloatingIP c-m-a/web: 409 Conflict"
    said = str(UnavailableError("list Node", reason="Timeout"))
    assert said == "could not list Node: the server did not answer in time"
    said = str(UnavailableError("list Node", status=200, reason="TooLarge"))
    assert said == "could not list Node: the answer is larger than fipop reads (HTTP 200)"
    assert str(UnavailableError("list Node")) == "could not list Node: the API server did not answer"


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [
        *((ApiError("x", status=status), True) for status in (400, 401, 413, 422)),
        *((ApiError("x", status=status), False) for status in (404, 410)),
        (ForbiddenError("x", status=403), True),
        (UnavailableError("x", status=500, refuser="webhook a"), True),
        *((kind("x"), False) for kind in (ConflictError, NotFoundError, UnavailableError)),
    ],
)
def test_a_failure_is_no_refusal_unless_a_webhook_caused_it(error: ApiError, is_refusal: bool) -> None:
    assert error.is_refusal is is_refusal


@pytest.mark.parametrize(
    ("error", "is_lasting"),
    [
        *((ApiError("x", status=status), True) for status in (400, 405, 413, 415, 422)),
        (ApiError("x", reason="InvalidName"), True),
        *((ApiError("x", status=status), False) for status in (401, 403, 404, 410)),
        *((kind("x"), False) for kind in (ConflictError, ForbiddenError, NotFoundError, UnavailableError)),
    ],
)
def test_only_the_refusal_of_an_object_lasts(error: ApiError, is_lasting: bool) -> None:
    assert error.is_lasting is is_lasting
