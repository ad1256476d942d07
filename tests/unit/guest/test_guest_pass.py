"""Passes over many guests at once. The guests are simulated; what a real one says is asked in tests/api/guest."""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from fipop.errors import ApiServerError, FipopError
from fipop.guest.configmap.keys import WantedAddress
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.helm.chart_archives import CachedChart
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.charts import ChartIdentity, ChartSource
from fipop.guest.helm.runner import HelmRunner
from fipop.guest.limits import GuestLimits
from fipop.guest.release_gate import gate_of_settings
from fipop.guest.reports import ConfigMapOutcome, GuestTask, PassReport
from fipop.settings.options import DEFAULTS
from localfleet.certificates import build_authority
from localfleet.proxy import Fault, RancherProxy
from localfleet.simulated import SimulatedGuest
from localfleet.waiting import eventually

TOKEN = "token"


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[RancherProxy]:
    async with RancherProxy(build_authority("rancher", datetime.now(UTC))) as proxy:
        proxy.issue_token(TOKEN)
        yield proxy


@pytest_asyncio.fixture
async def limits(tmp_path: Path) -> AsyncIterator[GuestLimits]:
    stub = tmp_path / "helm"
    stub.write_text("#!/bin/sh\nsleep 1\nexit 1\n")
    stub.chmod(0o755)
    runner = HelmRunner(str(stub))
    limits = GuestLimits(helm=runner, charts=ChartCache(runner), allow_loopback=True)
    yield limits
    await limits.close()


async def permit() -> bool:
    return True


def add_guest(proxy: RancherProxy, guest_id: str, *, fault: Fault | None = None) -> GuestTask:
    route = proxy.add_guest(guest_id, SimulatedGuest(latency_seconds=0.01))
    route.fault = fault
    proxy.bind_token(TOKEN, guest_id)
    ca = base64.b64encode(proxy.ca_pem.encode()).decode()
    kubeconfig = {
        "clusters": [
            {"name": "c", "cluster": {"server": proxy.url_of(guest_id), "certificate-authority-data": ca}}
        ],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "d", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "d",
    }
    wanted = WantedAddress(floating_ip=(guest_id, "x"), created=datetime.now(UTC), addresses=("10.0.0.1",))
    return GuestTask(
        guest_id=guest_id,
        cluster_name=guest_id,
        kubeconfig=json.dumps(kubeconfig).encode(),
        opted_in=False,
        wanted=(wanted,),
        granted=frozenset({"10.0.0.1"}),
        settings=DEFAULTS,
        before_write=permit,
        gate=gate_of_settings(DEFAULTS),
    )


