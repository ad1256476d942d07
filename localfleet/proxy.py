"""The door through which Rancher lets requests into its guests: one TLS host, `/k8s/clusters/<id>/…` each.

As the real one, it knows its own tokens only (unknown: 401; known but without a binding to that guest: 403),
and goes on to the guest's API server with a credential of its own. It also remembers every request by
guest, so that a test can count them, and does harm to a guest's traffic when a `Fault` says so.
"""

import asyncio
import json
import logging
import time
from typing import Any, Self

from aiohttp import ClientConnectionError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

from localfleet.certificates import CertificateAuthority, build_server_tls
from localfleet.routes import Fault, GuestRoute, SeenRequest, Upstream, upstream_of
from localfleet.simulated import SimulatedGuest

__all__ = ["Fault", "GuestRoute", "RancherProxy", "SeenRequest", "Upstream", "upstream_of"]

PREFIX = "/k8s/clusters/"
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_UPSTREAM = _HOP_BY_HOP | {"host", "authorization", "content-length"}
_NOT_DOWNSTREAM = _HOP_BY_HOP | {"content-length"}

logger = logging.getLogger(__name__)


class RancherProxy:
    """One TLS host for all guests. Use as `async with`; add guests and tokens at any time."""

    def __init__(self, authority: CertificateAuthority, *, port: int = 0) -> None:
        """Prepare a proxy with a certificate of `authority`, which is what its clients have to trust."""
        self.ca_pem = authority.pem.decode()
        self.guests: dict[str, GuestRoute] = {}
        self._bindings: dict[str, set[str]] = {}
        self._tls = build_server_tls(authority.issue_server(["127.0.0.1", "localhost"]))
        self._port = port
        self._runner = web.ServerRunner(
            web.Server(self._handle, access_log=None, handler_cancellation=True),
            handle_signals=False,
            shutdown_timeout=0.1,
        )
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Listen on loopback."""
        self._session = ClientSession(
            connector=TCPConnector(limit=0, force_close=False),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=ClientTimeout(total=None, connect=10),
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls, backlog=1024)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop listening and cut what is under way."""
        await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    @property
    def url(self) -> str:
        """The address of the host, without a guest's prefix."""
        return f"https://127.0.0.1:{self._port}"

    def url_of(self, cluster_id: str) -> str:
        """The address that a guest's kubeconfig names."""
        return f"{self.url}{PREFIX}{cluster_id}"

    def add_guest(self, cluster_id: str, target: Upstream | SimulatedGuest) -> GuestRoute:
        """Open the way to a guest."""
        self.guests[cluster_id] = GuestRoute(cluster_id=cluster_id, target=target)
        return self.guests[cluster_id]

    def remove_guest(self, cluster_id: str) -> None:
        """Forget a guest: requests for it are 404 from now on, as after its removal from Rancher."""
        self.guests.pop(cluster_id, None)

    def issue_token(self, token: str) -> None:
        """Make a token known. It opens no guest yet."""
        self._bindings.setdefault(token, set())

    def bind_token(self, token: str, cluster_id: str) -> None:
        """Let a token into a guest."""
        self._bindings.setdefault(token, set()).add(cluster_id)

    def revoke_token(self, token: str) -> None:
        """Forget a token: 401 from now on."""
        self._bindings.pop(token, None)

    def requests_of(self, cluster_id: str) -> list[SeenRequest]:
        """What came in for a guest since it was added or since `forget_requests`."""
        route = self.guests.get(cluster_id)
        return list(route.requests) if route else []

    def forget_requests(self, cluster_id: str | None = None) -> None:
        """Start counting afresh, for one guest or for all."""
        for route in self.guests.values():
            if cluster_id in (None, route.cluster_id):
                route.requests.clear()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        cluster_id, _, rest = request.path.removeprefix(PREFIX).partition("/")
        if not request.path.startswith(PREFIX):
            return _refusal(404, "NotFound", "not found")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self._bindings:
            return _refusal(401, "Unauthorized", "must authenticate")
        route = self.guests.get(cluster_id)
        if route is None:
            return _refusal(404, "NotFound", "cluster not found")
        seen = SeenRequest(
            method=request.method,
            path=f"/{rest}",
            query=request.query_string,
            user_agent=request.headers.get("User-Agent", ""),
            at=time.monotonic(),
        )
        route.requests.append(seen)
        if cluster_id not in self._bindings[token]:
            return _refusal(403, "Forbidden", f'clusters.management.cattle.io "{cluster_id}" is forbidden')
        if not route.connected:
            return _refusal(503, "ServiceUnavailable", "cluster agent disconnected")
        if not route.provisioned:
            said = {
                "Code": {"Code": "ClusterUnavailable", "Status": 503},
                "Message": "cluster not provisioned",
            }
            return web.Response(status=503, text=json.dumps(said), content_type="text/plain")
        harm = route.harm_for(seen) or Fault()
        refused = await _suffer(harm, request)
        if refused is not None:
            return refused
        if isinstance(route.target, SimulatedGuest):
            return await _from_memory(request, seen, route.target, harm)
        return await self._from_upstream(request, seen, route.target, harm)

    async def _from_upstream(
        self, request: web.BaseRequest, seen: SeenRequest, upstream: Upstream, harm: Fault
    ) -> web.StreamResponse:
        assert self._session is not None
        headers = CIMultiDict((k, v) for k, v in request.headers.items() if k.lower() not in _NOT_UPSTREAM)
        if upstream.token:
            headers["Authorization"] = f"Bearer {upstream.token}"
        raw_path = request.raw_path.removeprefix(PREFIX).partition("/")[2]
        url = URL(f"{upstream.url.rstrip('/')}/{raw_path}", encoded=True)
        body = await request.read() if request.can_read_body else None
        try:
            async with self._session.request(
                seen.method, url, headers=headers, data=body, ssl=upstream.tls, allow_redirects=False
            ) as answer:
                if harm.lose_answer:
                    await answer.read()
                    return _cut(request)
                return await _pass_on(request, answer, harm.bytes_per_second)
        except ClientConnectionError as error:
            logger.info("Guest API server is not reachable", extra={"path": seen.path, "error": str(error)})
            return _refusal(502, "BadGateway", "the guest's API server is not reachable")


