"""Guest clusters are reached by the three fields that Rancher writes into their kubeconfigs, and by nothing else."""

import base64
import json
from typing import Any

import pytest

from fipop.errors import GuestError
from fipop.kube.client import KubeClient
from fipop.kube.guests import GuestServers, read_kubeconfig
from fipop.kube.resources import CONFIG_MAPS

GUEST = "c-m-abcd1234"
SERVER = f"https://rancher.example/k8s/clusters/{GUEST}"
CONFIG_MAP = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x", "resourceVersion": "1"}}


def kubeconfig(server: str = SERVER, *, token: str = "kubeconfig-u:t", ca: bytes = b"", **more: Any) -> bytes:
    cluster: dict[str, Any] = {"server": server}
    if ca:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "other", "cluster": {"server": "https://other.example"}},
                {"name": "guest", "cluster": cluster | more},
            ],
            "users": [
                {"name": "other", "user": {"token": "other"}},
                {"name": "guest", "user": {"token": token}},
            ],
            "contexts": [{"name": "guest", "context": {"cluster": "guest", "user": "guest"}}],
            "current-context": "guest",
        }
    ).encode()


def test_server_token_and_authority_are_read():
    found = read_kubeconfig(kubeconfig(f"{SERVER}/", ca=b"PEM"), GUEST)
    assert (found.server, found.token, found.ca_pem) == (SERVER, "kubeconfig-u:t", "PEM")
    assert "kubeconfig-u" not in repr(found)


def test_a_bundle_with_a_comment_in_another_encoding_is_accepted():
    found = read_kubeconfig(kubeconfig(ca="# Zürich\n-----BEGIN".encode()), GUEST)
    assert found.ca_pem.endswith("\n-----BEGIN")


def test_an_authority_in_lines_is_accepted_as_by_go():
    text = base64.encodebytes(b"-----BEGIN" * 20).decode()
    assert "\n" in text.strip()
    found = read_kubeconfig(kubeconfig(**{"certificate-authority-data": text}), GUEST)
    assert found.ca_pem == "-----BEGIN" * 20


def without(field: str, **user: Any) -> bytes:
    document = json.loads(kubeconfig())
    document.pop(field, None)
    if user:
        document["users"][1]["user"] = user
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "is empty"),
        (kubeconfig()[:200], "must be YAML"),
        (b"apiVersion", "may be cut"),
        (without("current-context"), "current-context"),
        (without("contexts"), "current-context"),
        (without("clusters"), "no cluster with a server"),
        (without("users"), "no user with a token"),
        (without("", exec={"command": "aws"}), "a program that gets its credential"),
        (without("", **{"client-certificate-data": "x"}), "a client certificate"),
        (kubeconfig(token="a b"), "characters that no token has"),
        *((without("", token=each), "no user with a token") for each in ("", None, ["a"], 7, {})),
        (kubeconfig(**{"certificate-authority-data": "abc"}), "is not base64"),
    ],
)
def test_each_cause_has_its_sentence(data: bytes, cause: str):
    with pytest.raises(GuestError, match=cause):
        read_kubeconfig(data, GUEST)


def test_nothing_else_of_a_kubeconfig_counts():
    more = {"insecure-skip-tls-verify": True, "proxy-url": "http://evil", "certificate-authority": "/etc/x"}
    assert read_kubeconfig(kubeconfig(**more), GUEST) == read_kubeconfig(kubeconfig(), GUEST)


@pytest.mark.parametrize(
    "server",
    [
        "http://rancher.example/k8s/clusters/c-m-abcd1234",
        "https://rancher.example/k8s/clusters/c-m-other",
        "https://rancher.example/k8s/clusters/c-m-abcd1234/../c-m-other",
        "https://rancher.example/k8s/clusters/..%2fc-m-abcd1234",
        "https://rancher.example/k8s/clusters/c-m-abcd1234?x",
        "https://user@rancher.example/k8s/clusters/c-m-abcd1234",
        "https://rancher.example",
        "https:///k8s/clusters/c-m-abcd1234",
        "https://rancher.example/k8s/clusters/c-m-abcd1234\n",
        "https://[::1/k8s/clusters/c-m-abcd1234",
        "",
    ],
)
def test_another_server_is_refused(server):
    with pytest.raises(GuestError):
        read_kubeconfig(kubeconfig(server), GUEST)


def test_the_double_slash_of_a_server_url_that_ends_with_a_slash_is_named():
    with pytest.raises(GuestError, match="server-url"):
        read_kubeconfig(kubeconfig(f"https://rancher.example//k8s/clusters/{GUEST}"), GUEST)


@pytest.mark.parametrize(
    "data",
    [
        *(b"[]", b"{", b"clusters: []", b"a: &a [*a]", b"x" * 70_000, b"\xff\xfe"),
        *(b"[" * 60_000, b"- " * 30_000, b"{a: " * 15_000, b"a: " + b"9" * 60_000),
    ],
)
def test_garbage_is_refused(data):
    with pytest.raises(GuestError):
        read_kubeconfig(data, GUEST)


async def test_each_guest_cluster_gets_its_own_token_over_shared_connections(server):
    guests, connections = GuestServers(), set()
    try:
        for name in ("c-m-a", "c-m-b"):
            url = f"{server.url}/k8s/clusters/{name}"
            access = read_kubeconfig(kubeconfig(url, token=f"t-{name}", ca=server.ca_pem.encode()), name)
            server.says(CONFIG_MAP)
            async with KubeClient(guests(access)) as client:
                assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP
            connections.add(server.peers[-1])
    finally:
        await guests.close()
    assert [request.headers["Authorization"] for request in server.requests] == [
        "Bearer t-c-m-a",
        "Bearer t-c-m-b",
    ]
    assert [request.path for request in server.requests] == [
        f"/k8s/clusters/{name}/api/v1/namespaces/a/configmaps/x" for name in ("c-m-a", "c-m-b")
    ]
    assert len(connections) == 1


async def test_an_unusable_authority_concerns_its_guest_cluster_alone():
    guests = GuestServers()
    with pytest.raises(GuestError):
        guests(read_kubeconfig(kubeconfig(ca=b"garbage"), GUEST))
