"""What `helm test` makes, and that nothing of it is there at other times."""

from tests.chart.rendering import Chart, Rendered

HOOK, WEIGHT, POLICY = "helm.sh/hook", "helm.sh/hook-weight", "helm.sh/hook-delete-policy"


def hooks(chart: Chart) -> Rendered:
    rendered = chart.render(with_tests=True)
    return Rendered([each for each in rendered if HOOK in (each["metadata"].get("annotations") or {})])


def test_it_is_made_for_the_test_alone_and_deleted_with_it(chart: Chart) -> None:
    """All have the name of the pod: `helm test --logs` asks for the log of a pod by the name of each."""
    made = hooks(chart)
    assert {each["kind"] for each in made} >= {"Pod", "FloatingIP", "FloatingIPRange"}
    for each in made:
        annotations = each["metadata"]["annotations"]
        assert annotations[HOOK] == "test"
        assert each["metadata"]["name"] == "fipop-test"
        policies = set(annotations[POLICY].split(","))
        if each["kind"] == "Pod":
            # Its log and its fault can be read until the next test.
            assert policies == {"before-hook-creation"}
        else:
            assert policies == {"before-hook-creation", "hook-succeeded"}


def test_the_rest_of_the_chart_is_the_same_with_and_without_it(chart: Chart) -> None:
    made = hooks(chart)
    assert [each for each in chart.render(with_tests=True) if each not in made] == chart.render()


def test_the_pod_comes_last_and_reads_what_a_viewer_reads(chart: Chart) -> None:
    made = hooks(chart)
    by_weight = sorted(made, key=lambda each: int(each["metadata"]["annotations"].get(WEIGHT, "0")))
    assert by_weight[-1]["kind"] == "Pod"
    assert by_weight[0]["kind"] == "ServiceAccount"
    assert not made.of_kind("Role")
    assert not made.of_kind("ClusterRole")
    account = {"kind": "ServiceAccount", "name": "fipop-test", "namespace": "kube-fip"}
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        binding = made.only(kind)
        assert binding["subjects"] == [account]
        assert binding["roleRef"]["name"] == "fipop-viewer"
    assert made.only("Pod")["spec"]["serviceAccountName"] == account["name"]


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
