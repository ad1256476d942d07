"""Errors of the IPAM core; families are named as Kubernetes names them, addresses are canonical texts."""

from __future__ import annotations

from fipop.errors import FipopError
from fipop.texts import clean


class IpamError(FipopError):
    """A range or pool cannot be read, or cannot assign an address."""


class UnreadableSpecError(IpamError):
    """The spec of a range does not fit its schema."""


def quote(text: str, limit: int = 64) -> str:
    """Return a text of a user in quotes, printable and cut."""
    return f'"{clean(text, limit)}"'


class AddressSyntaxError(IpamError):
    """A text is no address; `problem` continues the sentence after the text."""

    def __init__(self, *, text: str, problem: str) -> None:
        self.text = text
        self.problem = problem
        super().__init__(f"{quote(text)} {problem}")


class RangeDrainingError(IpamError):
    """The range is being drained: it assigns nothing new."""

    def __init__(self, *, range_name: str) -> None:
        super().__init__(f"range {quote(range_name)} is draining and assigns no addresses. Use another range")


class FamilyMissingError(IpamError):
    """The pool has no address of the family: `lack` is why, or "" if no part of it is of that family.

    `families` are those that it has.
    """

    def __init__(
        self, *, range_name: str, pool_text: str, family: str, families: tuple[str, ...], lack: str = ""
    ) -> None:
        has = f"it has only {' and '.join(families)}" if families else "it has no addresses to assign"
        cause = lack or f"{has}. Extend spec.iprange of the range"
        super().__init__(f"range {quote(range_name)} ({quote(pool_text)}) has no {family}: {cause}")


class RangeFullError(IpamError):
    """No address of the family is free; `lack` is why, if the range assigns none at all.

    The message has no counts: it is in the status of all waiting floating IPs, and each change is a write.
    """

    def __init__(self, *, range_name: str, family: str, lack: str = "") -> None:
        cause = lack or (
            f"every {family} address is held or in quarantine. Delete unused FloatingIPs or extend spec.iprange"
        )
        super().__init__(f"range {quote(range_name)} is full: {cause}")


class AddressOutOfRangeError(IpamError):
    """The range does not assign the address, which `reason`."""

    def __init__(self, *, address: str, range_name: str, pool_text: str, reason: str) -> None:
        super().__init__(
            f"range {quote(range_name)} ({quote(pool_text)}) does not assign {address}, which {reason}"
        )
