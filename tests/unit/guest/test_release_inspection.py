"""What helm is asked about releases: once for each revision, in the guest's turn."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest_asyncio

from fipop.guest.errors import ForeignReleaseError
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.limits import GuestLimits
from fipop.guest.reports import ConfigMapOutcome
from fipop.kube.guests import GuestServers
from localfleet.proxy import RancherProxy
from localfleet.simulated import SimulatedGuest
from tests.harness.reaching import build_runner
from tests.unit.guest.passes import Charts, add_guest


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
    guests = GuestServers()
    limits = GuestLimits(
        helm=build_runner(str(stub), guests=guests),
        charts=Charts(tmp_path),  # type: ignore[arg-type] # only asked for charts
        guests=guests,
    )
    yield TellingRoom(sessions=GuestSessions(limits), asked=asked)
    await limits.close()
    await guests.close()


def add_old_release(
    proxy: RancherProxy, guest_id: str, *, namespace: str = "kube-system", **more: str
) -> SimulatedGuest:
    """Have the predecessor's kube-vip in a guest, with a body that nobody may decode; `more` are labels."""
    guest = proxy.guests[guest_id].target
    assert isinstance(guest, SimulatedGuest)
    labels = {"owner": "helm", "name": "kube-vip", "version": "1", "status": "deployed"}
    labels |= {f"kubefip.k8s.binbash.org/{name}": value for name, value in more.items()}
    metadata = {"namespace": namespace, "name": "sh.helm.release.v1.kube-vip.v1", "labels": labels}
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
        assert report.releases[0].release.version == "1.2.3"
    assert telling.questions().count("get metadata") == 1
    assert telling.questions().count("get values") == 1
    bodies = [one for one in proxy.requests_of("c-m-a") if "/secrets/" in one.path and one.method == "GET"]
    assert bodies == []


async def test_what_an_old_release_is_waits_for_a_turn_of_helm_and_addresses_do_not(
    proxy: RancherProxy, telling: TellingRoom
) -> None:
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    add_old_release(proxy, "c-m-a")
    report = await telling.sessions.run_pass(replace(task, may_run_helm=False))
    assert report.awaits_helm
    assert telling.questions() == []
    assert report.config_map.outcome is ConfigMapOutcome.WRITTEN
    assert "release kube-system/kube-vip waits" in report.releases[0].readiness.message
    report = await telling.sessions.run_pass(task)
    assert report.releases[0].release.version == "1.2.3"


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
    report = await telling.sessions.run_pass(replace(task, may_run_helm=False), deep=True)
    assert report.awaits_helm
    assert not report.checked


async def test_helm_has_nothing_to_do_with_a_release_in_a_namespace_of_the_guests_users(
    proxy: RancherProxy, telling: TellingRoom
) -> None:
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    guest = add_old_release(
        proxy, "c-m-a", namespace="a-tenant", role="kube-vip-cloud-provider", digest="d" * 32, revision="1"
    )
    report = await telling.sessions.run_pass(task, deep=True)
    assert [type(each.error) for each in report.releases] == [ForeignReleaseError, ForeignReleaseError]
    assert guest.get("configmaps", "kube-system", "kubevip"), "the addresses do not follow it"
    left = replace(task, opted_in=False, leaving=True, may_remove=True)
    report = await telling.sessions.run_pass(left)
    assert report.has_ours is False
    assert not telling.asked.exists()


async def test_a_release_without_labels_in_another_namespace_is_not_asked_about(
    proxy: RancherProxy, telling: TellingRoom
) -> None:
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    add_old_release(proxy, "c-m-a", namespace="a-tenant")
    await telling.sessions.run_pass(task)
    assert not [each for each in telling.questions() if each.startswith("get")]
