"""A full crowd must have met the harm that it is there for."""

from localfleet.faultproxy import Do, Passed
from localfleet.faultproxy.rules import classify
from tests.faults.crowd import arrives, crowd, untried

RESERVATIONS = "/apis/kubefip.k8s.binbash.org/v1/floatingipreservations"


def create(*, status: int = 201, struck: Do | None = None) -> Passed:
    return Passed(seen=classify("POST", RESERVATIONS, ""), at=1.0, status=status, struck=struck)


LOST = create(status=0, struck=Do.CUT_AFTER)


def test_a_crowd_with_kills_lost_answers_and_two_at_work_was_one() -> None:
    assert untried({"a": [create(), LOST], "b": [create()]}, killed=1) == []


def test_what_was_not_tried_is_told() -> None:
    assert untried({"a": [create(), LOST], "b": [create()]}, killed=0) == ["trial: no operator was killed"]
    assert untried({"a": [create()], "b": [create()]}, killed=1) == ["trial: no answer was lost"]
    event = classify("POST", "/api/v1/namespaces/kube-fip/events", "")
    idle = [create(status=409), Passed(seen=event, at=1.0, status=201, struck=None)]
    assert untried({"a": [create(), LOST], "b": idle}, killed=1) == ["trial: b created no reservation"]


def test_a_crowd_says_how_many_it_is() -> None:
    assert crowd(150).size == 150


async def test_patience_ends_where_progress_ends_and_not_before() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    slow = iter([3, 3, 3, 2, 2, 2, 1, 1, 1, 0])
    assert await arrives(lambda: next(slow), stalled_seconds=4, pause=0, clock=clock), "longer than 4 in all"
    assert not await arrives(lambda: 1, stalled_seconds=4, pause=0, clock=clock)
    assert await arrives(lambda: -1, stalled_seconds=4, pause=0, clock=clock)
