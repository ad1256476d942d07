"""Harvester's own kube-vip: how it is known, and when it is parked."""

import pytest

from fipop.guest.harvester import PARKED_LABEL, build_parking_patch, find_harvester, is_parked, needs_parking
from fipop.guest.workloads import (
    Workload,
    parse_daemon_set,
)
from tests.unit.guest.workloads import daemon_set, deployment, harvester, manifest


def test_harvesters_kube_vip_is_known_by_its_release_and_its_name_or_image() -> None:
    others = [
        daemon_set(1, 1),
        harvester(name="csi", image="rancher/csi:v1"),
        deployment(1, 1),
        harvester(name="renamed"),
        harvester(image="mirror/unknown:v1"),
    ]
    assert [one.name for one in find_harvester(others)] == ["renamed", "kube-vip"]


@pytest.mark.parametrize(
    ("ours", "deployed", "expected"),
    [
        ([daemon_set(1, 0)], True, True),
        ([daemon_set(1, 1)], False, False),
        ([daemon_set(0, 0)], True, False),
        ([deployment(1, 1)], True, False),
        ([], True, False),
        (
            [parse_daemon_set(manifest(status={"observedGeneration": 1, "desiredNumberScheduled": 1}))],
            True,
            False,
        ),
    ],
)
def test_it_is_parked_when_ours_is_deployed_and_wants_a_node_and_never_before(
    ours: list[Workload], deployed: bool, expected: bool
) -> None:
    assert needs_parking(harvester(), ours, deployed=deployed) is expected


def test_what_is_parked_is_not_parked_again() -> None:
    parked = harvester(selector={PARKED_LABEL: "true"})
    assert is_parked(parked)
    assert not needs_parking(parked, [daemon_set(1, 1)], deployed=True)
    patch = build_parking_patch(harvester())
    assert patch["spec"]["template"]["spec"]["nodeSelector"] == {PARKED_LABEL: "true"}
    assert patch["metadata"] == {"resourceVersion": "7"}
