"""What runs in a guest: whose it is, and whether it is ready."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fipop.guest.helm.charts import Role
from fipop.guest.workloads import (
    judge_readiness,
    of_release,
    parse_daemon_set,
    parse_deployment,
    running_releases,
)
from tests.unit.guest.workloads import daemon_set, deployment, manifest


def test_a_daemon_set_is_ready_when_every_node_runs_the_new_pod() -> None:
    assert daemon_set(3, 3).is_ready
    assert not daemon_set(3, 2).is_ready
    assert not daemon_set(3, 3, updated=1).is_ready
    for named in ("DaemonSet", "kube-system/kube-vip", "2", "3"):
        assert named in str(daemon_set(3, 2))


def test_a_daemon_set_without_a_node_is_not_ready_and_says_what_to_look_at() -> None:
    assert not daemon_set(0, 0).is_ready
    assert str(daemon_set(0, 0)) != str(daemon_set(1, 0)), "it is not its pods that are to be looked at"


def test_what_its_controller_has_not_seen_yet_is_not_ready() -> None:
    fresh = parse_daemon_set(
        manifest(status={"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 1})
    )
    assert not fresh.is_ready


def test_a_deployment_is_ready_when_all_replicas_are_new_and_ready() -> None:
    assert deployment(2, 2).is_ready
    assert deployment(None, 1).is_ready
    assert not deployment(2, 2, updated=1).is_ready
    assert not deployment(0, 0).is_ready


def test_a_release_is_ready_when_all_that_it_runs_is() -> None:
    assert judge_readiness([daemon_set(1, 1)]).ready
    mixed = judge_readiness([daemon_set(1, 1), daemon_set(2, 1, name="second")])
    assert not mixed.ready
    assert "kube-system/second" in mixed.message
    assert not judge_readiness([]).ready


def test_workloads_are_found_by_their_release_and_by_what_they_run() -> None:
    found = [
        daemon_set(1, 1),
        daemon_set(1, 1, name="own", release=None),
        daemon_set(1, 1, name="vip", release="vip", image="registry:5000/a/kube-vip@sha256:0"),
        daemon_set(1, 1, name="harvester", release="harvester-cloud-provider"),
        daemon_set(1, 1, name="canal", release="rke2-canal", image="rancher/canal:v3"),
        daemon_set(1, 1, name="p", release="p", image="kubevip/kube-vip-cloud-provider:v0.0.7"),
    ]
    assert [one.name for one in of_release(found, ("kube-system", "kube-vip"))] == ["kube-vip"]
    assert running_releases(found, Role.KUBE_VIP) == (("kube-system", "kube-vip"), ("kube-system", "vip"))
    assert running_releases(found, Role.CLOUD_PROVIDER) == (("kube-system", "p"),)


def test_a_workload_counts_for_a_release_only_in_the_namespace_of_that_release() -> None:
    """A developer annotates a DaemonSet in a namespace of his own: it made ours ready, or unready."""
    foreign = manifest()
    foreign["metadata"]["namespace"] = "a-tenant"
    assert of_release([parse_daemon_set(foreign)], ("kube-system", "kube-vip")) == ()
    assert of_release([parse_daemon_set(foreign)], ("a-tenant", "kube-vip")) == ()
    assert running_releases([parse_daemon_set(foreign)], Role.KUBE_VIP) == ()


_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "template", "status", "containers", "annotations", "replicas"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), _JSON))
def test_workloads_of_any_shape_are_read_without_an_error(item: dict[str, Any]) -> None:
    parse_daemon_set(item)
    parse_deployment(item)
