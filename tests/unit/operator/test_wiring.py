"""Durations of several rooms that only work together."""

from fipop.control.leadership import LeaseTimes
from fipop.guest.tools import GuestTools
from fipop.operator.wiring import GUEST_WRITE_SECONDS


def test_a_leader_between_two_renewals_still_leads_for_as_long_as_a_write_to_a_guest_takes() -> None:
    times = LeaseTimes()
    left_before_a_renewal = times.duration_seconds - times.renew_seconds
    assert left_before_a_renewal > GUEST_WRITE_SECONDS
    # Slots: a field's default stands in no class attribute, but in the signature.
    fields = GuestTools.__dataclass_fields__
    assert fields["request_seconds"].default <= GUEST_WRITE_SECONDS
