"""What anybody may have written is read as what it should be, or as nothing."""

from hypothesis import given
from hypothesis import strategies as st

from fipop.jsons import as_list, as_mapping, as_text, as_texts

SINGLE = st.none() | st.booleans() | st.integers() | st.text()


@given(SINGLE | st.lists(SINGLE) | st.dictionaries(st.text(), SINGLE))
def test_a_value_comes_through_where_it_is_of_its_kind_and_is_empty_elsewhere(value: object) -> None:
    for read, kind in ((as_mapping, dict), (as_list, list), (as_text, str)):
        found = read(value)
        assert isinstance(found, kind)
        assert found == (value if isinstance(value, kind) else kind())


@given(SINGLE | st.dictionaries(st.text(), SINGLE))
def test_of_a_mapping_the_texts_are_read(value: object) -> None:
    entries = value.items() if isinstance(value, dict) else ()
    assert as_texts(value) == {key: each for key, each in entries if isinstance(each, str)}
