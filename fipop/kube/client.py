"""Objects of one API server, read and written as JSON. Every request has a deadline and a bound in bytes."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, NamedTuple, Self, TypedDict, TypeVar, Unpack, overload

import aiohttp

from fipop.deadlines import LONGEST_WATCH_SECONDS, REQUEST_SECONDS, WATCH_GRACE_SECONDS
from fipop.errors import (
    ApiError,
    ConflictError,
    ConnectionCutError,
    ForbiddenError,
    NamespaceTerminatingError,
    NotFoundError,
    RequestTimeoutError,
    TokenRefusedError,
    TooLargeError,
    UnavailableError,
    UntrustedServerError,
)
from fipop.interfaces import ApiRequest, ApiResponse, ApiServer, loop_time
from fipop.jsons import Json, as_list, as_mapping
from fipop.kube.resources import Listing, Resource

T = TypeVar("T")

MANAGEMENT_BYTES = 512 << 20
PAGE_ITEMS, MOST_PAGES = 500, 10_000
FIELD_MANAGER = {"fieldManager": "fipop"}
JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
"""Names no alternative: a server that cannot reduce an object to its metadata must refuse, not send a whole Secret."""

RANCHER_AUTH = "X-Api-Cattle-Auth"
"""The header by which Rancher says, with the value "false", that itself refuses the token, not the guest."""
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading an answer raises that has another shape than Kubernetes gives it."""
_METHODS = {"create": "POST", "replace": "PUT", "patch": "PATCH", "delete": "DELETE"} | dict.fromkeys(
    ("get", "list", "watch"), "GET"
)
_REASON = re.compile(r"[A-Za-z0-9]{1,64}")
_REFUSER = re.compile(r"\b(webhook|ValidatingAdmissionPolicy) [\"']([a-z0-9][-.a-z0-9]{0,62})[\"']")
"""How the API server names what refused a request. A longer name is left out."""
_LONGEST_TEXT = 2048
"""How much of an answer's text is searched for that."""
_LONGEST_RETRY_SECONDS = 60.0


class CutError(aiohttp.ClientError):
    """The connection of a write ended without an answer."""


class RedirectError(aiohttp.ClientPayloadError):
    """The server answered with a redirect: no other server gets the token, and no answer of another one counts."""


class ListOptions(TypedDict, total=False):
    """Which objects a list has, and how long reading it may take."""

    namespace: str | None
    label_selector: str | None
    field_selector: str | None
    metadata_only: bool
    page_items: int
    timeout_seconds: float | None


class WatchEvent(NamedTuple):
    """ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: Json


class RequestRecord(NamedTuple):
    """One request and how it ended, for logs and metrics. `status` is 0 if no answer arrived."""

    verb: str
    path: str
    status: int
    duration_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One request, and what an error calls it."""

    what: str
    verb: str
    request: ApiRequest
    name: str = ""
    """The object that the request names; a 404 is about it only if the API server says so."""


