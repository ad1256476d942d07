"""Helm's releases as values, from metadata."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.guest.helm.charts import ChartIdentity, Role
from fipop.guest.helm.releases import (
    ReleaseDescription,
    ReleaseState,
    Status,
    build_labels,
    build_states,
    parse_record,
)
from tests.unit.guest.conftest import release_secret

PLUS = ChartIdentity(name="kube-vip", version="0.11.0+build.7", content="x")


def states_of(*secrets: dict[str, Any]) -> dict[tuple[str, str], ReleaseState]:
    return build_states(record for secret in secrets if (record := parse_record(secret)) is not None)


def ours(role: Role = Role.KUBE_VIP, revision: int = 1) -> dict[str, str]:
    return build_labels(role, "d" * 32, PLUS, object_name="kube-vip-fipop", revision=revision)


def test_labels_that_we_put_on_a_release_are_read_back() -> None:
    record = parse_record(release_secret(labels=ours()))
    assert record is not None
    assert (record.role, record.digest, record.chart_version) == (Role.KUBE_VIP, "d" * 32, "0.11.0+build.7")
    assert (record.object_name, record.is_by_us) == ("kube-vip-fipop", True)
    assert (record.key, record.revision, record.status) == (("kube-system", "kube-vip"), 1, Status.DEPLOYED)
    assert record.created == datetime(2026, 8, 20, 8, tzinfo=UTC)


def test_labels_are_what_the_api_server_allows() -> None:
    assert all(len(value) <= 63 and "+" not in value and "," not in value for value in ours().values())


def test_a_revision_that_carries_our_labels_and_was_made_by_another_is_not_by_us() -> None:
    record = parse_record(release_secret(revision=2, labels=ours(revision=1)))
    assert record is not None
    assert not record.is_by_us


@pytest.mark.parametrize(
    "labels", [{"owner": "me"}, {"version": "x"}, {"version": ""}, {"name": ""}, {"version": "²"}]
)
def test_what_is_no_release_is_no_record(labels: dict[str, str]) -> None:
    assert parse_record(release_secret(labels=labels)) is None


def test_a_status_or_role_that_we_do_not_know_is_no_error() -> None:
    record = parse_record(
        release_secret(status="new-in-helm-9", labels={"kubefip.k8s.binbash.org/role": "other"})
    )
    assert record is not None
    assert (record.status, record.role) == (Status.UNKNOWN, None)


def test_of_a_releases_revisions_the_latest_counts_and_failures_in_a_row_are_counted() -> None:
    states = states_of(
        release_secret(revision=10, status="failed"),
        release_secret(revision=9, status="failed"),
        release_secret(revision=8),
        release_secret(revision=7, status="failed"),
        release_secret("other", namespace="apps"),
    )
    assert list(states) == [("apps", "other"), ("kube-system", "kube-vip")]
    state = states["kube-system", "kube-vip"]
    assert (state.latest.revision, state.failures) == (10, 2)


def test_a_release_that_helm_described_tells_the_name_of_its_objects() -> None:
    description = ReleaseDescription(
        chart_name="kube-vip", chart_version="0.9.9", values={"nameOverride": "vip"}
    )
    assert "vip" not in repr(description).replace("kube-vip", "")
    record = parse_record(release_secret())
    assert record is not None
    assert ReleaseState(latest=record, description=description).object_name == "vip"
    assert ReleaseState(latest=record).object_name == "kube-vip"


@pytest.mark.parametrize(
    "secret",
    [
        release_secret("--post-renderer=/bin/sh"),
        release_secret("a" * 54),
        release_secret("a\nb"),
        release_secret(namespace="../other"),
        release_secret(namespace=""),
        release_secret(labels={"version": "9" * 5000}),
        release_secret(labels={"version": "-1"}),
        release_secret(labels={"version": "1_0"}),
    ],
)
def test_a_release_whose_labels_are_fit_for_no_command_line_is_none(secret: dict[str, Any]) -> None:
    assert parse_record(secret) is None


def test_labels_that_somebody_in_the_guest_wrote_are_cleaned_and_cut() -> None:
    hostile = "\x1b[31m\u202e" + "v" * 5000
    record = parse_record(release_secret(labels=dict.fromkeys(ours(), hostile)))
    assert record is not None
    assert (record.role, record.object_name) == (None, None)
    for text in (record.digest, record.chart_version, record.made_revision):
        assert text is not None
        assert len(text) <= 63
        assert text.isprintable()


@given(
    st.dictionaries(
        st.sampled_from(["metadata", "labels", "data"]),
        st.none()
        | st.text(max_size=3)
        | st.dictionaries(
            st.sampled_from(["labels", "name", "creationTimestamp"]),
            st.none() | st.text(max_size=3),
            max_size=3,
        ),
    )
)
def test_secrets_of_any_shape_are_read_without_an_error(secret: dict[str, Any]) -> None:
    assert parse_record(secret) is None