async def test_guests_that_hang_do_not_keep_the_slots_from_those_that_answer(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    limits.slots, limits.brisk_seconds, limits.request_seconds = asyncio.Semaphore(2), 0.1, 5
    sessions = GuestSessions(limits)
    hanging = [add_guest(proxy, f"c-m-hang{number}", fault=Fault(hang=True)) for number in range(6)]
    stuck = [asyncio.create_task(sessions.run_pass(task)) for task in hanging]
    began = time.monotonic()
    reports = await asyncio.gather(*(sessions.run_pass(add_guest(proxy, f"c-m-{n}")) for n in range(20)))
    assert time.monotonic() - began < 4
    assert all(report.error is None for report in reports)
    assert not any(task.done() for task in stuck)
    for task in stuck:
        task.cancel()
    await asyncio.gather(*stuck, return_exceptions=True)
    assert limits.slots._value == 2, "every slot was given back once"


async def test_there_is_a_bound_for_slow_talks_too(proxy: RancherProxy, limits: GuestLimits) -> None:
    limits.slots, limits.brisk_seconds, limits.slow_slots = asyncio.Semaphore(1), 0.05, 2
    limits.request_seconds = 1
    sessions = GuestSessions(limits)
    tasks = [add_guest(proxy, f"c-m-{number}", fault=Fault(hang=True)) for number in range(6)]
    running = [asyncio.create_task(sessions.run_pass(task)) for task in tasks]
    await asyncio.wait(running, timeout=0.7)
    assert sum(bool(proxy.requests_of(task.guest_id)) for task in tasks) == 3
    reports = await asyncio.gather(*running)
    assert not any(report.reachable for report in reports)
    assert limits.slots._value == 1


async def test_while_a_pass_waits_for_charts_its_slot_serves_others(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    limits.slots = asyncio.Semaphore(1)
    sessions = GuestSessions(limits)
    early: list[PassReport] = []
    waiting = asyncio.create_task(
        sessions.run_pass(replace(add_guest(proxy, "c-m-new"), opted_in=True), early=early.append)
    )

    async def is_told() -> bool:
        return bool(early)

    await eventually(is_told, what="the early report")
    assert [one.config_map.outcome for one in early] == [ConfigMapOutcome.WRITTEN]
    report = await sessions.run_pass(add_guest(proxy, "c-m-other"))
    assert report.config_map.outcome is ConfigMapOutcome.WRITTEN
    assert not waiting.done()
    assert (await waiting).error is not None, "the charts cannot be had"


async def test_a_quiet_pass_has_nothing_to_tell_early(proxy: RancherProxy, limits: GuestLimits) -> None:
    sessions = GuestSessions(limits)
    task = add_guest(proxy, "c-m-a")
    await sessions.run_pass(task)
    early: list[PassReport] = []
    report = await sessions.run_pass(task, early=early.append)
    assert early == []
    assert (report.requests, report.writes) == (1, 0)


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


async def test_an_old_api_server_that_cannot_select_services_is_asked_for_all_of_them(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    task = add_guest(proxy, "c-m-old", fault=Fault(status=400, only=lambda seen: "spec.type" in seen.query))
    guest = proxy.guests["c-m-old"].target
    assert isinstance(guest, SimulatedGuest)
    manifest = {
        "metadata": {"namespace": "prod", "name": "web"},
        "spec": {"type": "LoadBalancer", "loadBalancerIP": "10.0.0.9"},
    }
    guest.put("services", manifest)
    carried = await GuestSessions(limits).look("c-m-old", task.kubeconfig)
    assert str(carried.carrier_of("10.0.0.9")) == "Service prod/web"


async def test_a_look_that_gets_no_answer_says_so_and_not_that_nothing_is_carried(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    task = add_guest(proxy, "c-m-a", fault=Fault(status=503))
    with pytest.raises(ApiServerError):
        await GuestSessions(limits).look("c-m-a", task.kubeconfig)


async def test_a_permit_that_is_old_when_it_comes_is_none(
    proxy: RancherProxy, limits: GuestLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a process was stopped and went on: another may have taken over meanwhile."""
    monkeypatch.setattr("fipop.guest.configmap.writer.PERMIT_SECONDS", -1.0)
    report = await GuestSessions(limits).run_pass(add_guest(proxy, "c-m-a"))
    assert (report.config_map.outcome, report.writes) == (ConfigMapOutcome.WITHHELD, 0)


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
    lost = ApiServerError(verb="get", kind="FloatingIPReservation", status=500)

    async def fail() -> bool:
        raise lost

    report = await GuestSessions(limits).run_pass(replace(add_guest(proxy, "c-m-a"), before_write=fail))
    assert (report.config_map.outcome, report.config_map.error) == (ConfigMapOutcome.WITHHELD, lost)
    assert (report.reachable, report.writes) == (True, 0)


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


class Charts:
    """Every chart is there at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def get(self, source: ChartSource, *, content: str = "") -> CachedChart:
        del content
        identity = ChartIdentity(name=source.name, version="1.2.3", content="c0ffee")
        return CachedChart(identity=identity, path=self._folder, sha256="")

    async def close(self) -> None:
        """Nothing was fetched."""


@pytest_asyncio.fixture
async def installing(tmp_path: Path) -> AsyncIterator[tuple[GuestSessions, HelmRunner]]:
    stop, stub = tmp_path / "stop", tmp_path / "helm"
    stub.write_text(f"#!/bin/sh\nwhile [ ! -e {stop} ]; do sleep 0.05; done; echo '{{}}'\n")
    stub.chmod(0o755)
    runner = HelmRunner(str(stub))
    limits = GuestLimits(
        helm=runner,
        charts=Charts(tmp_path),  # type: ignore[arg-type] # only asked for charts
        allow_loopback=True,
    )
    yield GuestSessions(limits), runner
    await limits.close()


async def test_who_is_in_line_for_helm_gets_its_addresses_and_tells_that_it_waits(
    proxy: RancherProxy, installing: tuple[GuestSessions, HelmRunner]
) -> None:
    sessions, runner = installing
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    report = await asyncio.wait_for(sessions.run_pass(task, may_run_helm=False), 10)
    assert report.awaits_helm
    assert report.config_map.outcome is ConfigMapOutcome.WRITTEN
    assert {one.readiness.message for one in report.releases} == {
        "there is no release yet: the guest is in line for helm"
    }
    report = await asyncio.wait_for(sessions.run_pass(replace(task, opted_in=False), may_run_helm=False), 10)
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
    assert (asked, report.writes) == (1, 8)


@pytest.mark.parametrize(
    ("plural", "manifest"),
    [
        ("configmaps", {"metadata": {"name": "kubevip", "namespace": "a", "annotations": 7}}),
        (
            "configmaps",
            {"metadata": {"name": "kubevip", "namespace": "a", "annotations": {"x": 7}}, "data": [1]},
        ),
        ("configmaps", {"metadata": {"name": "kubevip", "namespace": "../a"}}),
        (
            "secrets",
            {"metadata": {"name": "s", "namespace": "a", "labels": {"owner": "helm", "version": "9" * 5000}}},
        ),
        ("secrets", {"metadata": {"name": "s", "namespace": "a", "labels": 7}}),
        (
            "daemonsets",
            {"metadata": {"name": "d", "namespace": "a"}, "spec": 7, "status": {"numberReady": "x"}},
        ),
        (
            "daemonsets",
            {"metadata": {"name": "d", "namespace": 7, "annotations": [7]}, "spec": {"template": 1}},
        ),
        ("services", {"metadata": {"name": "s", "namespace": "a"}, "spec": [], "status": 7}),
    ],
)
async def test_objects_of_any_shape_end_in_a_report(
    proxy: RancherProxy, limits: GuestLimits, plural: str, manifest: dict[str, object]
) -> None:
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    guest = proxy.guests["c-m-a"].target
    assert isinstance(guest, SimulatedGuest)
    stored = guest.put(plural, manifest)
    guest.objects = {(plural, "a", str(stored["metadata"]["name"])): stored}
    sessions = GuestSessions(limits)
    report = await sessions.run_pass(task)
    assert report.error is None or isinstance(report.error, (FipopError))
    with contextlib.suppress(FipopError):
        await sessions.look("c-m-a", task.kubeconfig)


@dataclass(slots=True, kw_only=True)
class TellingRoom:
    """A room whose helm tells what a test says of releases, and writes down what it was asked."""

    sessions: GuestSessions
    asked: Path

    def questions(self) -> list[str]:
        return self.asked.read_text().splitlines() if self.asked.exists() else []


MANIFEST = "apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: settings}\\n"


@pytest_asyncio.fixture
async def telling(tmp_path: Path) -> AsyncIterator[TellingRoom]:
    asked, stub = tmp_path / "asked", tmp_path / "helm"
    stub.write_text(
        f"""#!/bin/sh
echo "$1 $2" >> {asked}
case "$2" in
  metadata) echo '{{"chart": "kube-vip", "version": "1.2.3"}}' ;;
  values) echo '{{"nameOverride": "kube-vip"}}' ;;
  manifest) printf '{MANIFEST}' ;;
esac
"""
    )
    stub.chmod(0o755)
    limits = GuestLimits(
        helm=HelmRunner(str(stub)),
        charts=Charts(tmp_path),  # type: ignore[arg-type] # only asked for charts
        allow_loopback=True,
    )
    yield TellingRoom(sessions=GuestSessions(limits), asked=asked)
    await limits.close()


def add_old_release(proxy: RancherProxy, guest_id: str) -> SimulatedGuest:
    """Have the predecessor's kube-vip in a guest, with a body that nobody may decode."""
    guest = proxy.guests[guest_id].target
    assert isinstance(guest, SimulatedGuest)
    labels = {"owner": "helm", "name": "kube-vip", "version": "1", "status": "deployed"}
    metadata = {"namespace": "kube-system", "name": "sh.helm.release.v1.kube-vip.v1", "labels": labels}
    guest.put("secrets", {"metadata": metadata, "data": {"release": "a bomb"}})
    return guest


async def test_helm_is_asked_once_what_an_old_release_is_and_its_secret_is_never_read(
    proxy: RancherProxy, telling: TellingRoom
) -> None:
    """44 KB of such a Secret unpacked to 16 MiB of small objects, which cost 600 MiB in our own process."""
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    add_old_release(proxy, "c-m-a")
    for _ in range(3):
        report = await telling.sessions.run_pass(task)
        assert report.releases[0].version == "1.2.3"
    assert telling.questions().count("get metadata") == 1
    assert telling.questions().count("get values") == 1
    bodies = [one for one in proxy.requests_of("c-m-a") if "/secrets/" in one.path and one.method == "GET"]
    assert bodies == []


async def test_what_an_old_release_is_waits_for_a_turn_of_helm_and_addresses_do_not(
    proxy: RancherProxy, telling: TellingRoom
) -> None:
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    add_old_release(proxy, "c-m-a")
    report = await telling.sessions.run_pass(task, may_run_helm=False)
    assert report.awaits_helm
    assert telling.questions() == []
    assert report.config_map.outcome is ConfigMapOutcome.WRITTEN
    assert (
        "helm is still to be asked what release kube-system/kube-vip is"
        in report.releases[0].readiness.message
    )
    report = await telling.sessions.run_pass(task)
    assert report.releases[0].version == "1.2.3"


async def test_which_objects_a_release_has_helm_tells_once_for_each_revision(
    proxy: RancherProxy, telling: TellingRoom
) -> None:
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    guest = add_old_release(proxy, "c-m-a")
    for number in range(1, 4):
        report = await telling.sessions.run_pass(task, deep=True)
        looked = [one for one in proxy.requests_of("c-m-a") if one.path.endswith("/configmaps/settings")]
        assert len(looked) == number, "the guest is asked whether it has it, also at the first look"
        assert report.checked
    assert telling.questions().count("get manifest") == 1
    secret = guest.get("secrets", "kube-system", "sh.helm.release.v1.kube-vip.v1")
    assert secret is not None
    guest.put("secrets", {**secret, "metadata": {**secret["metadata"], "annotations": {"changed": "yes"}}})
    await telling.sessions.run_pass(task, deep=True)
    assert telling.questions().count("get manifest") == 2, "another version of its Secret is another revision"


async def test_a_deep_look_that_gets_no_turn_of_helm_is_still_to_be_done(
    proxy: RancherProxy, telling: TellingRoom
) -> None:
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    add_old_release(proxy, "c-m-a")
    await telling.sessions.run_pass(task)
    report = await telling.sessions.run_pass(task, deep=True, may_run_helm=False)
    assert report.awaits_helm
    assert not report.checked
