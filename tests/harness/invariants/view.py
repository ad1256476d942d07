"""A view of ranges, floating IPs, reservations and reports: who has which address, and what each range can give.

Nothing here is asked of the product. Texts of ranges are single addresses, `first-last`, and CIDRs.
"""

import ipaddress
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, Json, Key
from tests.harness.stored import Owner, of_kind, owner_of

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class View:
    """What is stored, kind by kind."""

    ranges: tuple[Json, ...] = ()
    floating_ips: tuple[Json, ...] = ()
    reservations: tuple[Json, ...] = ()
    held: dict[tuple[str, Ip], Json] = field(default_factory=dict, init=False)
    named: dict[tuple[str, Ip], set[Owner]] = field(default_factory=dict, init=False)
    reported: dict[tuple[str, Ip], tuple[str, list[str]]] = field(default_factory=dict, init=False)
    """What only guest clusters use: the range whose status says so, and the guest clusters."""

    @classmethod
    def of(cls, now: Mapping[Key, Json]) -> "View":
        """Return the view of a store."""
        return cls(*(tuple(of_kind(now, each)) for each in (RANGES, FLOATING_IPS, RESERVATIONS)))

    def __post_init__(self) -> None:
        for each in self.reservations:
            self.held[each["spec"]["space"], ipaddress.ip_address(each["spec"]["address"])] = each
        for each in self.floating_ips:
            for text in addresses_named_by(each):
                slot = (self.space_of(each), ipaddress.ip_address(text))
                self.named.setdefault(slot, set()).add(key_of(each))
        own = {(address, each["spec"]["owner"]["namespace"]) for (_, address), each in self.held.items()}
        for found in self.ranges:
            for entry in (found.get("status") or {}).get("reported", ()):
                slot = (space_of_range(found), ipaddress.ip_address(entry["address"]))
                # What a guest cluster holds, or held, in another space explains its use.
                is_own = (slot[1], entry["guest"]) in own
                giver = self._find_giver(*slot) if slot[1] in pool_of(found) and not is_own else None
                if giver is not None and slot not in self.held and slot not in self.named:
                    _, guests = self.reported.setdefault(slot, (giver["metadata"]["name"], []))
                    guests[:] = sorted({*guests, entry["guest"]})

    def _find_giver(self, space: str, address: Ip) -> Json | None:
        """Return the range that assigns an address, whichever range's status names it."""
        of_space = (each for each in self.ranges if space_of_range(each) == space)
        return next((each for each in of_space if address in self.given(each)), None)

    def range(self, name: str) -> Json | None:
        return next((each for each in self.ranges if each["metadata"]["name"] == name), None)

    def spaces(self) -> set[str]:
        """Return every space of a range, a reservation or a floating IP."""
        found = {
            *(space_of_range(each) for each in self.ranges),
            *(each["spec"]["space"] for each in self.reservations),
            *map(self.space_of, self.floating_ips),
        }
        return found or {"default"}

    def space_of(self, floating_ip: Json) -> str:
        """Return the space of the addresses that a floating IP names."""
        told = (floating_ip.get("status") or {}).get("addressSpace")
        found = self.range(range_of(floating_ip))
        return told or (space_of_range(found) if found is not None else "default")

    def given(self, found: Json) -> set[Ip]:
        """Return what a range gives, whoever has it: its pool without those of the older ranges of its space."""
        addresses = pool_of(found)
        for other in self.ranges:
            if age_of(other) < age_of(found) and space_of_range(other) == space_of_range(found):
                addresses -= pool_of(other)
        return addresses

    def holder(self, space: str, address: Ip) -> tuple[Owner, str, bool] | None:
        """Return who has an address, from which range, and whether it is released; None if nobody names it.

        One that only a guest cluster uses counts as released.
        """
        held = self.held.get((space, address))
        if held is not None:
            owner = held["spec"]["owner"]
            return (
                (owner["namespace"], owner["name"]),
                held["spec"]["range"],
                "quarantinedUntil" in held["spec"],
            )
        named = self.named.get((space, address))
        if not named:
            range_name, guests = self.reported.get((space, address), ("", []))
            return ((guests[0], ""), range_name, True) if guests else None
        naming = (each for each in self.floating_ips if key_of(each) in named)
        # A status that names it comes before a spec that does.
        by = min(naming, key=lambda each: (not is_served(each), key_of(each)))
        return key_of(by), range_of(by), False

    def taken(self, space: str) -> set[Ip]:
        """Return the addresses of a space that a floating IP has, had last or names, or that a guest cluster uses."""
        return {address for one, address in (*self.held, *self.named, *self.reported) if one == space}

    def had_by_others(self, space: str, owner: Owner) -> set[Ip]:
        """Return the addresses of a space that reservations and floating IPs of other owners name."""
        held = {slot[1] for slot, each in self.held.items() if slot[0] == space and owner_of(each) != owner}
        return held | {
            slot[1] for slot, owners in self.named.items() if slot[0] == space and owners - {owner}
        }

    def state(self, space: str, address: Ip) -> tuple[str, str]:
        """Return what an address is, and the range where it counts; "" if that is not looked at."""
        if (space, address) in self.held:
            holder = self.holder(space, address)
            assert holder is not None
            return "quarantined" if holder[2] else "held", holder[1]
        if (space, address) in self.named:
            return "named", ""
        if (space, address) in self.reported:
            return "reported", self.reported[space, address][0]
        here = sorted((each for each in self.ranges if space_of_range(each) == space), key=age_of)
        for each in here:
            if address in self.given(each) and not each["spec"].get("draining"):
                return "free", each["metadata"]["name"]
        for each in here:
            if address in written_by(each):
                return "withheld", each["metadata"]["name"]
        return "unknown", ""

    def others(self, space: str, address: Ip) -> set[Owner]:
        """Return who names or uses an address beside its holder."""
        holder = self.holder(space, address)
        _, guests = self.reported.get((space, address), ("", []))
        found = self.named.get((space, address), set()) | {(each, "") for each in guests}
        return found - {holder[0]} if holder is not None else found

    def having(self, space: str, address: Ip) -> set[Owner]:
        """Return who says that it has an address: by a reservation, or by a status."""
        found = {
            key_of(each)
            for each in self.floating_ips
            if key_of(each) in self.named.get((space, address), set())
            and str(address) in (each.get("status") or {}).get("addresses", ())
        }
        holder = self.holder(space, address)
        if (space, address) in self.held and holder is not None and not holder[2]:
            found.add(holder[0])
        return found

    def asking(self, space: str, address: Ip) -> set[Owner]:
        """Return the floating IPs whose spec names an address."""
        return {
            key_of(each)
            for each in self.floating_ips
            if self.space_of(each) == space and str(address) in _parts(each)
        }

    def usage(self, found: Json, version: int) -> Counter[str]:
        """Count the addresses of one family of a range."""
        name, space = found["metadata"]["name"], space_of_range(found)
        given = {each for each in self.given(found) if each.version == version}
        counts: Counter[str] = Counter(used=0, quarantined=0, outOfRange=0, free=len(given))
        for other, address in {*self.held, *self.named, *self.reported}:
            if address.version != version:
                continue
            holder = self.holder(other, address)
            assert holder is not None
            _, range_name, is_released = holder
            is_here = other == space and address in given
            counts["free"] -= is_here
            if range_name == name:
                counts["outOfRange" if not is_here else "quarantined" if is_released else "used"] += 1
        return counts

    def percent(self, found: Json) -> float | None:
        """Return how full the fullest family of a range is; None for a range without any address."""
        families = {address.version for address in pool_of(found)}
        shares = (self._percent_of(self.usage(found, each)) for each in families)
        return max((each for each in shares if each is not None), default=None)

    def _percent_of(self, counts: Mapping[str, int]) -> float | None:
        taken = counts["used"] + counts["quarantined"]
        total = taken + counts["free"]
        return round(100 * taken / total, 1) if total else None

    def is_full(self, found: Json) -> bool:
        """Whether a family of a range has no free address."""
        families = {address.version for address in pool_of(found)}
        return not families or any(self.usage(found, each)["free"] <= 0 for each in families)

    def next_free(self, found: Json, version: int | None) -> list[Ip]:
        """Return all free addresses of a family of a range in its order, IPv4 unless the range has none."""
        families = sorted({address.version for address in pool_of(found)})
        if found["spec"].get("draining") or not families:
            return []
        chosen = version or families[0]
        free = self.given(found) - self.taken(space_of_range(found))
        ordered = sorted((each for each in free if each.version == chosen), key=int)
        return ordered[::-1] if found["spec"].get("searchOrder") == "desc" else ordered

    def of_guest(self, namespace: str) -> set[tuple[str, Ip]]:
        """Return what floating IPs of a guest have, had last, or name in spec or status, and what else it uses."""
        found = {slot for slot, (_, guests) in self.reported.items() if namespace in guests}
        found |= {slot for slot, each in self.held.items() if each["spec"]["owner"]["namespace"] == namespace}
        for each in self.floating_ips:
            if each["metadata"]["namespace"] == namespace:
                texts = [*(each.get("status") or {}).get("addresses", ()), *_parts(each)]
                found |= {(self.space_of(each), ipaddress.ip_address(text)) for text in texts}
        return found


