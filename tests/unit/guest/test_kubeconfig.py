"""A guest's kubeconfig: what is taken of it, and all that is refused."""

import base64
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fipop.errors import KubeconfigError
from fipop.guest.kubeconfig import parse_kubeconfig
from fipop.kube.connection import Connection

GUEST = "c-m-4xk8q2vz"
SERVER = f"https://10.43.17.20/k8s/clusters/{GUEST}"
SECRET = "kubeconfig-u-verysecret:abcdef"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN EC PRIVATE KEY-----\nMIIB\n-----END EC PRIVATE KEY-----\n"


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def document(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any
) -> dict[str, Any]:
    """A kubeconfig as Rancher writes it, changed in some places; None takes a field out."""
    whole_cluster = {"server": SERVER, "certificate-authority-data": encode(CERTIFICATE)} | (cluster or {})
    whole_user = {"token": SECRET} | (user or {})
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "cluster", "cluster": {k: v for k, v in whole_cluster.items() if v is not None}}
        ],
        "users": [{"name": "user", "user": {k: v for k, v in whole_user.items() if v is not None}}],
        "contexts": [{"name": "default", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "default",
    } | top


def parse(value: dict[str, Any] | str, *, allow_loopback: bool = False) -> Connection:
    text = value if isinstance(value, str) else yaml.safe_dump(value)
    return parse_kubeconfig(text.encode(), guest_id=GUEST, allow_loopback=allow_loopback)


def refused_field(value: dict[str, Any] | str) -> str:
    with pytest.raises(KubeconfigError) as refused:
        parse(value)
    assert "verysecret" not in str(refused.value)
    return refused.value.field


def test_what_rancher_writes_becomes_a_connection() -> None:
    assert parse(document()) == Connection(
        server=SERVER, ca_pem=CERTIFICATE, token=SECRET, local_addresses_allowed=False
    )


def test_a_client_certificate_and_a_tls_server_name_are_taken_over() -> None:
    user = {"token": None, "client-certificate-data": encode(CERTIFICATE), "client-key-data": encode(KEY)}
    connection = parse(document(cluster={"tls-server-name": "rancher.example"}, user=user))
    assert (connection.client_certificate_pem, connection.client_key_pem) == (CERTIFICATE, KEY)
    assert (connection.token, connection.tls_server_name) == (None, "rancher.example")


def test_only_the_current_context_counts() -> None:
    value = document()
    value["users"].append({"name": "other", "user": {"exec": {"command": "/bin/evil"}}})
    value["contexts"].append({"name": "other", "context": {"cluster": "cluster", "user": "other"}})
    assert parse(value).token == SECRET
    assert refused_field(value | {"current-context": "other"}) == "user.exec"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("exec", {"command": "/bin/evil"}),
        ("auth-provider", {"name": "oidc"}),
        ("tokenFile", "/var/run/secrets/kubernetes.io/serviceaccount/token"),
        ("client-certificate", "/etc/shadow"),
        ("client-key", "/etc/shadow"),
        ("username", "admin"),
        ("password", "verysecret"),
        ("as", "system:admin"),
        ("as-uid", "1"),
        ("as-groups", ["system:masters"]),
        ("as-user-extra", {"a": ["b"]}),
    ],
)
def test_a_user_that_runs_reads_or_impersonates_is_refused_by_its_field(field: str, value: object) -> None:
    assert refused_field(document(user={field: value})) == f"user.{field}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("certificate-authority", "/etc/ssl/ca.pem"),
        ("proxy-url", "http://proxy.example:3128"),
        ("insecure-skip-tls-verify", True),
        ("insecure-skip-tls-verify", "true"),
        ("certificate-authority-data", "not base64!"),
        ("certificate-authority-data", encode("not PEM")),
        ("tls-server-name", "a b"),
        ("server", None),
        ("server", 7),
    ],
)
def test_a_cluster_that_reads_or_trusts_too_much_is_refused_by_its_field(field: str, value: object) -> None:
    assert refused_field(document(cluster={field: value})) == f"cluster.{field}"


