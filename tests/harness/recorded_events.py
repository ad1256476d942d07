"""Events of the Kubernetes API as a test reads them: nothing is sent, nothing is merged."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """One event. `about` is the reference of its object."""

    about: Any
    type: Any
    reason: str
    message: str


class RecordedEvents:
    """Takes what a recorder of events takes, and keeps all of it in order."""

    def __init__(self) -> None:
        self.all: list[RecordedEvent] = []

    def record(self, about: Any, type: Any, reason: str, message: str, **_: Any) -> None:  # noqa: A002
        """Keep an event."""
        self.all.append(RecordedEvent(about=about, type=type, reason=reason, message=message))

    @property
    def reasons(self) -> list[str]:
        """The reasons of all events, in order."""
        return [each.reason for each in self.all]