def key_of(floating_ip: Json) -> Owner:
    return floating_ip["metadata"]["namespace"], floating_ip["metadata"]["name"]


def is_served(floating_ip: Json) -> bool:
    return bool((floating_ip.get("status") or {}).get("observedGeneration"))


def range_of(floating_ip: Json) -> str:
    annotations = floating_ip["metadata"].get("annotations") or {}
    return (floating_ip.get("status") or {}).get("range") or annotations.get("fiprange") or ""


def addresses_named_by(floating_ip: Json) -> list[str]:
    """Return what the status of a floating IP names; before its first status, what its spec names."""
    if is_served(floating_ip):
        return list(floating_ip["status"].get("addresses", ()))
    return _parts(floating_ip)


def space_of_range(found: Json) -> str:
    return str(found["spec"].get("addressSpace") or "default")


def age_of(found: Json) -> tuple[str, str]:
    return found["metadata"]["creationTimestamp"], found["metadata"]["name"]


def written_by(found: Json) -> set[Ip]:
    """Return every address of a range's text."""
    return {address for part in found["spec"]["iprange"].split(",") for address in _expand(part)}


def excluded_by(found: Json) -> set[Ip]:
    """Return every address of a range's exclusions."""
    return {address for text in found["spec"].get("exclude", ()) for address in _expand(text)}


def pool_of(found: Json) -> set[Ip]:
    """Return what a range can give by its own text: without ends of CIDRs, .0 and .255, and exclusions."""
    addresses: set[Ip] = set()
    ends: set[Ip] = set()
    for part in found["spec"]["iprange"].split(","):
        whole = _expand(part)
        if "/" in part:
            network = ipaddress.ip_network(part)
            cut = {network[0]} if network.version == 6 else {network[0], network[-1]}
            whole -= cut
            ends |= cut if network.version == 6 else set()
        addresses |= whole
    addresses -= excluded_by(found)
    buggy = {each for each in addresses if each.version == 4 and each.packed[-1] in (0, 255)}
    return addresses - buggy - ends


def _expand(part: str) -> set[Ip]:
    if "/" in part:
        return set(ipaddress.ip_network(part))
    first, _, last = part.partition("-")
    begin, end = ipaddress.ip_address(first), ipaddress.ip_address(last or first)
    return {begin + number for number in range(int(end) - int(begin) + 1)}


def _parts(floating_ip: Json) -> list[str]:
    text = floating_ip["spec"].get("ipaddress", "")
    return [part for part in text.split(",") if part]