class KubeClient:
    """Reads and writes the objects of one API server.

    No method retries: that is the work queue's job. A request with all pages of a list takes at most `timeout_seconds`,
    an answer has at most `answer_bytes`, and a list `pages` pages of `page_items` objects. After an UnavailableError a
    write can have been committed: read the object first. `admit` is awaited before each request but a watch; its own
    time begins only then. The operator watches by kopf (runtime/watching).
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        timeout_seconds: float = REQUEST_SECONDS,
        answer_bytes: int = MANAGEMENT_BYTES,
        page_items: int = PAGE_ITEMS,
        pages: int = MOST_PAGES,
        on_request: Callable[[RequestRecord], None] | None = None,
        admit: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._server = server
        self._timeout_seconds = timeout_seconds
        self._answer_bytes = answer_bytes
        self._page_items = page_items
        self._pages = pages
        self._on_request = on_request
        self._admit = admit
        self._may_write: Callable[[], bool] = lambda: True
        self._clock: dict[str, float] = {}  # one entry; a dict, so that copies of the client share it

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        await self._server.close()

    def check_authority(self) -> None:
        """Raise StartError if only a new process can trust the server: its certificate authority was replaced."""
        self._server.check_authority()

    def for_leader(self, leads: Callable[[], bool]) -> Self:
        """Return a client over the same connections that refuses to write while `leads` says no."""
        guarded = copy.copy(self)
        guarded._may_write = leads  # noqa: SLF001 - of our own class
        return guarded

    def server_now(self) -> datetime:
        """Return the API server's time (aware, UTC), at most a second and a round trip behind it.

        It is what the Date header of the last answer said, and the time since then. Raises UnavailableError before the
        first answer.
        """
        if not self._clock:
            raise UnavailableError("read the clock of the API server", reason="NoAnswerYet", is_unsent=True)
        try:
            (offset,) = self._clock.values()
            return datetime.fromtimestamp(offset + loop_time(), tz=UTC)
        except (ValueError, OverflowError):  # a guest cluster can say that it is the end of the year 9999
            raise UnavailableError("read the clock of the API server", reason="BadDate") from None

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        metadata_only: bool = False,
    ) -> Json | None:
        """Return one object; None if it does not exist."""
        accept = METADATA.format("") if metadata_only else JSON
        call = _build("get", resource, namespace, name, accept=accept)
        try:
            return await self._ask(call)
        except NotFoundError:
            return None

    @overload
    async def list(self, resource: Resource, **options: Unpack[ListOptions]) -> Listing[Json]: ...

    @overload
    async def list(
        self, resource: Resource, *, project: Callable[[Json], T], **options: Unpack[ListOptions]
    ) -> Listing[T]: ...

    async def list(
        self,
        resource: Resource,
        *,
        project: Callable[[Json], Any] | None = None,
        **options: Unpack[ListOptions],
    ) -> Listing[Any]:
        """Return all objects, page by page; `project` cuts each one down before the next page is read."""
        selectors = {
            "labelSelector": options.get("label_selector"),
            "fieldSelector": options.get("field_selector"),
        }
        query = {key: value for key, value in selectors.items() if value} | {
            "limit": str(options.get("page_items") or self._page_items)
        }
        accept = METADATA.format("List") if options.get("metadata_only") else JSON
        seconds, namespace = options.get("timeout_seconds") or self._timeout_seconds, options.get("namespace")
        items: list[Any] = []
        for _ in range(self._pages):
            call = _build("list", resource, namespace, query=query, accept=accept)
            if self._admit is not None:
                await self._admit()
            began = loop_time()
            page = await self._ask_now(call, seconds)
            seconds -= loop_time() - began
            with _readable(call, HTTPStatus.OK):
                found = [_object(item) for item in _items(page["items"])]
                items += map(project, found) if project is not None else found
                if not page["metadata"].get("continue"):
                    return Listing(tuple(items), int(page["metadata"]["resourceVersion"]))
                query |= {"continue": page["metadata"]["continue"]}
        raise TooLargeError(f"list {resource.kind}", status=HTTPStatus.OK, reason="TooManyPages")

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: str | None = None,
        resource_version: str | int | None = None,
        timeout_seconds: int = LONGEST_WATCH_SECONDS,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield events from `resource_version` on until the server ends the watch. Raises ApiError: list again then.

        Close the generator (`aclosing`) to stop early.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_seconds)}
        query |= {"resourceVersion": str(resource_version)} if resource_version is not None else {}
        query |= {"fieldSelector": field_selector} if field_selector else {}
        call = _build("watch", resource, namespace, query=query)
        lines = self._lines(call, timeout_seconds + WATCH_GRACE_SECONDS)
        async with contextlib.aclosing(lines):
            async for line in lines:
                with _readable(call, HTTPStatus.OK):
                    event = json.loads(line)
                    kind, found = event["type"], event["object"]
                    if kind == "ERROR":
                        raise _error(call, int(found.get("code") or 500), found)
                    item = _object(found)
                yield WatchEvent(str(kind), item)

    async def version(self) -> Json:
        """Return what the API server says of its version: `major`, `minor`, `gitVersion` and more."""
        request = ApiRequest(method="GET", path="/version", headers={"Accept": JSON})
        return await self._ask(_Call(what="get version", verb="get", request=request), is_object=False)

    async def create(self, resource: Resource, body: Json, *, namespace: str | None = None) -> Json:
        """Create an object and return it as stored; ConflictError if its name is taken."""
        place = namespace or body["metadata"].get("namespace")
        return await self._write("create", resource, place, body=_typed(resource, body))

    async def replace(self, resource: Resource, body: Json, *, subresource: str | None = None) -> Json:
        """Replace an object that was read before, at the version in `body`; ConflictError if it changed since."""
        place = body["metadata"].get("namespace"), body["metadata"]["name"], subresource
        return await self._write("replace", resource, *place, body=_typed(resource, body))

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Json:
        """Merge a patch into an object; with `metadata.resourceVersion`, ConflictError if it changed since."""
        return await self._write("patch", resource, namespace, name, subresource, body=patch)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | int | None = None,
    ) -> bool:
        """Delete an object; False if it was gone already, ConflictError if a precondition fails."""
        wanted = {"uid": uid, "resourceVersion": str(resource_version) if resource_version else None}
        preconditions = {key: value for key, value in wanted.items() if value}
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
        try:
            await self._write("delete", resource, namespace, name, body=body)
        except NotFoundError:
            return False
        return True

    @asynccontextmanager
    async def exchange(self, request: ApiRequest, *, verb: str, seconds: float) -> AsyncIterator[ApiResponse]:
        """Send a request of another program, and return its answer, of any status, until the context ends."""
        call = _Call(what=f"{verb} (helm)", verb=verb, request=request)
        if self._admit is not None:
            await self._admit()
        async with self._send(call, seconds) as response:
            yield response

    async def _write(self, verb: str, resource: Resource, *place: str | None, body: Json) -> Json:
        query = FIELD_MANAGER if verb != "delete" else {}
        call = _build(verb, resource, *place, query=query, body=body)
        if not self._may_write():
            raise UnavailableError(call.what, reason="NotLeading", is_unsent=True)
        return await self._ask(call)

    async def _ask(self, call: _Call, *, is_object: bool = True) -> Json:
        if self._admit is not None:
            await self._admit()
        return await self._ask_now(call, self._timeout_seconds, is_object=is_object)

    async def _ask_now(self, call: _Call, seconds: float, *, is_object: bool = True) -> Json:
        async with self._send(call, seconds) as response:
            text = await self._read(call, response)
        if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            raise _error_of(call, response, text)
        with _readable(call, response.status):
            answer: Json = json.loads(text)
            if not isinstance(answer, dict):
                raise TypeError
            return _object(answer) if is_object else answer

    async def _lines(self, call: _Call, seconds: float) -> AsyncGenerator[bytes, None]:
        until, pending = loop_time() + seconds, b""
        # No deadline is open while the caller has a line: it would end the caller's own work.
        async with contextlib.AsyncExitStack() as stack:
            async with _deadline(call.what, self._timeout_seconds):
                response = await stack.enter_async_context(self._send(call, None))
                if response.status != HTTPStatus.OK:
                    raise _error_of(call, response, await self._read(call, response))
            while True:
                async with _deadline(call.what, until - loop_time()):
                    chunk = await response.content.readany()
                if not chunk:
                    return
                *whole, pending = (pending + chunk).split(b"\n")
                if len(pending) > self._answer_bytes:
                    raise TooLargeError(call.what, status=response.status, reason="TooLarge")
                for line in whole:
                    yield line

    @asynccontextmanager
    async def _send(self, call: _Call, seconds: float | None) -> AsyncIterator[ApiResponse]:
        """Send a request, record how it ended, and translate what goes wrong on the way to the server and back."""
        started, status = loop_time(), 0
        try:
            async with asyncio.timeout(seconds), self._server.send(call.request) as response:
                status = response.status
                self._note_time(response.headers.get("Date", ""))
                yield response
        except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
            raise _failure(call.what, error) from error
        finally:
            if self._on_request is not None:
                self._on_request(RequestRecord(call.verb, call.request.path, status, loop_time() - started))

    async def _read(self, call: _Call, response: ApiResponse) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise UnavailableError(call.what, status=response.status, reason="Compressed")
        chunks, size = [], 0
        while chunk := await response.content.readany():
            chunks.append(chunk)
            size += len(chunk)
            if size > self._answer_bytes:
                raise TooLargeError(call.what, status=response.status, reason="TooLarge")
        return b"".join(chunks)

    def _note_time(self, date: str) -> None:
        if date not in self._clock:  # to read it costs a twentieth of a request, and it changes once a second
            with contextlib.suppress(*_MALFORMED, IndexError):
                offset = parsedate_to_datetime(date).timestamp() - loop_time()
                self._clock.clear()
                self._clock[date] = offset


@asynccontextmanager
async def _deadline(what: str, seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise _failure(what, TimeoutError()) from None


def _build(
    verb: str,
    resource: Resource,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
    *,
    query: Mapping[str, str] | None = None,
    body: Json | None = None,
    accept: str = JSON,
) -> _Call:
    content_type = MERGE_PATCH if verb == "patch" else JSON
    headers = {"Accept": accept, "Content-Type": content_type, "Accept-Encoding": "identity"}
    request = ApiRequest(
        method=_METHODS[verb],
        path=resource.path(namespace=namespace, name=name, subresource=subresource),
        query=dict(query or {}),
        headers=headers,
        body=body,
    )
    shown = name or (body or {}).get("metadata", {}).get("name")
    what = " ".join((verb, resource.kind, "/".join(part for part in (namespace, shown) if part))).rstrip()
    return _Call(what=what, verb=verb, request=request, name=name or "")


def _typed(resource: Resource, body: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _items(value: Any) -> list[Any]:
    """Return the items of an answer, which Go writes as null if there is none; raise a TypeError for another shape."""
    if not isinstance(value, list | None):
        raise TypeError
    return value or []


def _object(item: Any) -> Json:
    """Return an object of an answer; raise a TypeError if it has no metadata."""
    if not isinstance(item["metadata"], dict):
        raise TypeError
    found: Json = item
    return found


@contextmanager
def _readable(call: _Call, status: int) -> Iterator[None]:
    """Translate what goes wrong when an answer has not the shape that Kubernetes gives it."""
    try:
        yield
    except _MALFORMED:
        raise UnavailableError(call.what, status=status, reason="NoKubernetesAnswer") from None


def _error_of(call: _Call, response: ApiResponse, text: bytes) -> ApiError:
    """Return the error of an answer that is no success; of its text only the machine reason and a name travel."""
    status: Json = {}
    with contextlib.suppress(*_MALFORMED):
        parsed = json.loads(text)
        status = parsed if parsed["kind"] == "Status" else {}
    if response.headers.get(RANCHER_AUTH) == "false":
        return TokenRefusedError(call.what, status=response.status, reason="RancherTokenRefused")
    return _error(call, response.status, status, response.headers.get("Retry-After", ""))


def _error(call: _Call, code: int, status: Json, retry_after: str = "") -> ApiError:
    reason, details = _reason(status.get("reason")), as_mapping(status.get("details"))
    what, refuser = call.what, _find_refuser(status.get("message"))
    if refuser and code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
        return ApiError(what, status=code, reason=reason, refuser=refuser)  # a webhook answers with any code
    if code == HTTPStatus.NOT_FOUND and call.name and details.get("name") == call.name:
        # A proxy and a missing CRD answer 404, too: only the API server's own words say that the object is gone.
        return NotFoundError(what, status=code, reason=reason)
    if code == HTTPStatus.CONFLICT:
        return ConflictError(what, status=code, reason=reason)
    if code in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS) or code >= 500 or code < 400:
        seconds = retry_after or str(details.get("retryAfterSeconds") or "")
        wait = float(seconds) if seconds.isascii() and seconds.isdigit() else 0.0
        is_refused = code == HTTPStatus.TOO_MANY_REQUESTS
        wait = min(wait, _LONGEST_RETRY_SECONDS) or float(is_refused)
        return UnavailableError(
            what, status=code, reason=reason, refuser=refuser, retry_after=wait, is_unsent=is_refused
        )
    if code != HTTPStatus.FORBIDDEN:
        return ApiError(what, status=code, reason=reason, refuser=refuser)
    if "NamespaceTerminating" in {as_mapping(each).get("reason") for each in as_list(details.get("causes"))}:
        return NamespaceTerminatingError(what, status=code, reason="NamespaceTerminating", refuser=refuser)
    return ForbiddenError(what, status=code, reason=reason, refuser=refuser)


_FAILURES: tuple[tuple[type[BaseException], type[UnavailableError], str], ...] = (
    (TimeoutError, RequestTimeoutError, "Timeout"),
    (RedirectError, UnavailableError, "Redirect"),
    (aiohttp.ClientConnectorCertificateError, UntrustedServerError, "CertificateInvalid"),
    (aiohttp.ClientConnectorSSLError, UntrustedServerError, "TlsHandshake"),
    (aiohttp.ClientConnectorDNSError, UnavailableError, "NameResolution"),
    (aiohttp.ClientConnectorError, UnavailableError, "ConnectionFailed"),
    (aiohttp.ClientHttpProxyError, UnavailableError, "ProxyRefused"),
    (BaseException, ConnectionCutError, "ConnectionCut"),
)
"""What ends a request without an answer, the first that fits, with the error and its reason."""


def _failure(what: str, error: BaseException) -> UnavailableError:
    """Return the error of a request that got no answer."""
    kind, reason = next((kind, reason) for cause, kind, reason in _FAILURES if isinstance(error, cause))
    # Before a connection stands nothing is sent: the outcome of a write is known then.
    is_unsent = isinstance(error, aiohttp.ClientConnectorError)
    if is_unsent and isinstance(getattr(error, "os_error", None), ConnectionRefusedError):
        reason = "ConnectionRefused"
    return kind(what, reason=reason, is_unsent=is_unsent)


def _reason(text: object) -> str:
    """Return a machine reason fit for a log or a condition: letters and digits, at most 64."""
    return "".join(_REASON.findall(text)[:1]) if isinstance(text, str) else ""


def _find_refuser(text: object) -> str:
    """Return the admission policy or webhook that an answer names; its other words can be anyone's."""
    found = _REFUSER.search(text[:_LONGEST_TEXT]) if isinstance(text, str) else None
    return " ".join(found.groups()) if found is not None else ""
