"""Hostile Services beside well-behaved ones: a cross-section of what `make night PART=hostile-services` runs."""

import pytest

from localfleet.fleet import LocalFleet
from tests.hostile.service_kinds import KINDS
from tests.hostile.services import open_service_stage, run_kinds

CHOSEN = {
    "addresses-by-the-thousand",
    "ports-by-the-thousand",
    "pools-by-the-thousand",
    "forged-note",
}


@pytest.mark.slow
async def test_hostile_services_cost_their_provider_neither_memory_nor_time(fleet: LocalFleet) -> None:
    kinds = [kind for kind in KINDS if kind.name in CHOSEN]
    assert len(kinds) == len(CHOSEN)
    async with open_service_stage(fleet, "hostile-services", neighbours=20) as stage:
        await run_kinds(stage, kinds, rounds=["alone"])
    problems = {each.kind: each.problems for each in stage.measured}
    # How long others wait is for the night: here other tests share the machine.
    told = {
        name: [each for each in found if "Service waited" not in each] for name, found in problems.items()
    }
    assert not any(told.values()), told
    assert len(told) == len(kinds)
