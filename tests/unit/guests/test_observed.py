"""What a guest cluster shows, as values: releases from their Secrets, workloads, and what conditions say of them."""

from dataclasses import replace
from typing import Any

import pytest

from fipop.api.conditions import Verdict
from fipop.api.objects import ReleaseStatus
from fipop.guests.conditions import judge_release
from fipop.guests.harvester import is_back, should_park
from fipop.guests.release_plan import Step, Verb
from fipop.guests.takers import Taker
from fipop.helm.charts import (
    Chart,
    Role,
    complete_values,
    hide_values,
    parse_target,
    render_target,
    same_values,
)
from fipop.helm.errors import ChartError
from fipop.helm.releases import (
    Release,
    ReleaseOwner,
    Status,
    find_places,
    label_as_seen,
    read_release,
    take_over,
)
from fipop.helm.workloads import PARKED_LABEL, Workload, describe, parse_daemon_set, parse_deployment
from fipop.settings.options import DEFAULTS
from tests.harness.releases import NOW, OTHER, TARGET, daemon_set, installed, place, secret

# Releases


def test_what_fipop_puts_on_a_record_is_read_back() -> None:
    found = installed()
    assert (found.owner, found.revision, found.version, found.object_name) == (
        ReleaseOwner.FIPOP,
        1,
        "1.0.0",
        "kube-vip",
    )
    assert found.is_at(TARGET)
    assert not found.is_at(OTHER)
    assert not found.is_at(None)


def test_a_revision_that_somebody_else_made_later_is_not_at_the_target() -> None:
    labels = label_as_seen(installed())
    assert not read_release(place(), [secret(labels, revision=2)], NOW).is_at(TARGET)


@pytest.mark.parametrize(
    ("statuses", "is_missing"),
    [
        ([], True),
        (["failed"], True),
        (["failed", "failed"], True),
        (["pending-install"], True),
        (["deployed"], False),
        (["deployed", "failed"], False),
        (["deployed", "pending-upgrade"], False),
    ],
    ids=str,
)
def test_a_release_of_which_nothing_was_ever_deployed_is_missing(
    statuses: list[str], *, is_missing: bool
) -> None:
    records = [secret({}, revision=number, status=each) for number, each in enumerate(statuses, start=1)]
    assert read_release(place(), records, NOW).is_missing is is_missing


@pytest.mark.parametrize(
    "labels",
    [{}, {"version": "x"}, {"name": "other"}, {"version": "9" * 30}],
    ids=str,
)
def test_what_is_no_release_of_that_name_is_passed_over(labels: dict[str, str]) -> None:
    record = secret({})
    record["metadata"]["labels"] |= labels
    if not labels:
        del record["metadata"]["creationTimestamp"]
    assert read_release(place(), [record], NOW) == place()


def test_a_release_that_was_uninstalled_with_its_history_is_absent_and_has_its_revision() -> None:
    record = secret({}, revision=4)
    record["metadata"]["labels"]["status"] = "uninstalled"
    found = read_release(place(), [record], NOW)
    assert (found.status, found.revision) == (Status.ABSENT, 4)


@pytest.mark.parametrize("role", ["", "kube-vip-cloud-provider", "x"])
def test_a_release_without_the_label_of_its_role_is_not_fipops(role: str) -> None:
    labels = {"kubefip.k8s.binbash.org/role": role} if role else {}
    owner = ReleaseOwner.OTHER if role else ReleaseOwner.UNKNOWN
    assert read_release(place(), [secret(labels)], NOW).owner is owner


def test_a_release_is_where_the_status_says_and_else_where_the_options_want_it() -> None:
    known = ReleaseStatus(role="kube-vip", name="vip", namespace="networking", revision=3)
    gone = ReleaseStatus(role="kube-vip-cloud-provider", name="x", namespace="y")
    found = find_places(DEFAULTS, [known, gone])
    assert [(each.namespace, each.name) for each in found] == [
        ("networking", "vip"),
        ("kube-system", "kube-vip-cloud-provider"),
    ]


@pytest.mark.parametrize(
    ("chart", "version", "values", "digest"),
    [
        ("kube-vip", "1.0.0", {"nameOverride": "kube-vip"}, TARGET.digests[Role.KUBE_VIP]),
        ("kube-vip", "v2.0.0", {"nameOverride": "kube-vip"}, OTHER.digests[Role.KUBE_VIP]),
        ("kube-vip", "3.0.0", {"nameOverride": "kube-vip"}, "taken-over"),
        ("kube-vip", "1.0.0", {"nameOverride": "kube-vip", "more": 1}, "taken-over"),
        ("kube-vip", "1.0.0", {"nameOverride": "cp"}, ""),
        ("kube-vip", "1.0.0", {}, ""),
        ("other", "1.0.0", {"nameOverride": "kube-vip"}, ""),
    ],
)
def test_a_release_is_taken_over_by_the_mark_of_kube_fip_operator_alone(
    chart: str, version: str, values: dict[str, Any], digest: str
) -> None:
    unlabelled = read_release(place(), [secret({})], NOW)
    found = take_over(unlabelled, chart, version, values, [TARGET, OTHER])
    assert (found.owner, found.digest) == (ReleaseOwner.FIPOP if digest else ReleaseOwner.OTHER, digest)
    if digest:
        assert read_release(place(), [secret(label_as_seen(found))], NOW).digest == digest


