"""Decisions are functions of facts: they change nothing, and the same facts always give the same result."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fipop.api.models import Reservation
from fipop.operator.addresses.holdings import plan
from fipop.operator.addresses.next_step import next_step
from tests.unit.operator.addresses.cases import build_facts, named, reservations_held, specs
from tests.unit.operator.addresses.facts import range_facts


@given(own=reservations_held, spec=specs, status=named, is_live=st.booleans(), free=st.booleans())
def test_the_same_facts_give_the_same_step_twice_and_stay_as_they_are(
    own: list[Reservation], spec: dict[str, Any], status: list[str], is_live: bool, free: bool
) -> None:
    where = range_facts() if free else range_facts(free=())
    facts = build_facts(own, spec, status, where=where, is_live=is_live)
    copied = copy.deepcopy(facts)
    holdings = plan(copied)
    before = copy.deepcopy(holdings)
    step = next_step(copied, holdings)
    assert (copied, holdings) == (facts, before), "neither facts nor holdings are changed"
    again = copy.deepcopy(facts)
    assert (plan(again), next_step(again, plan(again))) == (holdings, step)
