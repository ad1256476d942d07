"""Errors of the IPAM core; families are named as Kubernetes names them, addresses are canonical texts."""

from __future__ import annotations

from fipop.errors import UnassignableError
from fipop.texts import clean


class IpamError(UnassignableError):
    """Base of the errors of the IPAM core."""


class UnreadableSpecError(IpamError):
    """The spec of a range does not fit its schema."""


def _quote(text: str, limit: int = 64) -> str:
    """Return a text of a user in quotes, printable and cut."""
    return f'"{clean(text, limit)}"'


class AddressSyntaxError(IpamError):
    """A text is no address; `problem` continues the sentence after the text."""

    def __init__(self, *, text: str, problem: str) -> None:
        self.text = text
        self.problem = problem
        super().__init__(f"{_quote(text)} {problem}")


class PoolSyntaxError(IpamError):
    """A part of a pool text is wrong. `where` names the text (the pool, exclusion 2), `position` counts from 1."""

    def __init__(self, *, text: str, where: str, part: str, position: int, problem: str) -> None:
        self.text = text
        self.where = where
        self.part = part
        self.position = position
        self.problem = problem
        super().__init__(f"part {position} of {where}, {_quote(part)}, {problem}")


class PoolTooLargeError(IpamError):
    """A pool text is longer, or has more parts, than is read; `unit` is characters or parts."""

    def __init__(self, *, where: str, found: int, limit: int, unit: str) -> None:
        self.where = where
        self.found = found
        self.limit = limit
        self.unit = unit
        super().__init__(
            f"{where} must have at most {limit} {unit}: it has {found}. Split it into several ranges"
        )


class RangeUnknownError(IpamError):
    """The address space has no range of that name."""

    def __init__(self, *, range_name: str) -> None:
        self.range_name = range_name
        super().__init__(f"range {_quote(range_name)} does not exist in this address space")


class RangeDrainingError(IpamError):
    """The range is being drained: it assigns nothing new."""

    def __init__(self, *, range_name: str) -> None:
        self.range_name = range_name
        super().__init__(
            f"range {_quote(range_name)} is draining and assigns no addresses. Use another range"
        )


class FamilyMissingError(IpamError):
    """The pool has no address of the family; `families` are those that it has."""

    def __init__(self, *, range_name: str, pool_text: str, family: str, families: tuple[str, ...]) -> None:
        self.range_name = range_name
        self.pool_text = pool_text
        self.family = family
        self.families = families
        has = f"it has only {' and '.join(families)}" if families else "it has no addresses to assign"
        super().__init__(
            f"range {_quote(range_name)} ({_quote(pool_text)}) has no {family}: {has}. Extend spec.iprange of the range"
        )


class RangeFullError(IpamError):
    """No address of the family is free.

    The message has no counts: it is in the status of all waiting floating IPs, and each change is a write.
    """

    def __init__(self, *, range_name: str, family: str) -> None:
        self.range_name = range_name
        self.family = family
        super().__init__(
            f"range {_quote(range_name)} is full: every {family} address is held or in quarantine. "
            "Delete unused FloatingIPs or extend spec.iprange"
        )


class AddressOutOfRangeError(IpamError):
    """The range does not assign the address; `reason` ends the clause, `older_range` owns an overlap."""

    def __init__(
        self, *, address: str, range_name: str, pool_text: str, reason: str, older_range: str | None = None
    ) -> None:
        self.address = address
        self.range_name = range_name
        self.pool_text = pool_text
        self.reason = reason
        self.older_range = older_range
        super().__init__(
            f"range {_quote(range_name)} ({_quote(pool_text)}) does not assign {address}: the address {reason}"
        )
