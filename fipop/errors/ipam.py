"""Errors of the core; conditions quote their messages."""

from __future__ import annotations

from fipop.errors.base import FipopError
from fipop.texts import clean


class IpamError(FipopError):
    """The core refuses; families are named as Kubernetes names them, addresses are canonical texts."""


def _quote(text: str, limit: int = 64) -> str:
    """Quote what people wrote, printable and cut, so that a sentence stays a sentence."""
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
    """A pool text is longer, or has more parts, than is read; `unit` says which."""

    def __init__(self, *, where: str, found: int, limit: int, unit: str) -> None:
        self.where = where
        self.found = found
        self.limit = limit
        self.unit = unit
        super().__init__(f"{found} {unit} in {where}, at most {limit} are read: split it into several ranges")


class RangeUnknownError(IpamError):
    """The address space has no range of that name."""

    def __init__(self, *, range_name: str) -> None:
        self.range_name = range_name
        super().__init__(f"there is no range {_quote(range_name)} in this address space")


class AddressSpaceChangedError(IpamError):
    """The range was made anew in another address space while addresses of its name are used in the former one."""

    def __init__(self, *, range_name: str, former: str, space: str) -> None:
        self.range_name = range_name
        self.former = former
        self.space = space
        super().__init__(
            f"range {_quote(range_name)} is of address space {_quote(space)} now, and addresses of this name are "
            f"used, or in quarantine, in {_quote(former)}: it gives out nothing; make it under another name"
        )


class RangeDrainingError(IpamError):
    """The range is being drained: it gives out nothing new."""

    def __init__(self, *, range_name: str) -> None:
        self.range_name = range_name
        super().__init__(f"range {_quote(range_name)} is draining and gives out nothing")


class FamilyMissingError(IpamError):
    """The pool has no address of the family; `families` are those that it has."""

    def __init__(self, *, range_name: str, pool_text: str, family: str, families: tuple[str, ...]) -> None:
        self.range_name = range_name
        self.pool_text = pool_text
        self.family = family
        self.families = families
        has = f"only {' and '.join(families)}" if families else "no addresses to give out"
        super().__init__(f"range {_quote(range_name)} ({_quote(pool_text)}) has no {family}, {has}")


class RangeFullError(IpamError):
    """No address of the family is free; total = used + quarantined then.

    The message has no counts: it stands in the status of all who wait, and is written anew wherever it changes.
    """

    def __init__(
        self, *, range_name: str, pool_text: str, family: str, total: int, used: int, quarantined: int
    ) -> None:
        self.range_name = range_name
        self.pool_text = pool_text
        self.family = family
        self.total = total
        self.used = used
        self.quarantined = quarantined
        super().__init__(
            f"range {_quote(range_name)} is full: every {family} address is held or in quarantine"
        )


class AddressOutOfRangeError(IpamError):
    """The range does not give out the address; `reason` ends the sentence, `older_range` owns an overlap."""

    def __init__(
        self, *, address: str, range_name: str, pool_text: str, reason: str, older_range: str | None = None
    ) -> None:
        self.address = address
        self.range_name = range_name
        self.pool_text = pool_text
        self.reason = reason
        self.older_range = older_range
        super().__init__(
            f"range {_quote(range_name)} ({_quote(pool_text)}) does not give out {address}: it {reason}"
        )


class PoolFamilyMissingError(IpamError):
    """The pool of a key has no address of a family at all."""

    def __init__(self, *, key: str, family: str) -> None:
        self.key = key
        self.family = family
        super().__init__(f"{key} has no {family} address")


class PoolExhaustedError(IpamError):
    """Every address of a family that the pool of a key gives out has a tenant; `total` is how many it gives out."""

    def __init__(self, *, key: str, family: str, total: int) -> None:
        self.key = key
        self.family = family
        self.total = total
        super().__init__(f"{key} is full: all of its {total} {family} addresses are in use")
