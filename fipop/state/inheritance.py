"""Which floating IPs were made for the predecessor, whose specs tell what their guests carry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from fipop.api.conditions import ConditionType
from fipop.api.models import FloatingIP

NOT_IN_RANGE = "AddressOutOfRange"
"""The reason of a refusal that an inherited address never gets."""


@dataclass(slots=True)
class Inheritance:
    """What was there before fipop.

    `ours_since` is the time when fipop came to this cluster: floating IPs without a status that are older were made
    for the predecessor.
    """

    ours_since: datetime | None = None
    _named: dict[tuple[str, str], str] | None = None
    """What their specs named when they were adopted; None before that."""

    def note(self, floating_ips: Iterable[FloatingIP]) -> None:
        """Note what is inherited: what a spec names later is a wish like any other."""
        self._named = None
        self._named = {each.meta.key: each.ipaddress for each in floating_ips if self.is_inherited(each)}

    def is_inherited(self, floating_ip: FloatingIP) -> bool:
        """Whether a floating IP was made for the predecessor: older than fipop here, and never served by it.

        Not one whose address was refused already as none of its range, nor one that names another since.
        """
        allocated = (each for each in floating_ip.status.conditions if each.type is ConditionType.ALLOCATED)
        return (
            self.ours_since is not None
            and floating_ip.meta.created < self.ours_since
            and not floating_ip.status.addresses
            and all(each.reason != NOT_IN_RANGE for each in allocated)
            and (self._named is None or self._named.get(floating_ip.meta.key) == floating_ip.ipaddress)
        )
