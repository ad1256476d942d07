"""What a pass found, as the findings that conditions are made of."""

from dataclasses import replace
from typing import Any

import pytest

from fipop.api.conditions import Verdict
from fipop.api.objects import ReleaseStatus
from fipop.errors import FipopError, UnavailableError
from fipop.guest.configmap.keys import Contradiction
from fipop.guest.configmap.plan import BlockedKey
from fipop.guest.errors import (
    ChartError,
    ForeignReleaseError,
    HelmError,
    HelmFailure,
    ReleaseTakenError,
)
from fipop.guest.helm.charts import Role
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import ConfigMapOutcome, ConfigMapReport, PassReport, ReleaseReport
from fipop.guest.workloads import Readiness
from fipop.settings.options import DEFAULTS
from fipop.state.observations import GuestObservation, observe, unreachable
from tests.harness.tasks import asking, build_task

WEB = ("c-m-a", "web")
SERVED = build_task(asking("web"))
INSTALLED = build_task(asking("web"), opted_in=True)
WRITTEN = ConfigMapReport(outcome=ConfigMapOutcome.WRITTEN)


def release(role: Role = Role.KUBE_VIP, **fields: Any) -> ReleaseReport:
    fields = {"readiness": Readiness(ready=True, message="3 of 3 pods"), **fields}
    status = ReleaseStatus(role=role.value, name="vip", namespace="kube-system")
    return ReleaseReport(release=status, **fields)


def report(config_map: ConfigMapReport = WRITTEN, *releases: ReleaseReport, **fields: Any) -> PassReport:
    fields = {"reachable": True, "error": None, **fields}
    return PassReport(
        config_map=config_map,
        releases=releases,
        events=(),
        retry_after_seconds=None,
        **fields,
    )


def configured(config_map: ConfigMapReport) -> tuple[str, str]:
    found = observe(report(config_map), SERVED).configured[WEB]
    return found.verdict.value, found.reason


def test_of_a_guest_that_did_not_answer_nothing_is_known_but_that() -> None:
    error = UnavailableError("list ConfigMap", reason="Timeout")
    found = observe(report(reachable=False, error=error), INSTALLED)
    assert found == unreachable("GuestUnreachable", str(error), installs=True)
    assert found.kube_vip is not None
    assert found.kube_vip.verdict is Verdict.UNKNOWN
    assert unreachable("GuestUnreachable", "", installs=False).kube_vip is None


@pytest.mark.parametrize(
    ("config_map", "reason"),
    [
        (ConfigMapReport(outcome=ConfigMapOutcome.FAILED, error=FipopError("no")), "WriteFailed"),
        (ConfigMapReport(outcome=ConfigMapOutcome.WITHHELD), "OwnershipUnconfirmed"),
        (ConfigMapReport(), "NotTried"),
        (replace(WRITTEN, blocked=(BlockedKey(name="cidr-global", floating_ips=(WEB,)),)), "ForeignValue"),
        (
            replace(WRITTEN, contradictions=(Contradiction(floating_ip=WEB, key="k", wanted="a", used="b"),)),
            "Contradiction",
        ),
    ],
)
def test_why_an_address_is_not_in_the_guest(config_map: ConfigMapReport, reason: str) -> None:
    assert configured(config_map) == ("False", reason)


def test_what_stands_in_anothers_way_is_no_trouble_of_this_one() -> None:
    other = ("c-m-a", "other")
    elsewhere = replace(WRITTEN, blocked=(BlockedKey(name="cidr-shop", floating_ips=(other,)),))
    assert configured(elsewhere) == ("True", "Configured")


def kube_vip(**fields: Any) -> tuple[str, str]:
    found = observe(report(WRITTEN, release(**fields)), INSTALLED).kube_vip
    assert found is not None
    return found.verdict.value, found.reason


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, ("True", "Ready")),
        ({"readiness": Readiness(ready=False, message="0 of 3")}, ("False", "NotReady")),
        ({"drift": "values"}, ("True", "Drift")),
        ({"drift": "values", "left_because": "RolloutPending"}, ("True", "RolloutPending")),
        ({"renamed": True}, ("True", "ReleaseNameChanged")),
        (
            {"error": HelmError(action="upgrade", subject="release", failure=HelmFailure.DENIED)},
            ("False", "ReleaseFailed"),
        ),
        (
            {"error": ChartError(source="s", version="", reason="no", condition="ChartUnauthorized")},
            ("False", "ChartUnauthorized"),
        ),
        ({"error": ForeignReleaseError(namespace="tenant", name="vip")}, ("False", "ForeignRelease")),
        (
            {"error": ReleaseTakenError(namespace="kube-system", name="kube-vip", role="kube-vip")},
            ("False", "ReleaseTaken"),
        ),
        ({"beside": ("tenant/kube-vip-cp",)}, ("True", "Ready")),
        (
            {"doubt": ChartError(source="s", version="", reason="no", condition="ChartDigestMismatch")},
            ("True", "ChartDigestMismatch"),
        ),
    ],
)
def test_how_a_release_stands(fields: dict[str, Any], told: tuple[str, str]) -> None:
    assert kube_vip(**fields) == told


@pytest.mark.parametrize("ready", [True, False])
def test_a_condition_says_that_the_state_of_rollouts_cannot_be_read(ready: bool) -> None:
    found = observe(
        report(WRITTEN, release(readiness=Readiness(ready=ready, message=""))),
        replace(INSTALLED, gate=ReleaseGate(unreadable="get ConfigMap fipop-rollout: HTTP 403")),
    ).kube_vip
    assert found is not None
    assert (found.verdict is Verdict.TRUE, found.reason) == (ready, "RolloutUnreadable")
    assert "ConfigMap fipop-rollout" in found.message


@pytest.mark.parametrize("ready", [True, False])
def test_a_condition_names_the_options_for_want_of_which_nothing_is_done(ready: bool) -> None:
    unknown = frozenset({"kubevipUpdate", "kubevipNamespace"})
    found = observe(
        report(WRITTEN, release(readiness=Readiness(ready=ready, message=""))),
        replace(INSTALLED, settings=replace(DEFAULTS, unknown_options=unknown)),
    ).kube_vip
    assert found is not None
    assert (found.verdict is Verdict.TRUE, found.reason) == (ready, "OptionUnknown")
    assert "kubevipNamespace, kubevipUpdate" in found.message


def test_releases_that_were_not_seen_are_unknown_however_well_the_config_map_is() -> None:
    found: GuestObservation = observe(report(), INSTALLED)
    assert found.kube_vip is not None
    assert (found.kube_vip.verdict, found.kube_vip.reason) == (Verdict.UNKNOWN, "ReleasesUnseen")
    assert found.releases is None
    assert observe(report(WRITTEN, release()), INSTALLED).cloud_provider is None


def test_a_kube_vip_of_the_guests_own_is_named() -> None:
    found = observe(report(WRITTEN, release(beside=("tenant/kube-vip-cp",))), INSTALLED).kube_vip
    assert found is not None
    assert "tenant/kube-vip-cp" in found.message


def test_a_guest_that_is_left_has_its_releases_in_the_status_until_they_are_removed() -> None:
    for has_ours in (True, None):
        assert observe(replace(report(), has_ours=has_ours), SERVED).releases is None
    assert observe(replace(report(), has_ours=False), SERVED).releases == ()
