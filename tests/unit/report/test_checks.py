"""Point by point what an installation needs, each failure with what to do about it."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from fipop.guest.helm.releases import parse_record
from fipop.guest.workloads import Workload as GuestWorkload
from fipop.guest.workloads import parse_daemon_set
from fipop.report.checks import (
    Check,
    CheckVerdict,
    check_guest,
    check_operator,
    check_ranges,
    check_rights,
    check_schemas,
)
from fipop.report.facts import SCHEMA_REVISIONS, Leadership, Unread, Workload
from fipop.report.fleet import report_floating_ips
from fipop.report.guest_words import GuestWords
from fipop.report.picture import Picture
from fipop.report.ranges import report_ranges
from fipop.settings.options import DEFAULTS, BadOption
from tests.harness.objects import NOW, build_floating_ip, build_range, build_reservation, held_by
from tests.unit.guest.conftest import release_secret
from tests.unit.report.pictures import healthy_installation, picture

CRD = next(iter(SCHEMA_REVISIONS))
READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": None}


def pods(*, wanted: int, ready: int) -> Workload:
    return Workload(image="", service_account="", wanted=wanted, ready=ready)


def failing(checks: Iterable[Check]) -> dict[str, str]:
    """Give what is not well, by its name; each tells what to do."""
    found = [each for each in checks if each.verdict is not CheckVerdict.OK]
    assert all(each.advice for each in found), "whoever is told of trouble is told what to do"
    return {each.name: each.verdict.value for each in found}


def of_operator(**changes: Any) -> dict[str, str]:
    return failing(check_operator(picture(installation=healthy_installation(**changes)).facts))


def test_of_a_healthy_installation_every_check_passes() -> None:
    facts = picture().facts
    for checks in (check_rights(facts), check_schemas(facts), check_operator(facts)):
        assert failing(checks) == {}


@pytest.mark.parametrize(
    ("changes", "name", "verdict"),
    [
        ({"workload": None}, "the operator's pods are ready", "failed"),
        (
            {"workload": Workload(image="", service_account="", wanted=2, ready=0)},
            "the operator's pods are ready",
            "failed",
        ),
        (
            {"workload": Workload(image="", service_account="", wanted=2, ready=1)},
            "the operator's pods are ready",
            "warning",
        ),
        (
            {"workload": Workload(image="", service_account="", wanted=0, ready=0)},
            "the operator's pods are ready",
            "warning",
        ),
        ({"leadership": None}, "one of them leads", "failed"),
        (
            {"leadership": Leadership(holder="x", renewed=NOW - timedelta(minutes=5), duration_seconds=15)},
            "one of them leads",
            "failed",
        ),
        (
            {"predecessor": pods(wanted=1, ready=0)},
            "kube-fip-operator does not run",
            "failed",
        ),
        ({"has_settings": False}, "the options of kube-fip-config are understood", "failed"),
        (
            {"bad_options": (BadOption(option="logLevel", value="x", reason="is none"),)},
            "the options of kube-fip-config are understood",
            "failed",
        ),
        ({"unwise_options": ("a tag is not a version",)}, "the options are wise", "warning"),
    ],
)
def test_what_is_wrong_with_the_operator_is_one_check(
    changes: dict[str, Any], name: str, verdict: str
) -> None:
    assert of_operator(**changes) == {name: verdict}


def test_what_could_not_be_read_is_not_said_to_be_wrong() -> None:
    unread = tuple(
        Unread(what=what, problem="missing right: get")
        for what in ("the operator's Deployment", "the operator's Lease", "kube-fip-operator")
    )
    facts = picture(installation=healthy_installation(workload=None, leadership=None), unread=unread).facts
    assert failing(check_operator(facts)) == {}
    assert set(failing(check_rights(facts)).values()) == {"warning"}


@pytest.mark.parametrize("revision", [None, 0])
def test_an_old_schema_fails(revision: int | None) -> None:
    installation = healthy_installation(schemas={**SCHEMA_REVISIONS, CRD: revision})
    assert failing(check_schemas(picture(installation=installation).facts)) == {f"CRD {CRD}": "failed"}


def of_ranges(found: Picture) -> dict[str, str]:
    return failing(check_ranges(report_ranges(found)))


def test_ranges_that_are_full_nearly_full_broken_or_overlap() -> None:
    assert of_ranges(picture()) == {"there is a floating IP range": "warning"}
    full = [build_reservation(f"10.0.0.{number}") for number in range(1, 11)]
    pool = build_range("pool", "10.0.0.1-10.0.0.10")
    assert of_ranges(picture(ranges=[pool], reservations=full[:8])) == {}
    assert of_ranges(picture(ranges=[pool], reservations=full[:9])) == {"range pool": "warning"}
    assert of_ranges(picture(ranges=[pool], reservations=full)) == {"range pool": "failed"}
    assert of_ranges(picture(ranges=[build_range("pool", "nonsense")])) == {"range pool": "failed"}
    younger = build_range("young", "10.0.0.5-10.0.0.20", created="2026-02-01T00:00:00Z")
    assert of_ranges(picture(ranges=[pool, younger])) == {"range young": "failed"}


def test_a_range_that_is_drained_may_be_full() -> None:
    drained = build_range("pool", "10.0.0.1", draining=True)
    assert of_ranges(picture(ranges=[drained], reservations=[build_reservation("10.0.0.1")])) == {}


def of_guest(
    words: GuestWords, *, installs: bool = False, floating_ips: Picture | None = None
) -> dict[str, str]:
    listed = report_floating_ips(floating_ips if floating_ips is not None else serving())
    return failing(check_guest("demo", words, listed, installs=DEFAULTS if installs else None))


def serving(**status: Any) -> Picture:
    told = {**held_by(["10.0.0.5"]), "conditions": [READY], **status}
    return picture(floating_ips=[build_floating_ip("web", status=told)])


WELL = GuestWords(
    guest="c-m-1", version="v1.30.0", config_map={"kube-system/kubevip cidr-global": "10.0.0.5/32"}
)


@pytest.mark.parametrize(
    ("step", "name"),
    [
        ("kubeconfig", "its kubeconfig can be read"),
        ("connection", "its API server answers"),
        ("objects", "its objects can be read"),
    ],
)
def test_the_first_step_that_fails_is_told_and_nothing_behind_it(step: str, name: str) -> None:
    assert of_guest(GuestWords(guest="c-m-1", step=step, problem="no")) == {name: "failed"}


def test_an_address_that_the_guest_lacks_fails() -> None:
    assert of_guest(WELL) == {}
    assert of_guest(GuestWords(guest="c-m-1")) == {"floating IP web": "failed"}
    assert of_guest(WELL, floating_ips=serving(addresses=[])) == {"floating IP web": "failed"}
    assert of_guest(WELL, floating_ips=serving(conditions=[])) == {"floating IP web": "warning"}
    assert of_guest(WELL, floating_ips=picture()) == {"it has a floating IP": "warning"}


def kube_vip(*, ready: int) -> GuestWorkload:
    containers = [{"image": "registry.example/plndr/kube-vip:v1"}]
    return parse_daemon_set(
        {
            "metadata": {"namespace": "kube-system", "name": "kube-vip", "generation": 1},
            "spec": {"template": {"spec": {"containers": containers}}},
            "status": {
                "observedGeneration": 1,
                "desiredNumberScheduled": 3,
                "numberReady": ready,
                "updatedNumberScheduled": 3,
            },
        }
    )


def test_where_fipop_installs_both_programs_must_be_ready() -> None:
    both = {"kube-vip is ready": "failed", "kube-vip-cloud-provider is ready": "failed"}
    assert of_guest(WELL, installs=True) == both
    found = GuestWords(guest="c-m-1", config_map=WELL.config_map, workloads=(kube_vip(ready=3),))
    assert of_guest(found, installs=True) == {"kube-vip-cloud-provider is ready": "failed"}
    late = GuestWords(guest="c-m-1", config_map=WELL.config_map, workloads=(kube_vip(ready=2),))
    assert of_guest(late, installs=True) == both


def test_a_release_with_our_labels_in_a_namespace_that_does_not_count_is_listed() -> None:
    labels = {"kubefip.k8s.binbash.org/role": "kube-vip"}
    name = "no release with the labels of fipop is in another namespace"

    def verdict(namespace: str, **status: Any) -> str | None:
        record = parse_record(release_secret(namespace=namespace, labels=labels))
        assert record is not None
        words = GuestWords(guest="c-m-1", config_map=WELL.config_map, releases=(record,))
        return of_guest(words, installs=True, floating_ips=serving(**status)).get(name)

    assert verdict("kube-system") is None
    assert verdict("tenant") == "failed"
    reported = {"id": "c-m-1", "releases": [{"namespace": "tenant", "name": "kube-vip"}]}
    assert verdict("tenant", guest=reported) is None
