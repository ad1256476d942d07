"""The state of an installation in sum: counts, the worst first, a rollout, and one guest alone."""

import json
from dataclasses import replace

from fipop.report.maps import draw_map
from fipop.report.rendering import to_json
from fipop.report.snapshot import Kind, Unread
from fipop.report.status import report_status
from fipop.rollout.member import RolloutStatus
from fipop.rollout.parts import Part
from fipop.rollout.plan import Rollout
from fipop.settings.options import DEFAULTS, parse_settings
from tests.harness.objects import build_floating_ip, build_range, build_reservation, held_by
from tests.harness.releases import OTHER, TARGET
from tests.harness.steps import count_steps
from tests.unit.report.snapshots import healthy_installation, snapshot
from tests.unit.report.test_findings import POOL, condition, floating


def test_a_range_is_shown_with_its_harvester_cluster_and_network() -> None:
    places = {"harvesterClusterName": "harv1", "harvesterNetworkName": "vlan-1"}
    (shown,) = report_status(snapshot(ranges=[build_range("pool", "10.0.0.1", annotations=places)])).ranges
    fields = shown.to_fields()
    assert (fields["harvesterCluster"], fields["harvesterNetwork"]) == ("harv1", "vlan-1")


def test_of_one_guest_only_its_own_problems_are_told() -> None:
    other = build_floating_ip(
        "web", namespace="c-m-2", status={**held_by(["10.0.0.6"]), "conditions": [condition("False", "No")]}
    )
    found = snapshot(
        ranges=[build_range("broken", "x")],
        floating_ips=[floating("web", condition("False", "RangeFull")), other],
        installation=healthy_installation(leadership=None),
    )
    assert [each.reason for each in report_status(found, "c-m-1").problems] == ["RangeFull"]
    assert [each.reason for each in report_status(found, "c-m-3").problems] == ["NotFound"]


def test_counts_of_what_could_not_be_read_are_not_known() -> None:
    def counts(kind: Kind) -> tuple[object, object]:
        unread = (Unread(what=kind, problem="missing right"),)
        found = report_status(snapshot(ranges=[POOL], unread=unread))
        return found.count_floating_ips()["inAll"], found.count_guests()["inAll"]

    assert counts(Kind.FLOATING_IPS) == (None, None)
    assert counts(Kind.CLUSTERS) == (0, None)
    assert counts(Kind.RESERVATIONS) == (0, 0)


def test_a_rollout_shows_its_charts_and_where_guest_clusters_stand() -> None:
    paused, _ = parse_settings({"kubevipRolloutPaused": "true"}, DEFAULTS)
    found = (RolloutStatus.PENDING, RolloutStatus.PENDING, RolloutStatus.SUCCEEDED)
    parts = {f"c-m-{number}": Part(status=each) for number, each in enumerate(found)}
    installation = healthy_installation(rollout=Rollout(target=TARGET, stable=OTHER), rollout_parts=parts)
    found = snapshot(installation=installation)
    shown = json.loads(to_json(report_status(found)))["rollout"]
    assert shown["guests"] == {"failed": 0, "pending": 2, "progressing": 0, "skipped": 0, "succeeded": 1}
    assert shown["charts"] == {"kube-vip": "1.0.0", "kube-vip-cloud-provider": "1.0.0"}
    assert (shown["target"], shown["stable"], shown["paused"]) == (TARGET.name, OTHER.name, False)
    held_up = replace(found, installation=replace(installation, settings=paused))
    assert json.loads(to_json(report_status(held_up)))["rollout"]["paused"] is True
    assert json.loads(to_json(report_status(snapshot())))["rollout"] is None


def test_each_guest_cluster_counts_once_for_the_versions_that_it_runs() -> None:
    """A floating IP that was refused shows no releases, whatever its name is."""
    release = {"role": "kube-vip", "namespace": "kube-system", "name": "kube-vip", "version": "0.11.0"}
    guest = {"id": "c-m-1", "cluster": "demo", "releases": [{**release, "status": "deployed", "revision": 1}]}
    shown, bare = {"guest": guest}, {"guest": {**guest, "releases": []}}
    found = snapshot(
        floating_ips=[
            build_floating_ip("first", status=bare),
            build_floating_ip("second", status=shown),
            build_floating_ip("third", status=shown),
            build_floating_ip("zero"),
        ]
    )
    assert report_status(found).count_versions() == {"kube-vip": {"0.11.0": 1}}


def count_report_steps(floating_ips: int) -> int:
    fields = [(f"10.10.{number // 250}.{number % 250 + 1}", f"f{number}") for number in range(floating_ips)]
    found = snapshot(
        ranges=[build_range("pool", "10.10.0.0-10.20.255.255")],
        floating_ips=[build_floating_ip(name, status=held_by([address])) for address, name in fields],
        reservations=[build_reservation(address, name) for address, name in fields],
    )
    assert report_status(found).count_floating_ips()["inAll"] == floating_ips
    return count_steps(lambda: (report_status(found), draw_map(found, "pool")))


def test_the_work_of_a_report_grows_with_the_floating_ips_and_not_faster() -> None:
    """A bound against blow-up; bench.look measures ten thousand of them."""
    assert count_report_steps(2_000) < 15 * count_report_steps(200)