@pytest.mark.parametrize(
    "server",
    [
        f"http://10.43.17.20/k8s/clusters/{GUEST}",
        f"HTTPS:/k8s/clusters/{GUEST}",
        f"https://user:verysecret@10.43.17.20/k8s/clusters/{GUEST}",
        f"https://10.43.17.20/k8s/clusters/{GUEST}?a=b",
        f"https://10.43.17.20/k8s/clusters/{GUEST}#a",
        "https://10.43.17.20/k8s/clusters/c-m-another1",
        "https://10.43.17.20",
        f"https://10.43.17.20/k8s/clusters/../clusters/{GUEST}",
        f"https://10.43.17.20//k8s/clusters/{GUEST}",
        f"https://10.43.17.20/k8s/clusters/%63-m-4xk8q2vz/k8s/clusters/{GUEST}",
        f"https://10.43.17.20/k8s/clusters/{GUEST}/extra",
        f"https://10.43.17.20/x{GUEST}",
        f"https://10.43.17.20:0/k8s/clusters/{GUEST}",
        f"https://10.43.17.20:99999/k8s/clusters/{GUEST}",
        f"https://10.43.17.20\\@evil/k8s/clusters/{GUEST}",
        f"https://10.43.17.20/k8s/\nclusters/{GUEST}",
        f"https://127.0.0.1/k8s/clusters/{GUEST}",
        f"https://127.1/k8s/clusters/{GUEST}",
        f"https://2130706433/k8s/clusters/{GUEST}",
        f"https://0x7f000001/k8s/clusters/{GUEST}",
        f"https://[::1]/k8s/clusters/{GUEST}",
        f"https://[::ffff:127.0.0.1]/k8s/clusters/{GUEST}",
        f"https://[fe80::1]/k8s/clusters/{GUEST}",
        f"https://169.254.169.254/k8s/clusters/{GUEST}",
        f"https://0.0.0.0/k8s/clusters/{GUEST}",
        f"https://localhost/k8s/clusters/{GUEST}",
        f"https://LOCALHOST./k8s/clusters/{GUEST}",
        f"https://a.localhost/k8s/clusters/{GUEST}",
        f"https://metadata_.-/k8s/clusters/{GUEST}",
        "https://" + "a" * 3000,
        f"https://{'a' * 64}.example/k8s/clusters/{GUEST}",
    ],
)
def test_a_server_that_is_not_this_guest_behind_https_is_refused(server: str) -> None:
    assert refused_field(document(cluster={"server": server})) == "cluster.server"


@pytest.mark.parametrize(
    "server",
    [
        SERVER,
        SERVER + "/",
        f"https://rancher.example.com:8443/k8s/clusters/{GUEST}",
        f"https://rancher.example.com/behind/a/prefix/k8s/clusters/{GUEST}",
        f"https://[fd00::10]:443/k8s/clusters/{GUEST}",
        f"https://{'a' * 63}.example/k8s/clusters/{GUEST}",
    ],
)
def test_a_server_that_is_this_guest_behind_https_is_taken(server: str) -> None:
    assert parse(document(cluster={"server": server})).server == server.removesuffix("/")


def test_a_refused_loopback_names_the_option_that_allows_it() -> None:
    value = document(cluster={"server": f"https://127.0.0.1:6443/k8s/clusters/{GUEST}"})
    with pytest.raises(KubeconfigError, match="--allow-loopback-guests"):
        parse(value)


def test_loopback_is_taken_where_it_is_allowed() -> None:
    value = document(cluster={"server": f"https://127.0.0.1:6443/k8s/clusters/{GUEST}"})
    connection = parse(value, allow_loopback=True)
    assert connection.local_addresses_allowed
    with pytest.raises(KubeconfigError):
        parse(value)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (document(user={"token": None}), "user.token"),
        (document(user={"token": 7}), "user.token"),
        (document(user={"client-key-data": encode(KEY)}), "user.client-key-data"),
        (document(user={"client-certificate-data": encode(CERTIFICATE)}), "user.client-key-data"),
        (document(clusters=[]), "clusters"),
        (document(clusters="x"), "clusters"),
        (document(contexts=[{"name": "default", "context": None}]), "contexts[].context"),
        (document(contexts=[{"name": "default", "context": {"cluster": "cluster"}}]), "context.user"),
        (document(**{"current-context": ""}), "current-context"),
        (document(users=[*document()["users"], *document()["users"]]), "users"),
        ("- 1\n- 2\n", "value"),
        ("{", "value"),
        ("a: &x 1\nb: *x\n", "value"),
        ("[" * 5000, "value"),
        ("a" * 70_000, "value"),
    ],
)
def test_what_is_malformed_is_refused_by_its_field(value: dict[str, Any] | str, field: str) -> None:
    assert refused_field(value) == field


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(KubeconfigError):
        parse_kubeconfig(b"\xff\xfe\x00", guest_id=GUEST, allow_loopback=False)


@given(st.binary(max_size=500))
def test_any_bytes_end_in_a_connection_or_in_our_error(data: bytes) -> None:
    with pytest.raises(KubeconfigError):
        parse_kubeconfig(data, guest_id=GUEST, allow_loopback=True)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["clusters", "users", "contexts", "current-context"]),
    st.sampled_from(["server", "token", "certificate-authority-data", "client-key-data", "tls-server-name"]),
    _JSON,
)
def test_any_value_in_any_field_ends_in_a_connection_or_in_our_error(
    top: str, inner: str, value: Any
) -> None:
    for changed in (document(**{top: value}), document(cluster={inner: value}, user={inner: value})):
        try:
            parse(json.dumps(changed))
        except KubeconfigError:
            continue
