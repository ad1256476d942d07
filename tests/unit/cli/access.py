"""Access to a management cluster that is never asked: what would be read is a test's."""

from typing import Self


class Unasked:
    """Stands where a client does."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None
