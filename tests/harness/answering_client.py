"""A client of an API server whose answers a test writes, verb by verb."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

Answer = Callable[..., Awaitable[Any]]


class UnexpectedCallError(AssertionError):
    """A test did not write an answer for this call."""


class AnsweringClient:
    """Answers with what a test gives for a verb; a call that the test does not expect fails it.

    For tests of one answer. A test that writes and reads takes `tests.harness.api_in_memory` instead.
    """

    def __init__(self, *, now: datetime | None = None, **answers: Answer) -> None:
        assert set(answers) <= {"get", "list", "create", "replace", "delete"}, answers
        self._answers = answers
        self._now = now

    async def get(self, *arguments: Any, **options: Any) -> Any:
        """Read one object."""
        return await self._answer("get")(*arguments, **options)

    async def list(self, *arguments: Any, **options: Any) -> Any:
        """Read all objects of a kind."""
        return await self._answer("list")(*arguments, **options)

    async def create(self, *arguments: Any, **options: Any) -> Any:
        """Create an object."""
        return await self._answer("create")(*arguments, **options)

    async def replace(self, *arguments: Any, **options: Any) -> Any:
        """Replace an object."""
        return await self._answer("replace")(*arguments, **options)

    async def delete(self, *arguments: Any, **options: Any) -> Any:
        """Delete an object."""
        return await self._answer("delete")(*arguments, **options)

    def server_now(self) -> datetime:
        """Return the time of the server."""
        assert self._now is not None, "the test says no time"
        return self._now

    def _answer(self, verb: str) -> Answer:
        if verb not in self._answers:
            raise UnexpectedCallError(verb)
        return self._answers[verb]
