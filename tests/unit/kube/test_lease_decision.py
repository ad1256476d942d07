import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.runtime.lease import LeaseView, can_hold, view_of


def held_by(holder: str, seconds: float = 15) -> LeaseView:
    return LeaseView(holder=holder, duration_seconds=seconds, resource_version="1")


@pytest.mark.parametrize(
    ("seen", "now", "can"),
    [
        pytest.param(None, 100, True, id="none was ever seen"),
        pytest.param(held_by("me"), 100, True, id="ours"),
        pytest.param(held_by("me"), 10_000, True, id="ours, however old"),
        pytest.param(held_by(""), 100, True, id="given up"),
        pytest.param(held_by("other"), 100, False, id="another's"),
        pytest.param(held_by("other"), 114.9, False, id="another's that stood still for nearly its duration"),
        pytest.param(held_by("other"), 115, True, id="another's that stood still for its duration"),
    ],
)
def test_a_lease_is_taken_when_nobody_can_work_by_it_any_more(seen, now, can):
    assert can_hold(seen, "me", observed_at=100, now=now) is can


@given(promised=st.integers(1, 600), elapsed=st.floats(0, 1000))
def test_a_lease_is_never_taken_before_the_time_its_holder_promised(promised, elapsed):
    can = can_hold(held_by("other", promised), "me", observed_at=50.0, now=50.0 + elapsed)
    assert can is (50.0 + elapsed >= 50.0 + promised)


@given(
    st.dictionaries(
        st.sampled_from(["holderIdentity", "leaseDurationSeconds", "leaseTransitions", "renewTime"]),
        st.none() | st.integers() | st.sampled_from(["x", ""]),
    )
    | st.none()
)
def test_a_lease_of_any_shape_is_read_and_ends_some_day(spec):
    view = view_of({"metadata": {"resourceVersion": "3"}, "spec": spec}, default_duration_seconds=15)
    assert 0 < view.duration_seconds <= 600
    assert view.resource_version == "3"
