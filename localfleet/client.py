"""A small JSON client for an API server, with which tests and the demo see the world without the product.

Objects are plain JSON, places are paths as the API serves them (`/api/v1/namespaces/a/configmaps/b`).
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp

from localfleet.errors import ApiError

Json = dict[str, Any]
Patch = Literal["merge", "json", "strategic", "apply"]

_PATCH_TYPES: Mapping[Patch, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_ANSWER_SECONDS = 30.0
_LINE_BYTES = 4 * 1024 * 1024
_MOST_ATTEMPTS = 10
"""Of one request that an API server puts off: as many as client-go makes."""


class ApiClient:
    """A connection to one API server as one user: a bearer `token`, or the certificate that `tls` presents.

    Use it with `async with`, or `close` it.
    """

    def __init__(self, url: str, tls: ssl.SSLContext, *, token: str | None = None) -> None:
        self.url = url
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS),
            read_bufsize=_LINE_BYTES,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """One request. Raises ApiError for an answer outside 2xx, aiohttp.ClientError where none comes.

        A request that the API server puts off is repeated when it says, as client-go does: for a moment after a CRD
        changed it answers each request for its objects so.
        """
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            async with self._session.request(
                method,
                self.url + path,
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": content_type},
                params=query,
                allow_redirects=False,
            ) as answer:
                text, later = await answer.text(), answer.headers.get("Retry-After", "")
            if answer.status != HTTPStatus.TOO_MANY_REQUESTS or not later.isdecimal():
                break
            if attempt < _MOST_ATTEMPTS:
                await asyncio.sleep(float(later))
        _check(method, path, answer.status, text)
        return _parse(text)

    async def get(self, path: str) -> Json:
        return await self.request("GET", path)

    async def find(self, path: str) -> Json | None:
        """Like `get`; None where there is no such object."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    async def items(self, path: str, **query: str) -> list[Json]:
        """The objects of a list; `query` may hold `labelSelector` and `fieldSelector`."""
        answer = await self.request("GET", path, query=query)
        found: list[Json] = answer["items"]
        return found

    async def create(self, path: str, body: Json) -> Json:
        """Create an object in the collection `path`."""
        return await self.request("POST", path, body=body)

    async def replace(self, path: str, body: Json) -> Json:
        return await self.request("PUT", path, body=body)

    async def patch(
        self,
        path: str,
        body: Any,
        *,
        kind: Patch = "merge",
        field_manager: str = "localfleet",
        force: bool = True,
    ) -> Json:
        """Patch an object. `apply` is server-side apply; with `force` it takes fields over from other managers."""
        query = {"fieldManager": field_manager} | ({"force": "true"} if kind == "apply" and force else {})
        return await self.request("PATCH", path, body=body, content_type=_PATCH_TYPES[kind], query=query)

    async def delete(self, path: str, **query: str) -> Json:
        """Delete an object, or all of a collection; `query` as the API has it (`propagationPolicy`, …)."""
        return await self.request("DELETE", path, query=query)

    async def watch(self, path: str, *, resource_version: str = "0", **query: str) -> AsyncIterator[Json]:
        """The events of a collection (`{"type": …, "object": …}`), until the server ends the watch.

        From version "0" the objects that are there come first, as ADDED.
        """
        parameters = {"watch": "true", "resourceVersion": resource_version, **query}
        unlimited = aiohttp.ClientTimeout(total=None, sock_connect=_ANSWER_SECONDS)
        async with self._session.get(self.url + path, params=parameters, timeout=unlimited) as answer:
            if answer.status != HTTPStatus.OK:
                _check("WATCH", path, answer.status, await answer.text())
            async for line in answer.content:
                yield json.loads(line)


def _check(method: str, path: str, status: int, text: str) -> None:
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    answer = _parse(text)
    raise ApiError(
        method=method,
        path=path,
        status=status,
        reason=answer.get("reason", ""),
        message=answer.get("message", text),
    )


def _parse(text: str) -> Json:
    """The JSON object of an answer; an empty one for the few answers that are plain text (`ok`)."""
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
