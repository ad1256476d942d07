"""How far a rollout is, as values, and how that is written into ConfigMap `fipop-rollout`.

Guests that succeeded are not kept: the labels of their releases tell. 5,000 guests in one wave take 200 KiB.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """Where a rollout stands."""

    CANARY = "Canary"
    WAVE = "Wave"
    STOPPED = "Stopped"
    COMPLETED = "Completed"

    @property
    def is_active(self) -> bool:
        """Whether guests are still admitted."""
        return self in (Phase.CANARY, Phase.WAVE)


class Step(StrEnum):
    """Where one guest of a rollout stands."""

    ADMITTED = "admitted"
    UPGRADING = "upgrading"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    PASSED_OVER = "passed-over"
    """Not ready before its turn, and not by the deadline either: it counts for nothing."""
    ROLLED_BACK = "rolled-back"

    @property
    def is_final(self) -> bool:
        """Whether a wave waits for the guest no longer."""
        return self not in (Step.ADMITTED, Step.UPGRADING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestProgress:
    """One admitted guest.

    `since`: Unix time when helm began there (ADMITTED: when it was admitted). `revisions`: of kube-vip and of the
    provider, those deployed before the first touch; 0 for none. `weak`: it was not ready before its turn.
    `wave`: the one that admitted it.
    """

    step: Step
    since: float
    revisions: tuple[int, int]
    wave: int
    weak: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutState:
    """One rollout. `target` and `stable` name targets, `stable` "" where none was completed yet.

    `number` counts rollouts. `size` is that of the wave when it began. `acted`: the annotation that was acted upon.
    """

    number: int
    target: str
    stable: str
    phase: Phase
    started_at: float
    wave: int = 0
    size: int = 0
    guests: Mapping[str, GuestProgress] = field(default_factory=dict)
    acted: str = ""
    reason: str = ""
    """Why it stopped, for people."""

    def of_wave(self) -> dict[str, GuestProgress]:
        """Give the guests of the wave that goes on."""
        return {guest_id: each for guest_id, each in self.guests.items() if each.wave == self.wave}

    def count(self, step: Step) -> int:
        """Count the guests of the wave at a step."""
        return sum(each.step is step for each in self.of_wave().values())


_LETTERS = {
    Step.ADMITTED: "a",
    Step.UPGRADING: "u",
    Step.SUCCEEDED: "s",
    Step.FAILED: "f",
    Step.SKIPPED: "k",
    Step.PASSED_OVER: "p",
    Step.ROLLED_BACK: "r",
}
_STEPS = {letter: step for step, letter in _LETTERS.items()}
_COLUMNS = 7


def render_state(state: RolloutState) -> dict[str, str]:
    """Give the data of the ConfigMap."""
    head = {
        "number": state.number,
        "target": state.target,
        "stable": state.stable,
        "phase": state.phase.value,
        "startedAt": round(state.started_at),
        "wave": state.wave,
        "size": state.size,
        "acted": state.acted,
        "reason": state.reason,
    }
    lines = [
        f"{guest_id} {_LETTERS[one.step]} {round(one.since)} {one.revisions[0]} {one.revisions[1]} {one.wave} "
        f"{'w' if one.weak else '-'}"
        for guest_id, one in sorted(state.guests.items())
    ]
    return {"rollout": json.dumps(head), "guests": "\n".join(lines)}


def parse_state(data: Mapping[str, Any]) -> RolloutState | None:
    """Read what `render_state` wrote; None for anything else, which is as good as nothing."""
    try:
        head = json.loads(data["rollout"])
        return RolloutState(
            number=int(head["number"]),
            target=str(head["target"]),
            stable=str(head["stable"]),
            phase=Phase(head["phase"]),
            started_at=float(head["startedAt"]),
            wave=int(head["wave"]),
            size=int(head["size"]),
            acted=str(head["acted"]),
            reason=str(head["reason"]),
            guests=dict(_parse_guests(str(data.get("guests", "")))),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _parse_guests(text: str) -> Iterator[tuple[str, GuestProgress]]:
    for line in text.splitlines():
        columns = line.split()
        if len(columns) != _COLUMNS:
            raise ValueError("a line of guests is not complete")
        guest_id, letter, since, kube_vip, provider, wave, weak = columns
        yield (
            guest_id,
            GuestProgress(
                step=_STEPS[letter],
                since=float(since),
                revisions=(int(kube_vip), int(provider)),
                wave=int(wave),
                weak=weak == "w",
            ),
        )
