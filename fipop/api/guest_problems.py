"""What is wrong with the links of guest clusters, as the leader notes it on its Lease for `fipop status` and `check`.

Of a guest cluster without a floating IP, no other object can say it: the provisioning Cluster is Rancher's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from fipop.jsons import as_list, as_mapping
from fipop.texts import clean

MOST_PROBLEMS, MOST_GUESTS = 16, 500
"""How many problems are noted, and how many guest clusters of each: a Lease is written every few seconds."""
REST = "What it stands on cannot be read: the events of its Cluster have the cause."
"""The message of all guest clusters whose problems are more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestProblem:
    """One problem; `guests` are the ids of the guest clusters that have it."""

    reason: str
    message: str
    guests: tuple[str, ...]


def write_problems(found: Iterable[GuestProblem]) -> str:
    """Return problems as an annotation has them; "" if there is none."""
    problems = list(found)
    shown, rest = problems[: MOST_PROBLEMS - 1], problems[MOST_PROBLEMS - 1 :]
    if len(rest) > 1:
        guests = tuple(guest for each in rest for guest in each.guests)
        rest = [GuestProblem(reason=rest[0].reason, message=REST, guests=guests)]
    entries = [
        {"reason": each.reason, "message": each.message, "guests": each.guests[:MOST_GUESTS]}
        for each in (*shown, *rest)
    ]
    return json.dumps(entries) if entries else ""


def read_problems(text: str) -> tuple[GuestProblem, ...]:
    """Return what `write_problems` wrote; nothing of anything else."""
    try:
        entries = as_list(json.loads(text)) if text else []
    except (ValueError, RecursionError):
        return ()
    return tuple(
        GuestProblem(
            reason=clean(each.get("reason")),
            message=clean(each.get("message")),
            guests=tuple(map(clean, as_list(each.get("guests"))[:MOST_GUESTS])),
        )
        for each in map(as_mapping, entries[:MOST_PROBLEMS])
    )
