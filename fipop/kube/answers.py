"""Answers of an API server read as values: pure translation from HTTP to objects and typed errors."""

from __future__ import annotations

import gc
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
from fipop.jsons import Json
from fipop.kube.calls import Call, call_fields

_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading an object raises that has another shape than Kubernetes gives it."""
_UNCLEAN = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_REASON = 64
_DEFAULT_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 60.0

_ERRORS_BY_STATUS: dict[int, type[ApiError]] = {
    401: ApiUnauthorizedError,
    403: ApiForbiddenError,
    404: ApiNotFoundError,
    408: ApiServerError,  # a proxy gave up waiting for the server behind it
    409: ApiConflictError,
    410: ApiGoneError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer: the status, the body, and the one header that matters later."""

    status: int
    body: bytes
    retry_after: str | None = None


def clean_reason(text: object) -> str:
    """Return a machine reason fit for a log or a condition: letters and digits, at most 64."""
    return _UNCLEAN.sub("", text)[:_LONGEST_REASON] if isinstance(text, str) else ""


def parse_json(call: Call, answer: Answer) -> Json:
    """Return the body as a JSON object; raise ApiAnswerError where it is none."""
    try:
        parsed = json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise ApiAnswerError(**call_fields(call, status=answer.status, reason="NotJson")) from error
    if not isinstance(parsed, dict):
        raise ApiAnswerError(**call_fields(call, status=answer.status, reason="NoJsonObject"))
    return parsed


def parse_object(call: Call, answer: Answer) -> Json:
    """Return the body as a Kubernetes object, which has metadata."""
    return require_metadata(call, answer.status, parse_json(call, answer))


def require_metadata(call: Call, status: int, item: Any) -> Json:
    """Return the item if it is an object with metadata; raise ApiAnswerError where it is none."""
    if not isinstance(item, dict) or not isinstance(item.get("metadata"), dict):
        raise ApiAnswerError(**call_fields(call, status=status, reason="NoKubernetesObject"))
    return item


def take_page(call: Call, answer: Answer, project: Callable[[Json], Any] | None) -> tuple[list[Any], Json]:
    """Give the objects of a page, cut down, and the metadata of the list. Raises ApiError.

    A page may hold hundreds of thousands of tiny objects. While they are there nothing is collected: each collection
    would go through all that this process holds, and took longer than all the rest. They are gone at the end, after an
    error too.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        page = require_object(call, answer)
        found = page.get("items", "absent")
        if not isinstance(found, list | None):  # Go writes an empty list as null at times
            raise ApiAnswerError(**call_fields(call, status=answer.status, reason="NoList"))
        items = []
        for item in found or ():
            checked = require_metadata(call, answer.status, item)
            items.append(_project(call, checked, project) if project is not None else checked)
        return items, page["metadata"]
    except ApiError as error:
        raise error.with_traceback(None) from None  # its frames would keep the page
    finally:
        page = found = item = checked = None  # type: ignore[assignment] # gone before anything is collected
        if collects:
            gc.enable()


def _project(call: Call, item: Json, project: Callable[[Json], Any]) -> Any:
    try:
        return project(item)
    except _MALFORMED:
        raise ApiAnswerError(**call_fields(call, status=200, reason="Malformed")) from None


def require_success(call: Call, answer: Answer) -> None:
    """Raise the typed error of an answer that is no success."""
    if not 200 <= answer.status < 300:
        raise error_of(call, answer)


def require_object(call: Call, answer: Answer) -> Json:
    """Return the object of an answer that is a success; raise the typed error of any other."""
    require_success(call, answer)
    return parse_object(call, answer)


def require_version(call: Call, status: int, text: Any) -> int:
    """Return a resourceVersion as the integer that orders versions; raise ApiAnswerError where it is none."""
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 20:
        return int(text)
    raise ApiAnswerError(**call_fields(call, status=status, reason="NoResourceVersion"))


def is_object_missing(call: Call, answer: Answer) -> bool:
    """Tell whether a 404 says that the very object asked for is not there.

    Only the API server's own Status naming the object says so. A 404 of a proxy on the way, of a missing CRD
    or of an old path looks alike in its code, and must never be taken for "gone".
    """
    if answer.status != 404:
        return False
    status = _status_object(answer.body)
    details = status.get("details")
    return (
        status.get("reason") == "NotFound" and isinstance(details, dict) and details.get("name") == call.name
    )


def error_of(call: Call, answer: Answer) -> ApiError:
    """Return the typed error of an answer that is no success; of its text only the machine reason travels."""
    return _error(call, answer.status, _status_object(answer.body), answer.retry_after)


def error_of_event(call: Call, event_object: Any) -> ApiError:
    """Return the typed error of an ERROR event in a watch; its Status object has the code inside."""
    status = event_object if isinstance(event_object, dict) else {}
    code = status.get("code")
    return _error(call, code if isinstance(code, int) and 0 < code < 1000 else 500, status, None)


def _error(call: Call, code: int, status: Json, retry_after: str | None) -> ApiError:
    reason = clean_reason(status.get("reason"))
    fields = call_fields(call, status=code, reason=reason)
    if code == 429:
        return ApiThrottledError(retry_after_seconds=_retry_seconds(retry_after, status), **fields)
    if code == 409 and reason == "AlreadyExists":
        return ApiAlreadyExistsError(**fields)
    if code == 403 and "NamespaceTerminating" in _cause_reasons(status):
        return NamespaceTerminatingError(**fields)
    if code in _ERRORS_BY_STATUS:
        return _ERRORS_BY_STATUS[code](**fields)
    if 400 <= code < 500:
        return ApiInvalidError(**fields)
    if code >= 500:
        return ApiServerError(**fields)
    fields["reason"] = "Redirect" if 300 <= code < 400 else "UnexpectedStatus"
    return ApiAnswerError(**fields)


def _status_object(body: bytes) -> Json:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) and parsed.get("kind") == "Status" else {}


def _cause_reasons(status: Json) -> frozenset[str]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if not isinstance(causes, list):
        return frozenset()
    return frozenset(clean_reason(cause.get("reason")) for cause in causes if isinstance(cause, dict))


def _retry_seconds(header: str | None, status: Json) -> float:
    details = status.get("details")
    hint = (
        header
        if header is not None
        else details.get("retryAfterSeconds")
        if isinstance(details, dict)
        else None
    )
    try:
        seconds = float(hint) if hint is not None else _DEFAULT_RETRY_SECONDS
    except (TypeError, ValueError):
        seconds = _DEFAULT_RETRY_SECONDS
    if not math.isfinite(seconds) or seconds <= 0:
        seconds = _DEFAULT_RETRY_SECONDS
    return min(seconds, _LONGEST_RETRY_SECONDS)
