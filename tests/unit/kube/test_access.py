import asyncio
import base64
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from fipop.errors import ApiUnreachableError, KubeAccessError
from fipop.kube.client import KubeClient, connection_from_kubeconfig, connection_in_cluster
from fipop.kube.resources import CONFIG_MAPS

CONFIG_MAP = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x", "resourceVersion": "1"}}


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
        ({"proxy-url": "socks5://u:s3cret@proxy"}, {"token": "t"}),
        ({}, {"username": "u", "password": "s3cret"}),
        ({}, {"token": "t", "as": "admin"}),
        ({}, {"token": "t", "as-groups": ["system:masters"]}),
        ({}, {}),
        ({}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}}),
    ],
)
def test_what_the_door_does_not_do_is_refused_and_named(tmp_path, cluster, user):
    path = kubeconfig(tmp_path, cluster=cluster, user=user)
    with pytest.raises(KubeAccessError) as caught:
        connection_from_kubeconfig(path)
    assert "s3cret" not in str(caught.value)
    assert "one.test" in str(caught.value)


def test_a_context_that_is_not_there_is_named_beside_those_that_are(tmp_path):
    path = kubeconfig(tmp_path, cluster={}, user={"token": "t"})
    with pytest.raises(KubeAccessError) as caught:
        connection_from_kubeconfig(path, context="nope")
    for named in ('"nope"', "one", "two"):
        assert named in str(caught.value)


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path):
    with pytest.raises(KubeAccessError, match="absent"):
        connection_from_kubeconfig(tmp_path / "absent")


@pytest.mark.parametrize("user", [{}, {"exec": {"apiVersion": "v1", "command": "false"}}])
def test_without_a_credential_it_says_to_log_in(tmp_path, user):
    with pytest.raises(KubeAccessError, match="log in"):
        connection_from_kubeconfig(kubeconfig(tmp_path, cluster={}, user=user))


@asynccontextmanager
async def forward_proxy(server, *, answer=b"HTTP/1.1 200 Connection established"):
    """Run an HTTP proxy that leads every CONNECT to `server`; its URL, and the first lines that it read."""
    asked = []

    async def copy(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.splitlines()[0].decode())
        writer.write(answer + b"\r\n\r\n")
        if b" 200 " in answer:
            beyond = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
            await asyncio.gather(copy(reader, beyond[1]), copy(beyond[0], writer), return_exceptions=True)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", asked


def without_proxies(monkeypatch):
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def connection_by_name(server, folder):
    """Read a kubeconfig that names the server as `api.test`, as an API server outside of this machine is named."""
    port = server.url.rpartition(":")[2]
    cluster = {
        "server": f"https://api.test:{port}",
        "certificate-authority-data": encoded(server.ca_pem.encode()),
    }
    return connection_from_kubeconfig(kubeconfig(folder, cluster=cluster, user={"token": "t"}))


@pytest.mark.parametrize("form", ["http://127.0.0.1:{port}", "127.0.0.1:{port}"])
async def test_the_proxy_of_the_environment_leads_to_the_api_server(server, tmp_path, monkeypatch, form):
    without_proxies(monkeypatch)
    server.says(CONFIG_MAP)
    async with forward_proxy(server) as (url, asked):
        monkeypatch.setenv("HTTPS_PROXY", form.format(port=url.rpartition(":")[2]))
        async with KubeClient(connection_by_name(server, tmp_path), timeout_seconds=5) as client:
            assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP
    assert asked == [f"CONNECT api.test:{server.url.rpartition(':')[2]} HTTP/1.1"]
    assert server.requests[0].headers["Authorization"] == "Bearer t"


async def test_a_proxy_that_refuses_is_named(server, tmp_path, monkeypatch):
    without_proxies(monkeypatch)
    async with forward_proxy(server, answer=b"HTTP/1.1 407 Proxy Authentication Required") as (url, _):
        monkeypatch.setenv("HTTPS_PROXY", url)
        async with KubeClient(connection_by_name(server, tmp_path), timeout_seconds=5) as client:
            with pytest.raises(ApiUnreachableError) as caught:
                await client.get(CONFIG_MAPS, "x", namespace="a")
    assert caught.value.reason == "ProxyRefused"


@pytest.mark.parametrize(
    ("server", "excluded"),
    [
        *(("https://10.1.2.3:6443", "10.0.0.0/8"), ("https://10.1.2.3", "10.1.2.3")),
        *(("https://api.corp.test", ".corp.test"), ("https://api.corp.test", "corp.test")),
        *(("https://127.0.0.1:1", ""), ("https://localhost:1", ""), ("https://[::1]:1", "")),
    ],
)
def test_what_no_proxy_names_and_this_machine_are_reached_directly(tmp_path, monkeypatch, server, excluded):
    without_proxies(monkeypatch)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", excluded)
    path = kubeconfig(tmp_path, cluster={"server": server}, user={"token": "t"})
    assert connection_from_kubeconfig(path).proxy is None
    other = kubeconfig(tmp_path, cluster={"server": "https://other.example"}, user={"token": "t"})
    assert connection_from_kubeconfig(other).proxy == "http://proxy.test:3128"


def test_the_kubeconfig_s_own_proxy_comes_before_that_of_the_environment(tmp_path, monkeypatch):
    without_proxies(monkeypatch)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    path = kubeconfig(tmp_path, cluster={"proxy-url": "http://own.test:8080"}, user={"token": "t"})
    assert connection_from_kubeconfig(path).proxy == "http://own.test:8080"


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


def test_in_a_pod_the_api_server_is_reached_directly_whatever_proxy_the_environment_names(
    authority, tmp_path, monkeypatch
):
    """The chart's extraEnv names one, for the download of charts."""
    (tmp_path / "token").write_text("first")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy.test:3128")
    assert connection_in_cluster(tmp_path).proxy is None
