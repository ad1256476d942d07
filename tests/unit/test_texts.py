"""What strangers wrote is printable, short, and cheap to make so."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.texts import clean, is_namespace, is_object_name, is_release_name, list_some, sentence


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_whatever_is_cleaned_is_printable_and_short(text: str, limit: int) -> None:
    found = clean(text, limit)
    assert len(found) <= limit
    assert found.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("kube-vip", "kube-vip"),
        ("grüße", "grüße"),
        ("\x1b[31;1mred\x1b[0m", "red"),
        ("\x1b]0;title\x07", "?]0;title?"),
        ("a\nb\r\tc", "a?b??c"),
        ("\u202egnp.exe", "?gnp.exe"),
        ("\u2066x\u2069", "?x?"),
        ("\ud800", "?"),
        ("\u2028", "?"),
        (7, ""),
        (None, ""),
        ({"a": 1}, ""),
    ],
)
def test_characters_that_rewrite_a_screen_are_shown_as_such(text: object, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize(
    ("clause", "shown"),
    [
        ("the range is full", "The range is full."),
        ("range: it is full.", "Range: it is full."),
        ("did you mean that?", "Did you mean that?"),
        ("empty", "Empty."),
        ("", ""),
        ('"x" is no range', '"x" is no range.'),
        # The case of a name counts.
        ("config/fleet.yaml is not a file", "config/fleet.yaml is not a file."),
        ("kubeconfig.yaml cannot be read", "kubeconfig.yaml cannot be read."),
        ("spec.iprange must be set", "spec.iprange must be set."),
        ("kubevipUpdate must be a boolean", "kubevipUpdate must be a boolean."),
        ("kube-vip is missing", "kube-vip is missing."),
        ("fipop is idle", "fipop is idle."),
        ("c-m-1/web waits", "c-m-1/web waits."),
    ],
)
def test_a_clause_becomes_a_sentence_and_a_name_stays_as_it_is(clause: str, shown: str) -> None:
    assert sentence(clause) == shown


def test_what_is_cut_says_so() -> None:
    assert clean("abcdef", 4) == "abc…"
    assert clean("\x1b[0m" * 1000 + "hidden", 10).endswith("…")


def test_a_long_text_costs_no_more_than_what_is_shown_of_it() -> None:
    for filling in ("\x1b", "\x1b[", "\x1b[0", "\x1b[;", "\u202e", "a"):
        text = filling * 5_000_000
        tracemalloc.start()
        try:
            clean(text, 1024)
            taken = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert taken < 128 * 1024, "what is not shown is not worked upon: a copy of it all takes megabytes"


@pytest.mark.parametrize("name", ["kube-vip", "a", "0", "a-b"])
def test_names_are_names(name: str) -> None:
    assert is_namespace(name)
    assert is_object_name(f"{name}.x")
    assert is_release_name(name)


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "A", "a b", "a/b", "..", "--set", "a\n", "ä", None, 7, "a" * 254, "a_b"]
)
def test_all_else_is_no_name(name: object) -> None:
    assert not is_namespace(name)
    assert not is_object_name(name)
    assert not is_release_name(name)


def test_each_kind_of_name_has_its_length() -> None:
    assert is_namespace("a" * 63)
    assert not is_namespace("a" * 64)
    assert is_object_name("a" * 253)
    assert is_release_name("a" * 53)
    assert not is_release_name("a" * 54)


@pytest.mark.parametrize(
    ("number", "shown"), [(0, ""), (1, "a"), (2, "a, b"), (3, "a, b and 1 more"), (5, "a, b and 3 more")]
)
def test_of_many_names_some_are_shown_and_the_others_counted(number: int, shown: str) -> None:
    assert list_some("abcde"[:number], 2) == shown
