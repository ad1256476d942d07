"""The door through which helm reaches one guest: a server on loopback, as long as one helm runs.

helm follows redirects and sends its token along, resolves names by itself, waits as long as it is told to, and takes
whatever it is sent. So it gets none of that: its kubeconfig names this door and holds no credential, and each request
goes on through our own transport, to the guest's server and path alone, with the guards that our own requests have.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from fipop.boundary import ApiRequest, ApiResponse, ApiServer
from fipop.errors import ApiError, FipopError
from fipop.kube.client import KubeClient, RequestRecord

BODY_BYTES = 4 * 1024 * 1024
ANSWER_BYTES = 32 * 1024 * 1024
RUN_BYTES = 64 * 1024 * 1024
"""The longest body of a request, the longest answer to one, and the sum of all answers of a run."""

LONGEST_RETRY_SECONDS = 1
"""helm waits in its turn for as long as `Retry-After` says, ten times over."""

USER_AGENT = "Helm (fipop)"
"""What the guest's audit log calls the requests of helm."""

_VERBS = {"GET": "get", "POST": "create", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}
_PASSED_BACK = ("Content-Type", "ETag")
_SECRET_BYTES = 16
_SHUT_SECONDS = 0.1
_STATUS_END = 600


class RefusedAnswerError(FipopError):
    """The guest's answer to a request of helm is not passed on; `problem` completes the sentence."""

    def __init__(self, *, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the guest answered with {problem}")


@dataclass(slots=True, kw_only=True)
class Door:
    """Passes the requests of one helm on to one guest. `error` is what stood in the way of the last that failed.

    Any path but that below `url` is 404: whoever else lives on this machine does not know its 128 random bits.
    """

    url: str
    _client: KubeClient
    _deadline: float
    _prefix: str
    _bytes_left: int = RUN_BYTES
    error: FipopError | None = field(default=None, init=False)

    def render_kubeconfig(self) -> str:
        """Give helm's kubeconfig (JSON, which is YAML)."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "guest", "cluster": {"server": self.url}}],
                "users": [{"name": "guest", "user": {}}],
                "contexts": [{"name": "guest", "context": {"cluster": "guest", "user": "guest"}}],
                "current-context": "guest",
            }
        )

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pass one request on."""
        path, _, query = request.raw_path.partition("?")
        below = path.removeprefix(self._prefix)
        if below == path or not below.startswith("/") or not _is_plain(below):
            return _fail(HTTPStatus.NOT_FOUND, "this path does not exist")
        if request.method not in _VERBS:
            return _fail(HTTPStatus.METHOD_NOT_ALLOWED, "this method is not forwarded")
        body = await _read_body(request)
        if body is None:
            return _fail(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {BODY_BYTES} bytes are not forwarded"
            )
        forwarded = _build_request(request, below, query, body)
        if forwarded is None:
            return _fail(HTTPStatus.BAD_REQUEST, "the body is not JSON")
        seconds = self._deadline - asyncio.get_running_loop().time()
        response: web.StreamResponse | None = None
        try:
            async with self._client.exchange(
                forwarded, verb=_VERBS[request.method], seconds=seconds
            ) as answer:
                _require_passable(forwarded, answer)
                response = web.StreamResponse(status=answer.status, headers=_headers_of(answer))
                await response.prepare(request)
                await self._pass_back(answer, response)
                await response.write_eof()
        except (RefusedAnswerError, ApiError) as error:
            self.error = error
            if response is None:
                return _fail(HTTPStatus.BAD_GATEWAY, str(error))
            # It began well: only a cut connection tells helm that the rest does not come.
            response.force_close()
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _pass_back(self, answer: ApiResponse, response: web.StreamResponse) -> None:
        left = ANSWER_BYTES
        while chunk := await answer.content.readany():
            left -= len(chunk)
            self._bytes_left -= len(chunk)
            if left < 0 or self._bytes_left < 0:
                raise RefusedAnswerError(problem="more bytes than fipop reads")
            await response.write(chunk)


@asynccontextmanager
async def open_door(
    server: ApiServer,
    *,
    deadline: float,
    on_request: Callable[[RequestRecord], None] | None = None,
) -> AsyncIterator[Door]:
    """Open a door to a guest; every request through it is over by `deadline` (the loop's time).

    It is shut with the context. `on_request` sees each request, as of our own clients.
    """
    client = KubeClient(server, on_request=on_request)
    prefix = f"/{secrets.token_hex(_SECRET_BYTES)}"
    door: Door | None = None

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        assert door is not None
        return await door.answer(request)

    proxy = web.Server(answer, access_log=None)
    listener = await asyncio.get_running_loop().create_server(proxy, "127.0.0.1", 0)
    try:
        port = listener.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}{prefix}"
        door = Door(url=url, _client=client, _deadline=deadline, _prefix=prefix)
        yield door
    finally:
        listener.close()
        proxy.pre_shutdown()
        await proxy.shutdown(timeout=_SHUT_SECONDS)
        await client.close()


