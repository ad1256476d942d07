"""What is wrong with the links of guest clusters, as the leader notes it on its Lease for `fipop status` and `check`.

Of a guest cluster without a floating IP, no other object can say it: the provisioning Cluster is Rancher's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fipop.jsons import as_list, as_mapping
from fipop.texts import clean

MOST_BYTES = 1536
"""How much of the Lease problems take: it stays below 4 KiB, is written every 2 s, and every replica reads it."""
MOST_WHOLE_BYTES = MOST_BYTES // 3
"""How much those take that are noted with their own message; the ids of guest clusters that have others follow."""
REST = "What it stands on cannot be read: the events of its Cluster have the cause."
"""The message of all guest clusters whose problems are more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestProblem:
    """One problem; `guests` are the ids of the guest clusters that have it, and `more` have it, too."""

    reason: str
    message: str
    guests: tuple[str, ...]
    more: int = 0


def write_problems(found: Iterable[GuestProblem]) -> str:
    """Return problems as an annotation has them; "" if there is none. Guest clusters that do not fit are counted."""
    shown: list[GuestProblem] = []
    rest: list[GuestProblem] = []
    for each in found:
        (shown if _measure([*shown, each]) <= MOST_WHOLE_BYTES else rest).append(each)
    if rest:
        first = replace(rest[0], guests=())
        has_room = len(rest) == 1 and _measure([*shown, first]) <= 2 * MOST_WHOLE_BYTES
        last = first if has_room else replace(first, message=REST)
        shown.append(_fill(shown, last, [guest for each in rest for guest in each.guests]))
    return _write(shown) if shown else ""


def read_problems(text: str) -> tuple[GuestProblem, ...]:
    """Return what `write_problems` wrote; nothing of anything else."""
    try:
        entries = as_list(json.loads(text)) if 0 < len(text) <= MOST_BYTES else []
    except (ValueError, RecursionError):
        return ()
    return tuple(
        GuestProblem(
            reason=clean(each.get("reason")),
            message=clean(each.get("message")),
            guests=tuple(map(clean, as_list(each.get("guests")))),
            more=more if isinstance(more := each.get("more"), int) else 0,
        )
        for each in map(as_mapping, entries)
    )


def _fill(shown: list[GuestProblem], last: GuestProblem, guests: list[str]) -> GuestProblem:
    """Return the last problem with as many of its guest clusters as there is room for."""
    left = MOST_BYTES - _measure([*shown, replace(last, more=len(guests))])
    count = 0
    for each in guests:
        left -= len(json.dumps(f',"{each}"')) - len('""')
        if left < 0:
            break
        count += 1
    return replace(last, guests=tuple(guests[:count]), more=len(guests) - count)


def _write(problems: list[GuestProblem]) -> str:
    return json.dumps(
        [
            {"reason": each.reason, "message": each.message, "guests": each.guests, "more": each.more}
            for each in problems
        ],
        separators=(",", ":"),
    )


def _measure(problems: list[GuestProblem]) -> int:
    """Return how many bytes problems take in a Lease, which is JSON itself."""
    return len(json.dumps(_write(problems)))
