"""The values that go into a ledger and come out of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

from fipop.ipam.pool import Pool

OwnerT = TypeVar("OwnerT", bound=Hashable)
_EPOCH = datetime.fromtimestamp(0, UTC)


class Record(NamedTuple, Generic[OwnerT]):
    """The record of an address.

    `owner` None: an unknown owner. `range_name` is the range that counts it (None, or a range that is not there: it
    counts nowhere). `quarantined_until` None: held, else `owner` is the former owner.
    """

    owner: OwnerT | None
    range_name: str | None
    quarantined_until: datetime | None = None

    @property
    def is_held(self) -> bool:
        """Whether it has an owner now, not a former one."""
        return self.quarantined_until is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A named pool of the space; age is by `created`, then name. A draining range assigns nothing."""

    name: str
    pool: Pool
    created: datetime = _EPOCH
    descending: bool = False
    draining: bool = False

    @property
    def age(self) -> tuple[datetime, str]:
        """What the older of two ranges has less of."""
        return self.created, self.name


class Usage(NamedTuple):
    """How full a range is; total = used + free + quarantined.

    A record counts once, at the range that it names: as used or quarantined if that range assigns the address, else
    as `out_of_range`, which is not in the total.
    """

    used: int = 0
    free: int = 0
    quarantined: int = 0
    out_of_range: int = 0

    @property
    def total(self) -> int:
        """The capacity: all addresses that the range assigns."""
        return self.used + self.free + self.quarantined


class RangeUsage(NamedTuple):
    """The usage of a range, whole and by family."""

    whole: Usage = Usage()
    ipv4: Usage = Usage()
    ipv6: Usage = Usage()
