"""Health is judged by what the probes said; the outages themselves are minutes long and part of `make faults`."""

import pytest

from localfleet.faultproxy.rules import On, Rule, Schedule, classify
from tests.faults.outages import Probes, judge, outages
from tests.faults.plans import Plan


def probes(**said: object) -> Probes:
    found = Probes(operator=None)  # type: ignore[arg-type] # nobody asks it here
    found.unready_after = 30.0
    for name, value in said.items():
        setattr(found, name, value)
    return found


def test_health_that_told_the_truth_is_no_violation() -> None:
    assert judge(probes(), back_after=3.0) == []


@pytest.mark.parametrize(
    ("said", "back_after", "sign"),
    [
        ({"was_dead": True}, 3.0, "liveness was red"),
        ({"unready_after": None}, 3.0, "readiness turned red after None"),
        ({"unready_after": 90.0}, 3.0, "readiness turned red after 90"),
        ({"unready_after": 2.0}, 3.0, "readiness turned red after 2"),
        ({"ready": False}, 3.0, "ready: False"),
        ({}, 31.0, "back at work after 31.0 s"),
    ],
)
def test_health_that_did_not_is_one(said: dict[str, object], back_after: float, sign: str) -> None:
    (found,) = judge(probes(**said), back_after=back_after)
    assert sign in found


def test_an_outage_spares_no_request() -> None:
    schedule = Schedule([Rule(on=On.ALL, do=outages()[1].rules[0].do, rate=1.0)])
    paths = ["/readyz", "/version", "/apis/coordination.k8s.io/v1/namespaces/kube-fip/leases/fipop-operator"]
    assert all(schedule.decide(classify("PUT", path, "")) for path in paths)
    assert schedule.decide(classify("GET", "/api/v1/namespaces", "watch=1"))


def test_they_are_as_long_as_asked_for_and_can_be_replayed() -> None:
    made = outages()
    assert [plan.rules[0].seconds for plan in made] == [300.0, 120.0]
    assert [Plan.from_line(plan.to_line()) for plan in made] == made
