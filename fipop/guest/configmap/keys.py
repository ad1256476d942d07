"""The keys that the floating IPs of a guest ask for in its ConfigMap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fipop.api.objects import FloatingIP
from fipop.ipam.addresses import format_address, parse_address

CIDR = "cidr-"
ALLOW_SHARE = "allow-share-"
INTERFACE = "interface-"
GLOBAL = "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredKey:
    """One key with its value; `overwrite`: also where somebody else's value stands."""

    name: str
    value: str
    overwrite: bool
    floating_ips: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """`floating_ip` wants another value for `key` than an older floating IP of the same guest, which wins."""

    floating_ip: tuple[str, str]
    key: str
    wanted: str
    used: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredKeys:
    """All keys that a guest's floating IPs want, by name, and where they contradict each other."""

    keys: tuple[DesiredKey, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A key while the floating IPs of a guest are gone through."""

    values: list[str] = field(default_factory=list)
    overwrite: bool = False
    floating_ips: list[tuple[str, str]] = field(default_factory=list)

    def add(self, floating_ip: FloatingIP, values: Iterable[str]) -> None:
        self.values += [value for value in values if value not in self.values]
        self.overwrite = self.overwrite or floating_ip.update_config_map
        self.floating_ips.append(floating_ip.key)


def build_keys(floating_ips: Iterable[FloatingIP], granted: frozenset[str]) -> DesiredKeys:
    """Merge a guest's floating IPs into keys, oldest first: pools joined by commas, the first word stands else.

    `granted`: the addresses that reservations back. A floating IP without one of these asks for nothing.
    """
    drafts: dict[str, _Draft] = {}
    contradictions = []
    for one in sorted(floating_ips, key=lambda each: (each.created, each.key)):
        addresses = [address for address in one.status.addresses if address in granted]
        if not addresses:
            continue
        scope = one.spec.service_namespace or GLOBAL
        drafts.setdefault(CIDR + scope, _Draft()).add(one, map(as_cidr, addresses))
        for key, value in _single_values(one, scope):
            draft = drafts.setdefault(key, _Draft())
            if draft.values and draft.values != [value]:
                contradictions.append(
                    Contradiction(floating_ip=one.key, key=key, wanted=value, used=draft.values[0])
                )
                continue
            draft.add(one, (value,))
    keys = tuple(
        DesiredKey(
            name=name,
            value=",".join(draft.values),
            overwrite=draft.overwrite,
            floating_ips=tuple(draft.floating_ips),
        )
        for name, draft in sorted(drafts.items())
    )
    return DesiredKeys(keys=keys, contradictions=tuple(contradictions))


def as_cidr(address: str) -> str:
    """Return an address as a pool of one: `10.0.0.1/32`, `fd00::1/128`. Raises: AddressSyntaxError."""
    parsed = parse_address(address)
    return f"{format_address(parsed)}/{parsed.family.bits}"


def _single_values(one: FloatingIP, scope: str) -> list[tuple[str, str]]:
    found = []
    if one.spec.allow_share is not None:
        found.append((ALLOW_SHARE + scope, "true" if one.spec.allow_share else "false"))
    if one.spec.interface:
        found.append((INTERFACE + scope, one.spec.interface))
    return found
