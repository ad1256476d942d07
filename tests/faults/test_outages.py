"""Health is judged by what the probes said; the outages themselves are minutes long and part of the night."""

import pytest

from localfleet.faultproxy.rules import On, Rule, Schedule, classify
from tests.faults.outages import Look, judge, outages
from tests.faults.plans import Plan


def looks(*, red: tuple[float, ...] = (30.0, 320.0), dead: tuple[float, ...] = ()) -> list[Look]:
    """A look each second of an outage of 300 and 30 more; readiness turns with each time of `red`."""
    times = [float(at) for at in range(1, 331)]
    return [Look(at=at, live=at not in dead, ready=sum(turn <= at for turn in red) % 2 == 0) for at in times]


def test_health_that_told_the_truth_is_no_violation() -> None:
    assert judge(looks(), over=300.0, back_after=3.0) == []
    assert judge(looks(red=(9.0, 320.0), dead=(9.0, 10.0)), over=300.0, back_after=3.0) == [], "a lost Lease"


@pytest.mark.parametrize(
    ("seen", "back_after", "sign"),
    [
        (looks(dead=(9.0, 325.0)), 3.0, "liveness was red from 9.0 s to 325.0 s"),
        (looks(red=()), 3.0, "readiness turned red after None"),
        (looks(red=(90.0, 320.0)), 3.0, "readiness turned red after 90"),
        (looks(red=(2.0, 320.0)), 3.0, "readiness turned red after 2"),
        (looks(red=(30.0, 100.0, 101.0, 320.0)), 3.0, "readiness turned green after 100.0 s"),
        (looks(red=(30.0,)), 3.0, "ready: False"),
        (looks(), 31.0, "back at work after 31.0 s"),
    ],
)
def test_health_that_did_not_is_one(seen: list[Look], back_after: float, sign: str) -> None:
    (found,) = judge(seen, over=300.0, back_after=back_after)
    assert sign in found


@pytest.mark.parametrize(
    ("over", "red", "is_right"),
    [(5.0, (), True), (5.0, (30.0, 32.0), False), (30.0, (), True), (30.0, (30.0, 32.0), True)],
)
def test_a_short_outage_need_not_turn_readiness_and_the_shortest_must_not(
    over: float, red: tuple[float, ...], is_right: bool
) -> None:
    assert (judge(looks(red=red), over=over, back_after=3.0) == []) is is_right


def test_readiness_may_flap_once_the_api_server_is_back() -> None:
    assert judge(looks(red=(30.0, 305.0, 306.0, 310.0)), over=300.0, back_after=3.0) == []


def test_an_outage_spares_no_request() -> None:
    schedule = Schedule([Rule(on=On.ALL, do=outages()[1].rules[0].do, rate=1.0)])
    paths = ["/readyz", "/version", "/apis/coordination.k8s.io/v1/namespaces/kube-fip/leases/fipop-operator"]
    assert all(schedule.decide(classify("PUT", path, "")) for path in paths)
    assert schedule.decide(classify("GET", "/api/v1/namespaces", "watch=1"))


def test_they_are_as_long_as_asked_for_and_can_be_replayed() -> None:
    made = outages()
    assert [plan.rules[0].seconds for plan in made] == [600.0, 120.0, 30.0, 5.0]
    assert [Plan.from_line(plan.to_line()) for plan in made] == made
