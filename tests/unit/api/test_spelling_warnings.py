"""Keys and values of annotations and labels that are probably not what their author meant."""

import pytest

from fipop.api.objects import FloatingIP, FloatingIPRange, read_object
from fipop.api.spelling_warnings import RANGE_KEYS, find_spelling_warnings
from fipop.rancher.objects import parse_provisioning_cluster

GROUP = "kubefip.k8s.binbash.org"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("harvesterNetworkname", "harvesterNetworkName"),
        ("HARVESTERNETWORKNAME", "harvesterNetworkName"),
        ("harvesterNetworkNames", "harvesterNetworkName"),
        ("harvesterNetwrkName", "harvesterNetworkName"),
        ("harvesterClusterMame", "harvesterClusterName"),
        ("harvesterClutserName", "harvesterClusterName"),
        ("harvesterNetworkName", ""),
        ("harvesterNode", ""),
        ("kubectl.kubernetes.io/last-applied-configuration", ""),
        ("", ""),
    ],
)
def test_a_key_in_another_case_or_one_letter_off_is_named_with_what_is_meant(key: str, meant: str) -> None:
    found = find_spelling_warnings("annotation", {key: "vlan10"}, RANGE_KEYS)
    assert [each for each in found if key in each and f"did you mean {meant}?" in each] == list(found)
    assert len(found) == bool(meant)


def floating_ip(**annotations: str) -> FloatingIP:
    return read_object(FloatingIP, {"metadata": {"name": "web", "annotations": annotations}})


def test_a_value_that_is_no_boolean_is_named() -> None:
    (found,) = floating_ip(updateConfigMap="ja").spelling_warnings
    assert "annotation updateConfigMap" in found
    assert '"ja"' in found
    assert floating_ip(updateConfigMap="True", clustername="ja", fiprange="").spelling_warnings == ()


@pytest.mark.parametrize("value", ["???", "c-m-x c-m-y", "demo/web", "c-m-x,*"])
def test_a_list_of_guest_clusters_that_cannot_be_read_is_named(value: str) -> None:
    (found,) = floating_ip(**{f"{GROUP}/ignore-claim": value}).spelling_warnings
    assert found.endswith(f'must be ids of guest clusters, separated by commas: it is "{value}".')
    for right in ("", "c-m-x", " c-m-x, c-m-y,"):
        assert floating_ip(**{f"{GROUP}/ignore-claim": right}).spelling_warnings == ()


@pytest.mark.parametrize("value", ["True", "TRUE", "1", "yes", ""])
def test_a_value_that_counts_only_as_exactly_true_is_named_in_every_other_spelling(value: str) -> None:
    exact = {f"{GROUP}/allow-delete": value}
    found = [read_object(FloatingIPRange, {"metadata": {"annotations": exact}}).spelling_warnings]
    for label in ("remove", "canary"):
        metadata = {"labels": {f"{GROUP}/{label}": value, "kube-vip": "False"}}
        found.append(parse_provisioning_cluster({"metadata": metadata}).spelling_warnings)
    for odd in found:
        (text,) = odd
        assert text.endswith(f'must be "true" or "false": it is "{value}".')


def test_ranges_floating_ips_and_clusters_have_keys_of_their_own() -> None:
    assert len(floating_ip(fipRange="pool").spelling_warnings) == 1
    found = read_object(FloatingIPRange, {"metadata": {"annotations": {"harvesterclustername": "hv1"}}})
    assert len(found.spelling_warnings) == 1
    labels, annotations = {"kube-vip": "yes", "kubevip": "true"}, {f"{GROUP}/floating-ips": "false"}
    cluster = parse_provisioning_cluster({"metadata": {"labels": labels, "annotations": annotations}})
    assert len(cluster.spelling_warnings) == 3
    healthy = {"labels": {"kube-vip": "true", "app": "web"}, "annotations": {f"{GROUP}/paused": "false"}}
    assert parse_provisioning_cluster({"metadata": healthy}).spelling_warnings == ()


def test_what_is_shown_is_bounded_and_printable() -> None:
    found = find_spelling_warnings(
        "annotation", {"FIPRANGE": "x"} | {f"fiprange{each}": "x" for each in "abcdefgh"}, {"fiprange": None}
    )
    assert len(found) == 3
    (odd,) = floating_ip(paused="true", updateConfigMap="\x1b[31m" + "x" * 5000).spelling_warnings
    assert odd.isprintable()
    assert len(odd) < 200