def _build_request(request: web.BaseRequest, path: str, query: str, body: bytes) -> ApiRequest | None:
    """Return the request as it is forwarded; None if its body is not what its content type says."""
    headers = request.headers
    content_type = headers.get("Content-Type", "application/json") if body else "application/json"
    forwarded = {
        "Accept": headers.get("Accept", "application/json"),
        "Content-Type": content_type,
        "Accept-Encoding": "identity",
        "User-Agent": USER_AGENT,
    }
    if "If-None-Match" in headers:
        forwarded["If-None-Match"] = headers["If-None-Match"]
    content: Any = body or None
    # A server-side apply of client-go is JSON, too.
    if body and ("json" in content_type.lower() or content_type == "application/apply-patch+yaml"):
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            return None
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    return ApiRequest(method=request.method, path=path, query=parameters, headers=forwarded, body=content)


def _is_plain(path: str) -> bool:
    """Whether a path stays below where it begins: the guest names resources, and helm makes paths of these names."""
    segments = path.split("/")
    return not any(part in (".", "..") or "/" in part or "\\" in part for part in map(unquote, segments))


async def _read_body(request: web.BaseRequest) -> bytes | None:
    """Give the body, None where it is too long."""
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > BODY_BYTES:
                return None
            parts.append(chunk)
    except HttpProcessingError:
        return None
    return b"".join(parts)


def _require_passable(request: ApiRequest, answer: ApiResponse) -> None:
    is_unchanged = answer.status == HTTPStatus.NOT_MODIFIED and "If-None-Match" in request.headers
    if answer.status == HTTPStatus.SWITCHING_PROTOCOLS:
        raise RefusedAnswerError(problem="another protocol, which is not supported")
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST and not is_unchanged:
        raise RefusedAnswerError(problem="a redirect, which is not followed")
    if not HTTPStatus.OK <= answer.status < _STATUS_END:
        raise RefusedAnswerError(problem="a status that HTTP does not have")
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise RefusedAnswerError(problem="compressed data that was not requested")


def _headers_of(answer: ApiResponse) -> dict[str, str]:
    """Give the headers that helm may see: no `Warning`, which it would print, and no long `Retry-After`."""
    found = {name: answer.headers.get(name, "") for name in _PASSED_BACK}
    headers = {
        name: value for name, value in found.items() if value and value.isascii() and value.isprintable()
    }
    retry = answer.headers.get("Retry-After", "")
    if retry.isascii() and retry.isdigit():
        headers["Retry-After"] = "0" if retry.strip("0") == "" else str(LONGEST_RETRY_SECONDS)
    return headers


def _fail(status: HTTPStatus, message: str) -> web.Response:
    body: Mapping[str, object] = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": status.value,
        "reason": status.phrase.replace(" ", ""),
        "message": message,
    }
    return web.json_response(body, status=status)
