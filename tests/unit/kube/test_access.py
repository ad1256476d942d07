import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fipop.errors import KubeAccessError
from fipop.kube.client import KubeClient, connection_from_kubeconfig, connection_in_cluster


def kubeconfig(folder: Path, *, cluster: dict[str, object], user: dict[str, object]) -> Path:
    path = folder / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "one",
                "contexts": [
                    {"name": "one", "context": {"cluster": "c", "user": "u"}},
                    {"name": "two", "context": {"cluster": "d", "user": "u"}},
                ],
                "clusters": [
                    {"name": "c", "cluster": {"server": "https://one.test:6443"} | cluster},
                    {"name": "d", "cluster": {"server": "https://two.test"}},
                ],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def test_a_kubeconfig_with_everything_inside_is_read_and_leaves_no_file(authority, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    pair = authority.issue_client("admin")
    path = kubeconfig(
        tmp_path,
        cluster={"certificate-authority-data": encoded(authority.pem), "tls-server-name": "api.test"},
        user={"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)},
    )
    for _ in range(2):  # the kubernetes package remembers the files that it wrote
        connection = connection_from_kubeconfig(path)
        assert connection.server == "https://one.test:6443"
        assert connection.ca_pem == authority.pem.decode()
        assert connection.client_certificate_pem == pair.certificate.decode()
        assert connection.client_key_pem == pair.key.decode()
        assert connection.tls_server_name == "api.test"
        assert connection.authorization() is None
        assert connection.ca_path is None
        assert list(scratch.iterdir()) == []
    KubeClient(connection)


def test_a_kubeconfig_may_name_files_a_token_and_another_context(authority, tmp_path):
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    path = kubeconfig(tmp_path, cluster={"certificate-authority": "ca.crt"}, user={"token": "t0ken"})
    connection = connection_from_kubeconfig(path)
    assert connection.ca_pem == authority.pem.decode()
    assert connection.ca_path == tmp_path / "ca.crt"
    assert connection.authorization() == "Bearer t0ken"
    assert connection_from_kubeconfig(path, context="two").server == "https://two.test"


def test_the_default_kubeconfig_is_kubectl_s(tmp_path):
    path = kubeconfig(tmp_path, cluster={}, user={"token": "t0ken"})
    program = "from fipop.kube.client import *; print(connection_from_kubeconfig().server)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"KUBECONFIG": str(path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "https://one.test:6443\n"


def test_a_kubeconfig_that_cannot_be_used_is_refused(tmp_path):
    broken = tmp_path / "broken"
    for text in ("", "[]", "a: b", "{", "current-context: x"):
        broken.write_text(text)
        with pytest.raises(KubeAccessError):
            connection_from_kubeconfig(broken)
    with pytest.raises(KubeAccessError):
        connection_from_kubeconfig(tmp_path / "absent")


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"insecure-skip-tls-verify": True}, {"token": "t"}),
        ({"proxy-url": "http://proxy"}, {"token": "t"}),
        ({}, {"username": "u", "password": "s3cret"}),
    ],
)
def test_what_the_door_does_not_do_is_refused_and_named(tmp_path, cluster, user):
    path = kubeconfig(tmp_path, cluster=cluster, user=user)
    with pytest.raises(KubeAccessError) as caught:
        connection_from_kubeconfig(path)
    assert "s3cret" not in str(caught.value)
    assert "one.test" in str(caught.value)


def test_outside_a_pod_there_is_no_service_account(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeAccessError):
        connection_in_cluster()


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_without_its_files_it_is_no_pod(tmp_path, monkeypatch, missing):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name in {"token", "ca.crt"} - {missing}:
        (tmp_path / name).write_text("something")
    with pytest.raises(KubeAccessError):
        connection_in_cluster(tmp_path)


def test_in_a_pod_the_service_account_s_token_is_followed_as_it_is_renewed(authority, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("first\n")
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.pem)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    connection = connection_in_cluster(tmp_path)
    assert connection.server == "https://[fd00::1]:443"
    assert connection.ca_pem == authority.pem.decode()
    assert connection.ca_path == ca
    assert connection.authorization() == "Bearer first"
    assert connection.local_addresses_allowed

    token.write_text("second")
    assert connection.authorization() == "Bearer first"
    monkeypatch.setattr("fipop.kube.access.TOKEN_SECONDS", 0.0)
    assert connection.authorization() == "Bearer second"
    token.write_text("")
    assert connection.authorization() == "Bearer second"
    token.unlink()
    assert connection.authorization() == "Bearer second"


def test_importing_the_door_does_not_load_the_kubernetes_package():
    program = (
        "import sys, fipop.kube.client; print(sorted(n for n in sys.modules if n.startswith('kubernetes')))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
