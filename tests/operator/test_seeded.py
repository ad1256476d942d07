"""The seeded faults follow the source: whether the simulation finds them is for the night."""

import pytest

from tests.operator.seeded import FAULTS


@pytest.mark.parametrize("name", [each.name for each in FAULTS])
def test_the_text_of_a_seeded_fault_stands_in_the_source_once(name: str) -> None:
    assert next(each for each in FAULTS if each.name == name).is_current()
