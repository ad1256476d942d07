"""How a rollout is written down, and read again whatever stands there."""

from hypothesis import given
from hypothesis import strategies as st

from fipop.operator.rollout.progress import (
    GuestProgress,
    Phase,
    RolloutState,
    Step,
    parse_state,
    render_state,
)

GUESTS = st.dictionaries(
    st.from_regex(r"c-m-[a-z0-9]{8}", fullmatch=True),
    st.builds(
        GuestProgress,
        step=st.sampled_from(Step),
        since=st.integers(0, 2**32).map(float),
        revisions=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
        wave=st.integers(0, 99),
        weak=st.booleans(),
    ),
    max_size=20,
)
STATES = st.builds(
    RolloutState,
    number=st.integers(1, 10**6),
    target=st.from_regex(r"[0-9a-f]{12}", fullmatch=True),
    stable=st.from_regex(r"([0-9a-f]{12})?", fullmatch=True),
    phase=st.sampled_from(Phase),
    started_at=st.integers(0, 2**32).map(float),
    wave=st.integers(0, 99),
    size=st.integers(0, 5000),
    guests=GUESTS,
    acted=st.text(max_size=30),
    reason=st.text(max_size=30),
)


@given(STATES)
def test_what_is_written_is_read_again(state: RolloutState) -> None:
    assert parse_state(render_state(state)) == state


@given(st.dictionaries(st.sampled_from(["rollout", "guests", "other"]), st.text(max_size=60)))
def test_what_somebody_else_wrote_is_as_good_as_nothing(data: dict[str, str]) -> None:
    assert parse_state(data) is None
