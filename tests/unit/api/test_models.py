"""Our objects as values."""

from fipop.api.models import INT64_MAX, Capacity, Owner, RangeCapacity
from tests.harness.objects import floating_ip, reservation


def test_counts_fit_into_a_status_however_wide_the_range() -> None:
    wide = Capacity(total=1 << 128, used=3, free=(1 << 128) - 3)
    found = RangeCapacity(whole=wide, ipv4=Capacity(), ipv6=wide).clamped()
    assert (found.whole.total, found.whole.used, found.ipv6.free) == (INT64_MAX, 3, INT64_MAX)
    assert found.ipv4 == Capacity()


def test_an_object_is_known_by_its_uid_and_its_name_by_its_key() -> None:
    first, again = floating_ip("web", uid="a"), floating_ip("web", uid="b")
    assert first.meta.key == again.meta.key == ("c-m-1", "web")
    assert first.uid != again.uid


def test_an_owner_is_a_floating_ip_of_a_name() -> None:
    owner = reservation("10.0.0.1").owner
    assert owner.key == ("c-m-1", "web")
    assert owner != Owner(namespace="c-m-1", name="web", uid="another")
