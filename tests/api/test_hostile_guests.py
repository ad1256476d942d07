"""Hostile guests beside well-behaved ones: a cross-section of what `make night PART=hostile-guests` runs in full."""

import pytest

from localfleet.fleet import LocalFleet
from tests.hostile.cases import CASES
from tests.hostile.run import open_stage, run_cases

CHOSEN = [
    "kubeconfig-exec",
    "kubeconfig-alias-bomb",
    "kubeconfig-another-guest",
    "transport-endless-body",
    "transport-reason-of-a-megabyte",
    "answer-small-objects",
    "answer-pages-without-end",
    "answer-annotations-number",
    "survey-secrets-without-end",
    "survey-date-9999",
    "release-bomb-of-small-objects",
    "release-foreign-chart",
    "helm-denial-of-192-kb",
    "helm-redirect-307",
    "helm-flood",
    "slow-headers-for-ever",
]


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_a_hostile_guest_does_no_harm_beyond_itself(fleet: LocalFleet) -> None:
    cases = [case for case in CASES if case.name in CHOSEN]
    assert len(cases) == len(CHOSEN)
    async with open_stage(fleet, "hostile-few", neighbours=20) as stage:
        await run_cases(stage, cases, rounds=["together"])
        await stage.watch.stop()
    assert [one for one in stage.outcomes if one.problem] == []
    assert len(stage.outcomes) == len(cases)
    assert stage.watch.findings == []
    assert stage.waits.missed == 0
    assert stage.watch.rss_mib < 400
    assert stage.watch.stall_ms <= 250, stage.watch.long_callbacks[:3]
