"""The log of who had which address."""

import pytest

from fipop.operator.addresses.reservations import Granted
from tests.harness.reservation_store import Reservations
from tests.unit.operator.addresses.claims import Operator, claim, owner


async def test_each_assignment_and_release_is_one_line_with_fields_that_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """docs/reference/cli.md shows the query: the names of the fields are a contract."""
    caplog.set_level("INFO", logger="fipop")
    store = Operator(Reservations()).reservation_store
    granted = await store.claim(claim(owner()))
    assert isinstance(granted, Granted)
    await store.claim(claim(owner()))
    await store.quarantine(granted.reservation, seconds=60)
    fields = ("event", "address", "space", "range", "namespace", "floating_ip", "cluster")
    lines = [{name: vars(record)[name] for name in fields} for record in caplog.records]
    assert [line.pop("event") for line in lines] == ["assigned", "released"]
    assert lines[0] == lines[1]
    assert lines[0]["address"] == "10.0.0.1"
    assert (lines[0]["namespace"], lines[0]["floating_ip"], lines[0]["cluster"]) == ("c-m-1", "web", "demo")
