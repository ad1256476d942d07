from hypothesis import given
from hypothesis import strategies as st

from fipop.kube.lease import LeaseDecision, LeaseView, decide, view_of


def held_by(holder: str, seconds: float = 15) -> LeaseView:
    return LeaseView(holder=holder, duration_seconds=seconds, resource_version="1")


def test_a_missing_lease_is_created():
    assert decide(None, "me", observed_at=0, now=0) is LeaseDecision.CREATE


def test_a_lease_of_ours_is_renewed_however_old():
    assert decide(held_by("me"), "me", observed_at=0, now=10_000) is LeaseDecision.RENEW


def test_a_lease_that_was_given_up_is_taken_at_once():
    assert decide(held_by(""), "me", observed_at=100, now=100) is LeaseDecision.TAKE


def test_another_s_lease_is_waited_for_until_it_stood_still_for_its_duration():
    lease = held_by("other", seconds=15)
    assert decide(lease, "me", observed_at=100, now=100) is LeaseDecision.WAIT
    assert decide(lease, "me", observed_at=100, now=114.9) is LeaseDecision.WAIT
    assert decide(lease, "me", observed_at=100, now=115) is LeaseDecision.TAKE


@given(promised=st.integers(1, 600), elapsed=st.floats(0, 1000))
def test_a_lease_is_never_taken_before_the_time_its_holder_promised(promised, elapsed):
    decision = decide(held_by("other", promised), "me", observed_at=50.0, now=50.0 + elapsed)
    if decision is LeaseDecision.TAKE:
        assert 50.0 + elapsed >= 50.0 + promised


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
