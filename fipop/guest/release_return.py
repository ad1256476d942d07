"""Brings a guest's releases back to what they were before a rollout touched them."""

from __future__ import annotations

from fipop.guest.helm.charts import WantedRelease
from fipop.guest.helm_turn import HelmTurn, Outcome, ReleaseAttempt
from fipop.guest.release_gate import Return


async def bring_back(turn: HelmTurn, wanted: WantedRelease, back: Return) -> Outcome:
    """Bring one release back: by `helm rollback`, which needs no chart, to the revision noted before the touch."""
    found, revision = turn.observed.managed.get(wanted.role), back.revisions.get(wanted.role, 0)
    if found is None:
        return Outcome()
    state, is_done = found, back.is_done(wanted.role, found)
    if is_done and revision in (0, state.latest.revision):
        return Outcome()
    attempt = ReleaseAttempt(
        turn=turn,
        role=wanted.role,
        what="back",
        failed="Could not roll back release",
        done="" if is_done else "Rolled back release",
        fields={"release": wanted.name, "revision": revision},
    )

    async def roll_back() -> None:
        if state.latest.status.is_under_way:
            await turn.records.drop(state)
        await turn.records.roll_back(state, revision)

    if is_done:
        return await attempt.make(turn.records.own_revision(state.latest))
    return await attempt.settle(state, roll_back, is_under_way=state.latest.status.is_under_way)
