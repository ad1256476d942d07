"""Requests to an API server as values: pure construction from resources and objects."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from fipop.kube.resources import Resource

OBJECT = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The two that name no alternative: a server that cannot cut an object down must refuse, not send a Secret whole."""
FIELD_MANAGER = "fieldManager=fipop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, and what an error or a log line calls it; `path` is below the server's URL."""

    verb: str
    kind: str
    method: str
    path: str
    name: str | None = None
    namespace: str | None = None
    query: str = ""
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = OBJECT
    if_none_match: str = ""


def call_fields(call: Call, *, status: int = 0, reason: str = "") -> dict[str, Any]:
    """Return the fields that every ApiError about this call carries."""
    return {
        "verb": call.verb,
        "kind": call.kind,
        "name": call.name,
        "namespace": call.namespace,
        "status": status,
        "reason": reason,
    }


def build_call(  # noqa: PLR0913 - the parts of a request
    verb: str,
    method: str,
    resource: Resource,
    *,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
    query: str = "",
    body: Any = None,
    content_type: str = "application/json",
    accept: str = OBJECT,
) -> Call:
    """Return the call on a collection, an object or its subresource; raise ApiInvalidError for an impossible name."""
    return Call(
        verb=verb,
        kind=resource.kind,
        method=method,
        path=resource.path(namespace=namespace, name=name, subresource=subresource),
        name=name,
        namespace=namespace,
        query=query,
        body=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
        content_type=content_type,
        accept=accept,
    )


def with_query(call: Call, query: dict[str, str]) -> Call:
    """Return the call with other query parameters."""
    return replace(call, query=urlencode(query))


def build_selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    """Return the query parameters of the selectors that are given."""
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in selectors.items() if value is not None}