async def _suffer(harm: Fault, request: web.BaseRequest) -> web.StreamResponse | None:
    """Do what a fault does before the guest is asked; a response means that it is not asked at all."""
    if harm.delay_seconds:
        await asyncio.sleep(harm.delay_seconds)
    if harm.hang:
        await asyncio.Event().wait()
    if harm.refuse:
        return _cut(request)
    if harm.status is not None:
        return _refusal(
            harm.status, "InternalError" if harm.status >= 500 else "BadRequest", "as the fault says"
        )
    return None


async def _from_memory(
    request: web.BaseRequest, seen: SeenRequest, guest: SimulatedGuest, harm: Fault
) -> web.StreamResponse:
    answer = await guest.answer(
        seen.method,
        seen.path,
        request.query,
        request.headers.get("Accept", ""),
        request.content_type,
        await request.read(),
    )
    if harm.lose_answer:
        return _cut(request)
    payload = json.dumps(answer.body).encode()
    if harm.bytes_per_second is None:
        return web.Response(status=answer.status, body=payload, content_type="application/json")
    response = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await _trickle(response, payload, harm.bytes_per_second)
    return response


async def _pass_on(
    request: web.BaseRequest, answer: Any, bytes_per_second: float | None
) -> web.StreamResponse:
    headers = CIMultiDict((k, v) for k, v in answer.headers.items() if k.lower() not in _NOT_DOWNSTREAM)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    length = answer.headers.get("Content-Length")
    if length is not None:
        response.content_length = int(length)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await _trickle(response, chunk, bytes_per_second)
    await response.write_eof()
    return response


async def _trickle(response: web.StreamResponse, payload: bytes, bytes_per_second: float | None) -> None:
    if bytes_per_second is None:
        await response.write(payload)
        return
    for byte in payload:
        await response.write(bytes((byte,)))
        await asyncio.sleep(1 / bytes_per_second)


def _cut(request: web.BaseRequest) -> web.StreamResponse:
    """Close the connection without a word; what is returned never reaches the caller."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)


def _refusal(code: int, reason: str, message: str) -> web.Response:
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return web.json_response(status, status=code)
