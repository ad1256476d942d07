"""What `helm test` makes, and that nothing of it is there at other times."""

from tests.chart.rendering import Chart, Rendered

HOOK, WEIGHT, POLICY = "helm.sh/hook", "helm.sh/hook-weight", "helm.sh/hook-delete-policy"


def hooks(chart: Chart) -> Rendered:
    rendered = chart.render(with_tests=True)
    return Rendered([each for each in rendered if HOOK in (each["metadata"].get("annotations") or {})])


def test_its_range_is_in_an_address_space_of_its_own_and_serves_no_guest_cluster(chart: Chart) -> None:
    made = hooks(chart)
    pool, floating_ip = made.only("FloatingIPRange"), made.only("FloatingIP")
    assert pool["spec"]["addressSpace"] == "fipop-test"
    annotations = pool["metadata"]["annotations"]
    assert not {"harvesterClusterName", "harvesterNetworkName"} & set(annotations)
    assert "clusterSelector" not in pool["spec"]
    assert floating_ip["metadata"]["annotations"]["fiprange"] == pool["metadata"]["name"]
    # helm deletes the range a moment after the floating IP, or before it.
    assert annotations["kubefip.k8s.binbash.org/allow-delete"] == "true"
