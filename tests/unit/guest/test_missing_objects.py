"""Which objects a release's manifest names."""

import pytest

from fipop.guest.errors import ReleaseRecordError
from fipop.guest.helm.releases import ReleaseState, parse_record
from fipop.guest.missing_objects import parse_manifest
from tests.unit.guest.conftest import release_secret

RECORD = parse_record(release_secret())
assert RECORD is not None
STATE = ReleaseState(latest=RECORD)

MANIFEST = """\
---
# Source: kube-vip/templates/rbac.yaml
apiVersion: v1
kind: ServiceAccount
metadata: {name: vip}
--- # with a comment
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: vip, namespace: ignored}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: vip, namespace: other}
data: "a --- b"
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: unknown}
---
"""


def test_known_kinds_are_named_with_the_place_they_have() -> None:
    found = [
        (resource.kind, namespace, name) for resource, namespace, name in parse_manifest(MANIFEST, STATE)
    ]
    assert found == [
        ("ServiceAccount", "kube-system", "vip"),
        ("ClusterRole", None, "vip"),
        ("DaemonSet", "other", "vip"),
    ]


@pytest.mark.parametrize(
    "manifest", ["", "---\n", "a: 1\n---\n- b\n", "kind: Secret\nmetadata: x\n", "metadata: {}\n"]
)
def test_what_names_no_object_is_passed_over(manifest: str) -> None:
    assert parse_manifest(manifest, STATE) == ()


ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: vip}\n"


def test_no_more_objects_are_looked_for_than_a_guest_is_to_be_asked() -> None:
    many = "---\n".join([ACCOUNT] * 50 + ["{"])
    assert len(parse_manifest(many, STATE)) == 50, "what follows is not even read"


@pytest.mark.parametrize(
    "manifest",
    ["{", "a: &x 1\nb: *x\n", "x" * 2_000_000, f"a: {'x' * 700_000}\n---\n" * 2, "a: 1\n---\n" * 600],
)
def test_a_manifest_that_cannot_be_read_is_our_error(manifest: str) -> None:
    with pytest.raises(ReleaseRecordError):
        parse_manifest(manifest, STATE)
