"""Interleavings that hypothesis chooses."""

from random import Random

from hypothesis import strategies as st

CHOICES_EACH = 110
"""About so many choices a simulation makes for each address that is given out."""

MOST_CHOICES = 7_000
"""What hypothesis draws for one example is limited to 8 KiB."""


class Chosen(Random):
    """Decides as the bytes say, as long as there are any; then by a seed."""

    def __init__(self, choices: bytes, seed: int) -> None:
        super().__init__(seed)
        self._choices = iter(choices)

    def __repr__(self) -> str:
        """Say little: hypothesis tells how to have the same again."""
        return "Chosen(…)"

    def random(self) -> float:
        fraction = super().random()
        choice = next(self._choices, None)
        return fraction if choice is None else (choice + fraction) / 256


def interleavings(allocations: int) -> st.SearchStrategy[Chosen]:
    """Choose for a life of so many allocations: each step at first, the later ones of a long life by their seed."""
    most = min(MOST_CHOICES, allocations * CHOICES_EACH)
    # The least size matters: without it nearly all examples are a few bytes.
    choices = st.binary(min_size=most // 2, max_size=most)
    return st.tuples(choices, st.integers(0, 2**32 - 1)).map(lambda drawn: Chosen(*drawn))


def operators() -> st.SearchStrategy[int]:
    """Choose how many operators there are: two that lag behind each other, or one and an admin who deletes things."""
    return st.sampled_from((2, 1))
