"""One pass: what it tells early, and when it is to come again."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from fipop.guest.guest_pass import GuestSessions
from fipop.guest.helm.runner import HelmRunner
from fipop.guest.limits import GuestLimits
from fipop.guest.reports import ConfigMapOutcome, PassReport
from fipop.kube.guests import GuestServers
from localfleet.proxy import Fault, RancherProxy
from tests.harness.reaching import build_runner
from tests.unit.guest.passes import Charts, add_guest


async def test_a_quiet_pass_has_nothing_to_tell_early(proxy: RancherProxy, limits: GuestLimits) -> None:
    sessions = GuestSessions(limits)
    task = add_guest(proxy, "c-m-a")
    await sessions.run_pass(task)
    early: list[PassReport] = []
    proxy.forget_requests()
    await sessions.run_pass(task, early=early.append)
    assert early == []
    assert {each.is_write for each in proxy.requests_of("c-m-a")} == {False}


async def test_while_a_release_cannot_be_installed_the_same_is_told_pass_after_pass(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    sessions = GuestSessions(limits)
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    early: list[PassReport] = []
    first = await sessions.run_pass(task, early=early.append)
    assert len(early) == 1
    again = await sessions.run_pass(task, early=early.append, is_known=True)
    assert len(early) == 1, "there is no release yet, as before: nothing to tell"
    assert [str(one.error) for one in again.releases] == [str(one.error) for one in first.releases]
    assert first.retry_after_seconds is not None
    assert 25 < first.retry_after_seconds <= 30, "and less and less often from then on"
    assert not first.mends_soon
    await sessions.run_pass(task, early=early.append)
    assert len(early) == 2, "to who knows nothing of the guest it is news"


async def test_a_config_map_that_cannot_be_written_is_told_once_at_the_end(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    fault = Fault(status=403, only=lambda seen: seen.method in ("POST", "PATCH"))
    task = replace(add_guest(proxy, "c-m-a", fault=fault), opted_in=True)
    early: list[PassReport] = []
    report = await GuestSessions(limits).run_pass(task, early=early.append, is_known=True)
    assert (report.config_map.outcome, early) == (ConfigMapOutcome.FAILED, [])


@pytest_asyncio.fixture
async def installing(tmp_path: Path) -> AsyncIterator[tuple[GuestSessions, HelmRunner]]:
    stop, stub = tmp_path / "stop", tmp_path / "helm"
    stub.write_text(f"#!/bin/sh\nwhile [ ! -e {stop} ]; do sleep 0.05; done; echo '{{}}'\n")
    stub.chmod(0o755)
    guests = GuestServers()
    runner = build_runner(str(stub), guests=guests)
    limits = GuestLimits(
        helm=runner,
        charts=Charts(tmp_path),  # type: ignore[arg-type] # only asked for charts
        guests=guests,
    )
    yield GuestSessions(limits), runner
    await limits.close()
    await guests.close()


async def test_who_is_in_line_for_helm_gets_its_addresses_and_tells_that_it_waits(
    proxy: RancherProxy, installing: tuple[GuestSessions, HelmRunner]
) -> None:
    sessions, runner = installing
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True, may_run_helm=False)
    report = await asyncio.wait_for(sessions.run_pass(task), 10)
    assert report.awaits_helm
    assert report.config_map.outcome is ConfigMapOutcome.WRITTEN
    assert not any(one.readiness.ready for one in report.releases)
    report = await asyncio.wait_for(sessions.run_pass(replace(task, opted_in=False)), 10)
    assert not report.awaits_helm, "what was taken back meanwhile is not installed"
    assert runner.runs == 0


async def test_one_deadline_is_for_all_that_a_turn_of_helm_does(
    proxy: RancherProxy, installing: tuple[GuestSessions, HelmRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that is slow held a turn for as long as each helm in it may take, one after the other."""
    monkeypatch.setattr("fipop.guest.pass_run.HELM_TURN_SECONDS", 1.0)
    sessions, runner = installing
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    report = await asyncio.wait_for(sessions.run_pass(task), 30)
    assert runner.runs == 1, "there is no time left for the second"
    assert all("longer than its deadline" in str(one.error) for one in report.releases)
