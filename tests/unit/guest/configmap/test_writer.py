"""A guest's ConfigMap is written with a fresh permit, or not at all."""

from dataclasses import replace

import pytest

from fipop.errors import UnavailableError
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.limits import GuestLimits
from fipop.guest.reports import ConfigMapOutcome
from localfleet.proxy import RancherProxy
from localfleet.simulated import SimulatedGuest
from tests.unit.guest.passes import add_guest


def writes(proxy: RancherProxy) -> int:
    return sum(each.is_write for each in proxy.requests_of("c-m-a"))


async def test_a_permit_that_is_old_when_it_comes_is_none(
    proxy: RancherProxy, limits: GuestLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a process was stopped and went on: another may have taken over meanwhile."""
    monkeypatch.setattr("fipop.guest.configmap.writer.PERMIT_SECONDS", -1.0)
    report = await GuestSessions(limits).run_pass(add_guest(proxy, "c-m-a"))
    assert (report.config_map.outcome, writes(proxy)) == (ConfigMapOutcome.WITHHELD, 0)


async def test_a_write_that_was_withheld_comes_back_within_seconds(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    answers = [False, True]

    async def answer() -> bool:
        return answers.pop(0)

    sessions, task = GuestSessions(limits), replace(add_guest(proxy, "c-m-a"), before_write=answer)
    report = await sessions.run_pass(task)
    assert (report.config_map.outcome, report.error) == (ConfigMapOutcome.WITHHELD, None)
    assert report.retry_after_seconds is not None
    assert report.retry_after_seconds <= 5
    again = await sessions.run_pass(task)
    assert (again.config_map.outcome, again.retry_after_seconds) == (ConfigMapOutcome.WRITTEN, None)


async def test_where_the_permit_cannot_be_had_nothing_is_written_and_the_guest_is_not_to_blame(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    lost = UnavailableError("get FloatingIPReservation", status=500)

    async def fail() -> bool:
        raise lost

    report = await GuestSessions(limits).run_pass(replace(add_guest(proxy, "c-m-a"), before_write=fail))
    assert (report.config_map.outcome, report.config_map.error) == (ConfigMapOutcome.WITHHELD, lost)
    assert (report.reachable, writes(proxy)) == (True, 0)


async def test_a_guest_with_thousands_of_annotated_config_maps_gets_few_writes_for_one_confirmation(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    """20,000 of them caused as many live reads of our own API server."""
    asked = 0

    async def count() -> bool:
        nonlocal asked
        asked += 1
        return True

    task = replace(add_guest(proxy, "c-m-a"), before_write=count)
    guest = proxy.guests["c-m-a"].target
    assert isinstance(guest, SimulatedGuest)
    applied = {"kubefip.k8s.binbash.org/applied": '{"cidr-global":"10.0.0.1/32"}'}
    for number in range(300):
        metadata = {"namespace": f"n{number}", "name": "kubevip", "annotations": applied}
        guest.put("configmaps", {"metadata": metadata, "data": {"cidr-global": "10.0.0.1/32"}})
    report = await GuestSessions(limits).run_pass(task)
    assert report.config_map.outcome is ConfigMapOutcome.WRITTEN
    assert (asked, writes(proxy)) == (1, 8)
