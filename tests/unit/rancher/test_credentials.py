"""Which Harvester a cloud credential is for."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.rancher.credentials import MAX_KUBECONFIG_BYTES, Credential, parse_credential
from tests.unit.rancher.described import secret
from tests.unit.rancher.examples import Examples


def kubeconfig(server: str, *, extra: str = "") -> str:
    return (
        f"clusters: [{{name: other, cluster: {{server: 'https://r/k8s/clusters/c-other'}}}}, "
        f"{{name: harv, cluster: {{server: '{server}'}}}}]\n"
        "contexts: [{name: main, context: {cluster: harv, user: me}}]\n"
        f"current-context: main\n{extra}"
    )


def ids(obj: Mapping[str, object]) -> tuple[str | None, str | None]:
    found = parse_credential(obj)
    return found.cluster_id, found.server_id


class TestCredential:
    @pytest.mark.parametrize("cluster_id", ["c-m-9hb2c7rr", "c-9hb2c", "local", "my.harvester"])
    def test_the_id_is_taken_whatever_its_form(self, cluster_id: str) -> None:
        assert ids(secret(clusterId=cluster_id)) == (cluster_id, None)

    def test_without_an_id_the_server_of_the_current_context_names_the_cluster(
        self, examples: Examples
    ) -> None:
        obj = examples.credential
        del obj["data"]["harvestercredentialConfig-clusterId"]

        assert ids(obj) == (None, "c-m-9hb2c7rr")
        found = ids(secret(kubeconfigContent=kubeconfig("https://r:8443/k8s/clusters/c-abcde/")))
        assert found == (None, "c-abcde")

    def test_both_are_read_also_if_they_contradict(self) -> None:
        obj = secret(clusterId="c-aaaaa", kubeconfigContent=kubeconfig("https://r/k8s/clusters/c-bbbbb"))
        assert parse_credential(obj) == Credential(cluster_id="c-aaaaa", server_id="c-bbbbb", has_server=True)

    @pytest.mark.parametrize(
        "server",
        [
            "https://harvester.example.com:6443",
            "https://r/k8s/clusters/",
            "https://r/k8s/clusters/a/b",
            "https://r/k8s/clusters/..",
            "https://r/k8s/clusters/%2e%2e",
            "https://[::1/k8s/clusters/c-abcde",
        ],
    )
    def test_a_server_that_is_no_cluster_of_rancher_names_none(self, server: str) -> None:
        found = parse_credential(secret(kubeconfigContent=kubeconfig(server)))
        assert found == Credential(cluster_id=None, server_id=None, has_server=True)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[",
            "- a",
            "clusters: 7\ncontexts: {}\ncurrent-context: [x]",
            "current-context: main",
            kubeconfig("https://r/k8s/clusters/c-abcde", extra="a: &a 1\nb: *a\n"),
            kubeconfig("https://r/k8s/clusters/c-abcde", extra="a: !!python/name:os.system x\n"),
            kubeconfig("https://r/k8s/clusters/c-abcde", extra="a: " + "[" * 40_000),
            kubeconfig("https://r/k8s/clusters/c-abcde", extra="a: " + "x" * MAX_KUBECONFIG_BYTES),
        ],
        ids=["empty", "cut", "list", "types", "dangling", "alias", "tag", "nested", "long"],
    )
    def test_a_hostile_kubeconfig_names_none(self, text: str) -> None:
        found = parse_credential(secret(kubeconfigContent=text))
        assert found == Credential(cluster_id=None, server_id=None, has_server=False)

    @pytest.mark.parametrize("data", [None, {}, [], {"harvestercredentialConfig-clusterId": "no base64!"}])
    def test_a_secret_of_another_kind_names_none(self, data: object) -> None:
        assert ids({"data": data}) == (None, None)

    @pytest.mark.parametrize("cluster_id", ["../x", "C-M", "a/b", "-a", "a" * 300, "a b"])
    def test_an_id_that_no_object_can_have_is_none(self, cluster_id: str) -> None:
        assert ids(secret(clusterId=cluster_id)) == (None, None)

    @given(st.text(max_size=300), st.binary(max_size=100))
    def test_garbage_is_an_id_or_none(self, text: str, noise: bytes) -> None:
        parse_credential(secret(kubeconfigContent=text.encode("utf-8", "replace").decode()))
        parse_credential({"data": {"harvestercredentialConfig-kubeconfigContent": noise.decode("latin-1")}})
