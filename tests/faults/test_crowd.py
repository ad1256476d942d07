"""A full crowd must have met the harm that it is there for."""

from localfleet.faultproxy import Do, Passed
from localfleet.faultproxy.rules import classify
from tests.faults.crowd import crowd, untried

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