# Charts


def test_the_name_of_a_target_changes_with_its_charts_and_values_and_with_nothing_else() -> None:
    assert len(TARGET.name) == 12
    again = parse_target(render_target(TARGET))
    assert again is not None
    assert again.name == TARGET.name
    assert again.digests == TARGET.digests
    moved = {role: replace(chart, url="oci://mirror.example/x") for role, chart in TARGET.charts.items()}
    assert replace(TARGET, charts=moved).name == TARGET.name, "the same archives from elsewhere"
    assert OTHER.name != TARGET.name
    assert replace(TARGET, values={role: {"a": 1} for role in Role}).name != TARGET.name


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kube-vip": 7}', "{", '{"x": ["a", "b", "c", {}]}'])
def test_what_is_no_target_is_none(text: str) -> None:
    assert parse_target(text) is None


@pytest.mark.parametrize(
    ("admin", "env"),
    [
        ({"config": {"vip_interface": "eth1"}}, {"vip_interface": "eth1"}),
        ({"config": {"vip_interface": "eth1"}, "env": {"vip_interface": "eth2"}}, {"vip_interface": "eth2"}),
        ({"config": "x", "env": {"a": True, "b": 1, "d": None}}, {"a": "true", "b": "1", "d": None}),
        ({"env": ["a"]}, ["a"]),
        ({}, None),
    ],
)
def test_the_interface_is_copied_to_where_it_works_and_variables_are_texts(
    admin: dict[str, Any], env: object
) -> None:
    values = complete_values(Role.KUBE_VIP, admin)
    assert values.get("env") == env
    assert complete_values(Role.KUBE_VIP, values) == values
    assert same_values(Role.KUBE_VIP, {**admin, "nameOverride": "kube-vip"}, values)


def test_values_are_hidden_in_what_helm_says() -> None:
    values = {"a": {"password": "s3cret", "n": 7443}, "list": ["s3cret-long"], "on": True, "none": None}
    text = "cannot use s3cret-long or s3cret at 7443: true"
    assert hide_values(text, values) == "cannot use … or … at …: true"


def test_a_chart_is_shown_by_its_source() -> None:
    assert str(Chart(role=Role.KUBE_VIP, url="https://a.example")) == "https://a.example/kube-vip"
    assert str(Chart(role=Role.KUBE_VIP, url="oci://a.example/vip")) == "oci://a.example/vip"


# Workloads


def deployment(image: str, *arguments: str, **env: str) -> Workload:
    container = {
        "image": image,
        "args": list(arguments),
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    metadata = {"name": "x", "namespace": "kube-system"}
    return parse_deployment(
        {"metadata": metadata, "spec": {"template": {"spec": {"containers": [container]}}}}
    )


@pytest.mark.parametrize(
    ("found", "reads"),
    [
        (deployment("ghcr.io/kube-vip/kube-vip-cloud-provider:v0.0.12"), "kube-system"),
        (deployment("kube-vip-cloud-provider", KUBEVIP_NAMESPACE="vip"), "vip"),
        (deployment("kube-vip-cloud-provider", KUBEVIP_CONFIG_MAP="mine"), ""),
        (deployment("registry.example:5000/fipop@sha256:00", "cloud-provider"), "kube-system"),
        (deployment("registry.example:5000/fipop:0.1.0", "/kube-vip-cloud-provider", "-v=2"), "kube-system"),
        (deployment("fipop", "/usr/bin/keepalived-cloud-provider"), ""),
        (deployment("registry.example/fipop:1", "operator"), ""),
        (deployment("nginx"), ""),
    ],
)
def test_a_cloud_provider_is_known_by_what_it_reads(found: Workload, reads: str) -> None:
    assert found.reads == reads


@pytest.mark.parametrize(
    ("arguments", "takes"),
    [
        ((), True),
        (("--controllers=*",), True),
        (("--controllers=cloud-node-controller,service-lb-controller",), True),
        (("--controllers=cloud-node-controller,node-route-controller",), False),
    ],
)
def test_harvesters_service_controller_is_known_by_its_arguments(
    arguments: tuple[str, ...], takes: bool
) -> None:
    spec = {"template": {"spec": {"containers": [{"image": "x", "args": list(arguments)}]}}}
    metadata = {"name": "harvester-cloud-provider", "namespace": "kube-system"}
    assert parse_deployment({"metadata": metadata, "spec": spec}).takes_services is takes


def test_a_kube_vip_for_the_control_plane_alone_announces_no_service() -> None:
    for true in ("true", "True", "1", "t"):  # kube-vip reads it as Go does
        assert parse_daemon_set(daemon_set(svc_enable=true)).announces_services
    assert not parse_daemon_set(daemon_set(svc_enable="false", cp_enable="true")).announces_services


@pytest.mark.parametrize("odd", [None, 7, [], "x", {}, {"containers": 7}, {"containers": [7, {"env": [7]}]}])
def test_workloads_of_any_shape_are_read_without_an_error(odd: object) -> None:
    found = parse_daemon_set(
        {"metadata": {"annotations": odd}, "spec": {"template": {"spec": odd}}, "status": odd}
    )
    assert not found.is_ready


def test_pods_that_the_controller_cannot_create_are_told_apart_from_those_that_are_not_ready() -> None:
    manifest = daemon_set()
    manifest["status"] |= {"desiredNumberScheduled": 3, "currentNumberScheduled": 0, "numberReady": 0}
    assert "pod-security.kubernetes.io/enforce=privileged" in describe([parse_daemon_set(manifest)])
    manifest["status"]["currentNumberScheduled"] = 3
    assert describe([parse_daemon_set(manifest)]).endswith("has 0 of 3 pods ready")


def test_harvesters_kube_vip_is_parked_while_fipops_serves_and_back_before_that_goes() -> None:
    harvester = parse_daemon_set(daemon_set(release="harvester-cloud-provider"))
    assert should_park(installed(), removes=False) is True
    no_node = tuple(replace(each, wanted=0) for each in installed().workloads)
    assert should_park(replace(installed(), workloads=no_node), removes=False) is False
    unseen = tuple(replace(each, observed=False) for each in no_node)
    assert should_park(replace(installed(), workloads=unseen), removes=False) is None
    assert should_park(installed(status=Status.FAILED), removes=False) is None
    assert should_park(installed(), removes=True) is False
    assert should_park(place(), removes=False) is False
    assert should_park(replace(place(), conflicting_workloads=("DaemonSet a/b",)), removes=False) is None
    assert is_back([harvester])
    assert not is_back([replace(harvester, is_parked=True)])
    manifest = daemon_set(release="harvester-cloud-provider")
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {PARKED_LABEL: "true"}
    assert parse_daemon_set(manifest).is_parked


# Conditions

NO_CHART = ChartError(source="s", version="", reason="no", condition="ChartUnauthorized")
UNREADY = parse_daemon_set(daemon_set(ready=0))
JUDGED: dict[str, tuple[Release, dict[str, Any], tuple[Verdict, str]]] = {
    "well": (installed(), {}, (Verdict.TRUE, "Ready")),
    "absent": (place(), {"verb": Verb.UPGRADE}, (Verdict.FALSE, "NotReady")),
    "unready": (installed(workloads=(UNREADY,)), {}, (Verdict.FALSE, "NotReady")),
    "failed": (installed(status=Status.FAILED), {}, (Verdict.FALSE, "NotReady")),
    "absent without its chart": (place(), {"problem": NO_CHART}, (Verdict.FALSE, "ChartUnauthorized")),
    "running without its next chart": (
        installed(),
        {"problem": NO_CHART},
        (Verdict.TRUE, "ChartUnauthorized"),
    ),
    "unknown": (installed(owner=ReleaseOwner.UNKNOWN), {}, (Verdict.FALSE, "NotReady")),
    "taken": (installed(owner=ReleaseOwner.OTHER), {}, (Verdict.FALSE, "ReleaseTaken")),
    "others": (replace(place(), conflicting_workloads=("DaemonSet a/b",)), {}, (Verdict.FALSE, "OthersRun")),
    "beside others": (installed(conflicting_workloads=("DaemonSet a/b",)), {}, (Verdict.TRUE, "OthersRun")),
    "renamed": (installed(), {"place": ("other", "name")}, (Verdict.TRUE, "ReleaseNameChanged")),
    "of Harvester": (installed(), {"taker": Taker.HARVESTER}, (Verdict.FALSE, "HarvesterTakesServices")),
    "held up": (
        installed(),
        {"reason": "OptionUnknown", "held_up": "Correct it."},
        (Verdict.TRUE, "OptionUnknown"),
    ),
}


@pytest.mark.parametrize("case", JUDGED)
def test_a_release_is_judged_as(case: str) -> None:
    release, options, wanted = JUDGED[case]
    found = judge_release(
        Step(release=release, verb=options.pop("verb", Verb.NOTHING)), options.pop("reason", ""), **options
    )
    assert (found.verdict, found.reason) == wanted
    assert bool(found.message) is (case != "well")


@pytest.mark.parametrize("reason", ["", "Drift", "RolloutPending", "RolloutPaused", "RolledBack"])
def test_a_release_that_is_left_as_it_is_says_why(reason: str) -> None:
    found = judge_release(Step(release=installed(), drift="another chart"), reason)
    assert (found.verdict, found.reason) == (Verdict.TRUE, reason or "Drift")
    assert "another chart" in found.message
