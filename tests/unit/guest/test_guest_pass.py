"""Passes over guests: what fails in one is in its report alone."""

import asyncio
from dataclasses import replace

from fipop.guest.guest_pass import GuestSessions
from fipop.guest.limits import GuestLimits
from localfleet.proxy import Fault, RancherProxy
from tests.unit.guest.passes import add_guest


async def test_what_fails_in_one_guest_is_in_its_report_alone(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    limits.request_seconds = 0.5
    sessions = GuestSessions(limits)
    faults = (Fault(refuse=True), Fault(status=503), Fault(hang=True), Fault(lose_answer=True), None)
    tasks = [add_guest(proxy, f"c-m-{number}", fault=fault) for number, fault in enumerate(faults)]
    tasks.append(replace(tasks[-1], kubeconfig=b"not a kubeconfig"))
    reports = await asyncio.gather(*(sessions.run_pass(task) for task in tasks))
    assert [report.error is None for report in reports] == [False, False, False, False, True, False]
    assert [report.reachable for report in reports] == [False, False, False, False, True, False]
