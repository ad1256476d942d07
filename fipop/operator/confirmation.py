"""Changes to many objects at once, which fipop withholds until an administrator confirms their number."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass

from fipop.operator.configuration import Configuration

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Confirmation:
    """Reports how many objects wait, by an event on kube-fip-config, and reads the number that confirms them there.

    A number confirms the objects that were reported with it, once. A number that was set before they were reported
    confirms nothing until it changes: it was meant for others. What is confirmed stays confirmed while it is asked for.
    The few that are left of what was withheld stay withheld: who puts a mistake right one by one loses none of them.

    An object that is over must never equal a later one: a confirmation that is left of it would hold for that one.
    """

    configuration: Configuration
    annotation: str
    reason: str
    message: str
    """What the event says first. "{count}" stands for the number."""
    _confirmed: frozenset[Hashable] = frozenset()
    _reported: frozenset[Hashable] = frozenset()
    """The objects of the last event; empty if nothing waits."""
    _void: int = -1
    """How often the annotation had changed by the last event: the value of then confirms nothing."""

    def permitted(self, objects: frozenset[Hashable], *, most: int) -> frozenset[Hashable]:
        """Return those of `objects` that can go on now: up to `most` without a confirmation, or what is confirmed."""
        value = self.configuration.annotations.get(self.annotation, "")
        changes = self.configuration.annotation_changes[self.annotation]
        self._confirmed &= objects
        waiting = objects - self._confirmed
        if len(waiting) <= most and waiting.isdisjoint(self._reported):
            self._reported = frozenset()
            return objects
        is_confirmed = value == str(len(self._reported)) and changes != self._void
        if is_confirmed and waiting <= self._reported:
            self._confirmed, self._reported = objects, frozenset()
            return objects
        if waiting != self._reported:
            self._reported, self._void = waiting, changes
            self._report(len(waiting), value)
        return self._confirmed

    def _report(self, count: int, value: str) -> None:
        logger.error("Withheld changes to many objects", extra={"reason": self.reason, "count": count})
        message = self.message.format(count=count)
        message += f' Check that, then set annotation {self.annotation}: "{count}" here.'
        if value == str(count):
            message += " The annotation has this value from before: remove it first."
        self.configuration.complain(self.reason, message)
