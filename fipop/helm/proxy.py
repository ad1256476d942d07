"""The way of helm to one guest cluster: a server on loopback, open as long as one helm runs.

helm follows redirects with its token, resolves names itself, and reads whatever it is sent. So its kubeconfig names
this server and holds no credential. Each request goes on through fipop's own client, to the guest cluster's server and
path alone, with the checks and at the pace that fipop's own requests have.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from fipop.errors import ApiError, FipopError
from fipop.interfaces import ApiRequest, ApiResponse, ApiServer, loop_time
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.guests import GuestAccess

BODY_BYTES = 4 * 1024 * 1024
ANSWER_BYTES = 32 * 1024 * 1024
RUN_BYTES = 64 * 1024 * 1024
"""The longest body of a request, the longest answer to one, and the sum of all answers of a run."""
USER_AGENT = "Helm (fipop)"
"""What the guest cluster's audit log calls the requests of helm."""

_VERBS = {"GET": "get", "POST": "create", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}
_SECRET_BYTES = 16
_SHUT_SECONDS = 0.1
_LAST_STATUS = 599


@dataclass(frozen=True, slots=True, kw_only=True)
class HelmTarget:
    """The guest cluster that a helm works on. `admit` is awaited before each request, `on_request` hears of it."""

    access: GuestAccess
    admit: Callable[[], Awaitable[None]] | None = None
    on_request: Callable[[RequestRecord], None] | None = None


class RefusedAnswerError(FipopError):
    """The guest cluster's answer to a request of helm is not passed on; `problem` completes the sentence."""

    def __init__(self, *, problem: str) -> None:
        super().__init__(f"the guest cluster answered with {problem}")


class GuestApiProxy:
    """Passes the requests of one helm on to one guest cluster. Each is over by `deadline` (the loop's time).

    `error` is why the last one that failed did, `asked_at` when helm asked last. Any path but that below `prefix` is
    404: whoever else is on this machine does not know its 128 random bits.
    """

    def __init__(self, client: KubeClient, deadline: float) -> None:
        self.error: FipopError | None = None
        self.asked_at = loop_time()
        self.prefix = f"/{secrets.token_hex(_SECRET_BYTES)}"
        self._client = client
        self._deadline = deadline
        self._bytes_left = RUN_BYTES

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pass one request on."""
        self.asked_at = loop_time()
        path, _, query = request.raw_path.partition("?")
        below = path.removeprefix(self.prefix)
        if below == path or not _is_plain(below) or request.method not in _VERBS:
            return _fail(HTTPStatus.NOT_FOUND, "this path or method is not forwarded")
        try:
            forwarded = await _build_request(request, below, query)
        except (ValueError, RecursionError, HttpProcessingError):
            return _fail(HTTPStatus.BAD_REQUEST, f"the body must be JSON of at most {BODY_BYTES} bytes")
        response: web.StreamResponse | None = None
        try:
            verb, seconds = _VERBS[request.method], self._deadline - loop_time()
            async with self._client.exchange(forwarded, verb=verb, seconds=seconds) as answer:
                _require_passable(answer)
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
async def open_proxy(
    server: ApiServer, target: HelmTarget, *, deadline: float
) -> AsyncIterator[tuple[GuestApiProxy, str]]:
    """Open a proxy to a guest cluster and yield it with the kubeconfig for helm; closed with the context."""
    client = KubeClient(server, on_request=target.on_request, admit=target.admit)
    proxy = GuestApiProxy(client, deadline)
    served = web.Server(proxy.answer, access_log=None)
    listener = await asyncio.get_running_loop().create_server(served, "127.0.0.1", 0)
    try:
        port = listener.sockets[0].getsockname()[1]
        yield proxy, _render_kubeconfig(f"http://127.0.0.1:{port}{proxy.prefix}")
    finally:
        listener.close()
        served.pre_shutdown()
        await served.shutdown(timeout=_SHUT_SECONDS)
        await client.close()


async def _build_request(request: web.BaseRequest, path: str, query: str) -> ApiRequest:
    """Return the request as it is forwarded. Raises ValueError if its body is too long, or not what it says it is."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > BODY_BYTES:
            raise ValueError
    content_type = request.headers.get("Content-Type", "application/json")
    # A server-side apply of client-go is JSON, too.
    is_json = "json" in content_type.lower() or content_type == "application/apply-patch+yaml"
    return ApiRequest(
        method=request.method,
        path=path,
        query=dict(parse_qsl(query, keep_blank_values=True)),
        headers={
            "Accept": request.headers.get("Accept", "application/json"),
            "Content-Type": content_type if body else "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": USER_AGENT,
        },
        body=(json.loads(body) if is_json else bytes(body)) if body else None,
    )


def _is_plain(path: str) -> bool:
    """Whether a path stays below where it begins: the guest cluster names resources, and helm makes paths of them."""
    parts = [unquote(each) for each in path.split("/")]
    return path.startswith("/") and not any(
        part in (".", "..") or "/" in part or "\\" in part for part in parts
    )


def _require_passable(answer: ApiResponse) -> None:
    if not HTTPStatus.OK <= answer.status <= _LAST_STATUS:
        raise RefusedAnswerError(problem="another protocol, or a status that HTTP does not have")
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        raise RefusedAnswerError(problem="a redirect, which is not followed")
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise RefusedAnswerError(problem="compressed data that was not requested")


def _headers_of(answer: ApiResponse) -> dict[str, str]:
    """Return the headers that helm sees: no `Warning`, which it would print, and no `Retry-After`, which it obeys."""
    found = answer.headers.get("Content-Type", "")
    return {"Content-Type": found} if found and found.isascii() and found.isprintable() else {}


def _render_kubeconfig(url: str) -> str:
    """Return a kubeconfig (JSON, which is YAML) without a credential."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "guest", "cluster": {"server": url}}],
            "users": [{"name": "guest", "user": {}}],
            "contexts": [{"name": "guest", "context": {"cluster": "guest", "user": "guest"}}],
            "current-context": "guest",
        }
    )


def _fail(status: HTTPStatus, message: str) -> web.Response:
    """Return an answer that client-go takes for an error of the API server."""
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": status.value,
        "message": message,
    }
    return web.json_response(body, status=status)
