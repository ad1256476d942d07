"""What the metrics are rendered from."""

from hypothesis import given
from hypothesis import strategies as st

from fipop.metrics.samples import clean_label, result_label


@given(st.text(alphabet=st.characters(categories=None)))
def test_any_text_becomes_a_label_that_can_be_encoded_and_a_clean_one_stays(text: str) -> None:
    found = clean_label(text)
    found.encode("utf-8")
    assert clean_label(found) == found
    assert clean_label("guest-vlan é") == "guest-vlan é"


def test_how_it_ended_is_said_as_the_legacy_counter_says_it() -> None:
    assert (result_label(True), result_label(False)) == ("success", "error")
