"""Which watch events a story has in store for an operator: harm to others would strike nothing."""

import time
from collections.abc import Sequence

from localfleet.faultproxy import On, Passed
from tests.harness.history import OURS, History, Key

Event = tuple[str, str]
"""Type and plural, such as `("DELETED", "floatingips")`."""


def shown_to(passed: Sequence[Passed], history: History) -> frozenset[Event]:
    """The events that watches showed to the operator of whom `passed` came by.

    What was there before it first listed a resource came with that list, and with no event.
    """
    unix = time.time() - time.monotonic()
    listed: dict[str, float] = {}
    for each in passed:
        if each.seen.verb is On.LIST and each.seen.plural in OURS:
            listed[each.seen.plural] = min(each.at + unix, listed.get(each.seen.plural, float("inf")))
    return shown_since(listed, history)


def shown_since(listed: dict[str, float], history: History) -> frozenset[Event]:
    """The events after the first lists, whose Unix times `listed` has by plural."""
    there: set[Key] = set()
    found: set[Event] = set()
    for change in history.changes:
        if change.obj is None:
            event = "DELETED"
            there.discard(change.key)
        else:
            event = "MODIFIED" if change.key in there else "ADDED"
            there.add(change.key)
        if change.at > listed.get(change.plural, float("inf")):
            found.add((event, change.plural))
    return frozenset(found)
