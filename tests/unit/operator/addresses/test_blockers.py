from fipop.errors import RangeDrainingError
from fipop.ipam.addresses import parse_address
from fipop.operator.addresses.blockers import blocker_of, describe_conflicting_owner, describe_holder
from tests.harness.objects import reservation


def test_who_stands_in_the_way_is_named_with_the_time_or_with_who_carries_the_address() -> None:
    holder = describe_holder(reservation("10.0.0.1", cluster="demo"))
    assert holder.reason == "AddressInUse"
    assert all(named in holder.message for named in ("10.0.0.1", "c-m-1/web", '"demo"'))
    waiting = reservation("fd00::1", quarantined_until="2026-03-01T12:10:00Z")
    assert describe_holder(waiting).reason == "AddressQuarantined"
    assert all(
        named in describe_holder(waiting).message for named in ("fd00::1", "2026-03-01 12:10:00", "c-m-1/web")
    )
    carried = describe_holder(waiting, "Service default/web in guest c-m-1 carries fd00::1")
    assert "Service default/web in guest c-m-1 carries fd00::1" in carried.message


def test_the_reason_is_that_of_the_error_or_that_the_address_is_in_use() -> None:
    assert blocker_of(RangeDrainingError(range_name="pool")).reason == "RangeDraining"
    missing = describe_conflicting_owner(("c-m-2", "web"), parse_address("10.0.0.1"))
    assert missing.reason == "AddressInUse"
    assert all(named in missing.message for named in ("10.0.0.1", "c-m-2/web"))
