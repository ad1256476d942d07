import gc
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.errors import (
    ApiAlreadyExistsError,
    ApiAnswerError,
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiGoneError,
    ApiInvalidError,
    ApiNotFoundError,
    ApiServerError,
    ApiThrottledError,
    ApiUnauthorizedError,
    NamespaceTerminatingError,
)
from fipop.kube.answers import (
    Answer,
    clean_reason,
    error_of,
    error_of_event,
    is_object_missing,
    parse_object,
    require_version,
    take_page,
)
from fipop.kube.calls import Call

from .conftest import status_object

CALL = Call(verb="get", kind="ConfigMap", method="GET", path="/x", name="x", namespace="a")


def answer(code: int, body: object = None, retry_after: str | None = None) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status=code, body=raw, retry_after=retry_after)


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", ApiInvalidError),
        (401, "Unauthorized", ApiUnauthorizedError),
        (403, "Forbidden", ApiForbiddenError),
        (404, "NotFound", ApiNotFoundError),
        (405, "MethodNotAllowed", ApiInvalidError),
        (408, "", ApiServerError),
        (409, "AlreadyExists", ApiAlreadyExistsError),
        (409, "Conflict", ApiConflictError),
        (409, "", ApiConflictError),
        (410, "Expired", ApiGoneError),
        (413, "RequestEntityTooLarge", ApiInvalidError),
        (415, "UnsupportedMediaType", ApiInvalidError),
        (422, "Invalid", ApiInvalidError),
        (429, "TooManyRequests", ApiThrottledError),
        (500, "InternalError", ApiServerError),
        (503, "ServiceUnavailable", ApiServerError),
        (504, "Timeout", ApiServerError),
        (302, "", ApiAnswerError),
        (100, "", ApiAnswerError),
    ],
)
def test_each_status_has_its_error_with_code_reason_and_object(code, reason, error):
    found = error_of(CALL, answer(code, status_object(code, reason)))
    assert type(found) is error
    assert (found.status, found.verb, found.kind, found.namespace, found.name) == (
        code,
        "get",
        "ConfigMap",
        "a",
        "x",
    )
    assert "secret text" not in str(found)
    if reason:
        assert found.reason == reason


@pytest.mark.parametrize(
    ("code", "unknown"), [(500, True), (504, True), (302, True), (409, False), (429, False)]
)
def test_only_a_failing_server_leaves_the_outcome_of_a_write_open(code, unknown):
    assert error_of(CALL, answer(code, status_object(code, "x"))).outcome_unknown is unknown


def test_a_terminating_namespace_is_told_by_its_cause():
    causes = [{"reason": "NamespaceTerminating", "message": "…"}]
    body = status_object(403, "Forbidden", {"name": "x", "causes": causes})
    assert type(error_of(CALL, answer(403, body))) is NamespaceTerminatingError


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        ("7", None, 7.0),
        (None, status_object(429, "TooManyRequests", {"retryAfterSeconds": 3}), 3.0),
        (None, None, 1.0),
        ("soon", None, 1.0),
        ("-4", None, 1.0),
        ("nan", None, 1.0),
        ("1e300", None, 60.0),
        (None, status_object(429, "TooManyRequests", {"retryAfterSeconds": [1]}), 1.0),
    ],
)
def test_retry_after_is_read_and_kept_within_sense(header, body, seconds):
    found = error_of(CALL, answer(429, body, header))
    assert isinstance(found, ApiThrottledError)
    assert found.retry_after_seconds == seconds


def test_a_404_says_gone_only_where_the_server_names_the_object():
    named = status_object(404, "NotFound", {"name": "x", "kind": "configmaps"})
    assert is_object_missing(CALL, answer(404, named))
    for other in (
        b"404 page not found\n",
        {"type": "error", "status": "404", "code": "NotFound"},
        status_object(404, "NotFound", {"name": "y"}),
        status_object(404, "NotFound"),
        named | {"kind": "Cluster"},
        named | {"reason": "ClusterUnavailable"},
    ):
        assert not is_object_missing(CALL, answer(404, other))
    assert not is_object_missing(CALL, answer(410, named))


def test_an_error_event_carries_its_code_inside():
    assert type(error_of_event(CALL, status_object(410, "Expired"))) is ApiGoneError
    assert type(error_of_event(CALL, status_object(500, "InternalError"))) is ApiServerError
    for nonsense in (None, [], {"code": "410"}, {"code": -1}, {"code": 10**9}):
        assert type(error_of_event(CALL, nonsense)) is ApiServerError


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'"text"',
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"metadata": 1}',
        b"{}",
        b'{"metadata": {"generation": ' + b"9" * 5000 + b"}}",
    ],
)
def test_a_body_that_is_no_object_is_an_answer_error(body):
    with pytest.raises(ApiAnswerError):
        parse_object(CALL, answer(200, body))


@pytest.mark.parametrize("text", [None, 7, "", "-1", "1e3", "٣", "9" * 21, "abc"])
def test_a_resource_version_is_a_plain_integer(text):
    with pytest.raises(ApiAnswerError):
        require_version(CALL, 200, text)
    assert require_version(CALL, 200, "18446744073709551615") == 2**64 - 1


@given(code=st.integers(100, 999), body=st.binary(max_size=200), retry_after=st.none() | st.text(max_size=20))
def test_whatever_comes_becomes_a_typed_error_without_foreign_text(code, body, retry_after):
    found = error_of(CALL, Answer(status=code, body=body, retry_after=retry_after))
    assert isinstance(found, ApiError)
    assert len(found.reason) <= 64
    assert found.reason == "" or found.reason.isascii()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["kind", "reason", "details", "causes", "name", "code", "retryAfterSeconds"]),
                inner,
            )
        ),
        max_leaves=12,
    )
)
def test_a_status_object_of_any_shape_becomes_a_typed_error(body):
    if isinstance(body, dict):
        body["kind"] = "Status"
    for code in (403, 404, 409, 429, 500):
        assert isinstance(error_of(CALL, answer(code, body)), ApiError)
        is_object_missing(CALL, answer(code, body))
    assert isinstance(error_of_event(CALL, body), ApiError)


def test_a_reason_is_cleaned_and_cut():
    assert clean_reason("Not Found\n<script>") == "NotFoundscript"
    assert clean_reason("x" * 500) == "x" * 64
    assert clean_reason(None) == ""
    assert clean_reason({"a": 1}) == ""


def test_nothing_is_collected_while_a_page_is_taken_in():
    """Each collection went through all that the process holds: a page of small objects took 600 ms of the loop."""
    body = json.dumps({"metadata": {}, "items": [{"metadata": {}, "data": [[]] * 200}] * 100}).encode()
    begun = []
    gc.callbacks.append(lambda phase, _info: begun.append(phase))
    try:
        items, _ = take_page(CALL, Answer(status=200, body=body), lambda item: len(item["data"]))
        inside = list(begun)
        _ = [[] for _ in range(5000)]
    finally:
        gc.callbacks.pop()
    assert items == [200] * 100
    assert inside == []
    assert begun, "from then on things are collected as before"
