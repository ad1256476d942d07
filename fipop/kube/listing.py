"""Lists, read page by page within bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from fipop.errors import ApiAnswerError
from fipop.jsons import Json
from fipop.kube.answers import Answer, require_version, take_page
from fipop.kube.calls import Call, call_fields, with_query
from fipop.kube.connector import TOO_LARGE
from fipop.kube.limits import ReadLimits

T_co = TypeVar("T_co", covariant=True)

_LONGEST_TOKEN = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T_co]):
    """A complete list, as it was at one version of the store."""

    items: tuple[T_co, ...]
    resource_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReader:
    """Reads all pages of a list, or raises.

    `receive` asks for a page of at most so many bytes; `most` tells how many may come in an answer when so many are
    left for the list. A page that is too large is asked for again with a quarter of the limit.
    """

    limits: ReadLimits
    receive: Callable[[Call, int], Awaitable[Answer]]
    most: Callable[[int], int]

    async def read(
        self, call: Call, query: dict[str, str], project: Callable[[Json], Any] | None
    ) -> Listing[Any]:
        """Give the list; `project` cuts each object down as its page arrives."""
        bytes_left, limit = self.limits.list_bytes, self.limits.page_items
        items: list[Any] = []
        for _ in range(self.limits.pages):
            try:
                answer = await self.receive(with_query(call, query | {"limit": str(limit)}), bytes_left)
            except ApiAnswerError as error:
                is_bounded_by_page = self.most(bytes_left) >= self.limits.answer_bytes
                if error.reason != TOO_LARGE or limit == 1 or not is_bounded_by_page:
                    raise
                limit = max(1, limit // 4)
                continue
            bytes_left -= len(answer.body)
            found, metadata = take_page(call, answer, project)
            items += found
            if not metadata.get("continue"):
                version = require_version(call, answer.status, metadata.get("resourceVersion"))
                return Listing(items=tuple(items), resource_version=version)
            query = query | {"continue": _read_token(call, answer, metadata["continue"])}
            limit = min(self.limits.page_items, limit * 2)
        raise ApiAnswerError(**call_fields(call, status=HTTPStatus.OK, reason="TooManyPages"))


def _read_token(call: Call, answer: Answer, token: object) -> str:
    if not isinstance(token, str) or len(token) > _LONGEST_TOKEN or not token.isascii():
        raise ApiAnswerError(**call_fields(call, status=answer.status, reason="NoContinueToken"))
    return token
