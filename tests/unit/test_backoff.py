import itertools
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fipop.backoff import Backoff, Delays

BACKOFF = Backoff(first_seconds=1, limit_seconds=60)


def test_waits_double_up_to_a_limit_however_many_failures_there_were() -> None:
    assert [BACKOFF.step_seconds(failures) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert BACKOFF.step_seconds(0) == 1
    assert BACKOFF.step_seconds(10**6) == 60


@given(failures=st.integers(1, 10**6), seed=st.integers())
def test_chance_decides_on_half_of_a_wait(failures: int, seed: int) -> None:
    step = BACKOFF.step_seconds(failures)
    assert step / 2 <= BACKOFF.delay_seconds(failures, Random(seed)) <= step


def test_delays_never_end_and_each_use_starts_small() -> None:
    delays = Delays(BACKOFF, Random(1))
    waits = list(itertools.islice(delays, 1000))
    assert all(30 <= wait <= 60 for wait in waits[6:])
    assert next(iter(delays)) <= 1
