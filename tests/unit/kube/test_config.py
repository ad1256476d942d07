"""The command line reaches the API server as kubectl does, or says in one sentence why it cannot."""

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.config import incluster_config

from fipop.errors import StartError, UnavailableError
from fipop.kube.client import KubeClient
from fipop.kube.config import configure_from_kubeconfig, configure_in_cluster
from fipop.kube.resources import CONFIG_MAPS
from fipop.kube.server import HttpServer
from tests.unit.kube.conftest import serve, server_tls

CONFIG_MAP = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x", "resourceVersion": "1"}}


def kubeconfig(folder: Path, *, cluster: dict[str, Any], user: dict[str, Any], name: str = "config") -> Path:
    path = folder / name
    document = {
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
    path.write_text(yaml.safe_dump(document))
    return path


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


async def bearer(path: Path, **options: Any) -> str | None:
    return await (await configure_from_kubeconfig(path, **options)).get_api_key_with_prefix("BearerToken")


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def test_a_token_and_another_context(tmp_path):
    path = kubeconfig(tmp_path, cluster={}, user={"token": "t0ken"})
    assert await bearer(path) == "Bearer t0ken"
    assert (await configure_from_kubeconfig(path)).host == "https://one.test:6443"
    assert (await configure_from_kubeconfig(path, context="two")).host == "https://two.test"


@pytest.mark.parametrize(
    ("user", "sent"),
    [
        ({"tokenFile": "token"}, "Bearer by-file"),
        ({"username": "admin", "password": "p"}, "Basic YWRtaW46cA=="),
    ],
)
async def test_a_token_file_and_a_password(tmp_path, user, sent):
    (tmp_path / "token").write_text("by-file\n")
    assert await bearer(kubeconfig(tmp_path, cluster={}, user=user)) == sent


async def test_a_credential_that_was_renewed_is_read_again_and_stays_while_it_cannot_be_read(tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    path = kubeconfig(tmp_path, cluster={}, user={"tokenFile": "token"})
    configuration = await configure_from_kubeconfig(path, renew_seconds=0)
    token.write_text("new")
    assert await configuration.get_api_key_with_prefix("BearerToken") == "Bearer new"
    token.unlink()
    assert await configuration.get_api_key_with_prefix("BearerToken") == "Bearer new"


async def test_client_certificates_and_the_authority_are_used(server, authority, tmp_path):
    pair = authority.issue_client("admin")
    path = kubeconfig(
        tmp_path,
        cluster={"server": server.url, "certificate-authority-data": encoded(authority.pem)},
        user={"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)},
    )
    server.says(CONFIG_MAP)
    async with KubeClient(HttpServer(await configure_from_kubeconfig(path))) as client:
        assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP


def plugin(folder: Path, **status: str) -> dict[str, Any]:
    """Return a user whose credential a program makes."""
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    program = folder / "plugin.py"
    program.write_text(f"print({json.dumps(json.dumps(credential))})")
    run = {"command": sys.executable, "args": [str(program)], "interactiveMode": "Never"}
    return {"exec": {"apiVersion": version, **run}}


async def test_a_credential_plugin_makes_a_token(tmp_path):
    user = plugin(tmp_path, token="by-plugin")
    assert await bearer(kubeconfig(tmp_path, cluster={}, user=user)) == "Bearer by-plugin"


async def test_a_credential_plugin_makes_a_client_certificate(authority, tmp_path):
    pair = authority.issue_client("admin")
    certificate, key = pair.certificate.decode(), pair.key.decode()
    user = plugin(tmp_path, clientCertificateData=certificate, clientKeyData=key)
    tls = server_tls(authority.issue_server(["127.0.0.1"]), tmp_path, client_ca=authority.pem)
    async with serve(authority, tls) as server:
        server.says(CONFIG_MAP)
        cluster = {"server": server.url, "certificate-authority-data": encoded(authority.pem)}
        path = kubeconfig(tmp_path, cluster=cluster, user=user)
        async with KubeClient(HttpServer(await configure_from_kubeconfig(path))) as client:
            assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP


async def test_of_several_files_in_kubeconfig_the_first_that_names_something_wins(tmp_path, monkeypatch):
    first = tmp_path / "first"
    user = {"name": "u", "user": {"token": "of-the-first"}}
    first.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "two", "users": [user]})
    )
    second = kubeconfig(tmp_path, cluster={}, user={"token": "of-the-second"}, name="second")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(first), str(tmp_path / "absent"), str(second)]))
    found = await configure_from_kubeconfig()
    assert found.host == "https://two.test"
    assert await found.get_api_key_with_prefix("BearerToken") == "Bearer of-the-first"


async def test_a_current_context_that_does_not_exist_is_named(tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "gone"}))
    path = kubeconfig(tmp_path, cluster={}, user={"token": "t"})
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(other), str(path)]))
    with pytest.raises(StartError, match=r'"gone".*one, two'):
        await configure_from_kubeconfig()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "a: b", "{", "a: [", "nonsense", "\0", "kind: Config\nclusters: 5\n"]
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path, text):
    broken = tmp_path / "broken"
    broken.write_text(text)
    with pytest.raises(StartError, match="broken"):
        await configure_from_kubeconfig(broken)


async def test_a_kubeconfig_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(StartError, match=r"absent.*--kubeconfig"):
        await configure_from_kubeconfig(tmp_path / "absent")


async def test_a_context_that_does_not_exist_is_named_beside_those_that_do(tmp_path):
    path = kubeconfig(tmp_path, cluster={}, user={"token": "t"})
    with pytest.raises(StartError, match=r'"nope".*one, two'):
        await configure_from_kubeconfig(path, context="nope")


@pytest.mark.parametrize(
    ("cluster", "user", "text"),
    [
        ({"proxy-url": "socks5://u:s3cret@proxy"}, {"token": "t"}, "socks5"),
        ({}, {"token": "t", "as": "admin"}, "impersonation"),
        ({}, {"token": "t", "as-groups": ["system:masters"]}, "impersonation"),
        ({}, {}, "Log in"),
        ({}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}}, "Log in"),
    ],
)
async def test_what_is_not_supported_is_refused_in_one_sentence(tmp_path, cluster, user, text):
    with pytest.raises(StartError, match=text) as caught:
        await configure_from_kubeconfig(kubeconfig(tmp_path, cluster=cluster, user=user))
    assert "s3cret" not in str(caught.value)


async def test_in_a_pod_the_service_account_is_used(server, authority, tmp_path, monkeypatch):
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "token").write_text("of-the-pod")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    host, port = server.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    server.says(CONFIG_MAP)
    configuration = configure_in_cluster()
    (tmp_path / "token").unlink()
    async with KubeClient(HttpServer(configuration)) as client:
        assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP
    assert server.requests[0].headers["Authorization"].lower() == "bearer of-the-pod"


def test_outside_of_a_pod_a_role_says_to_name_a_kubeconfig(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(StartError, match="--kubeconfig"):
        configure_in_cluster()


async def test_a_server_that_is_not_https_is_refused(tmp_path):
    path = kubeconfig(tmp_path, cluster={"server": "http://one.test"}, user={"token": "t"})
    with pytest.raises(StartError, match="https"):
        HttpServer(await configure_from_kubeconfig(path))


async def test_an_authority_that_was_replaced_ends_the_process(server, authority, tmp_path):
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    cluster = {"server": server.url, "certificate-authority": "ca.crt"}
    reached = HttpServer(
        await configure_from_kubeconfig(kubeconfig(tmp_path, cluster=cluster, user={"token": "t"}))
    )
    reached.check_authority()
    (tmp_path / "ca.crt").write_bytes(b"")
    reached.check_authority()
    (tmp_path / "ca.crt").write_bytes(b"another")
    with pytest.raises(StartError, match="restart"):
        reached.check_authority()


# Proxies


@asynccontextmanager
async def forward_proxy(
    server: Any, *, answer: bytes = b"HTTP/1.1 200 Connection established"
) -> AsyncIterator[tuple[str, list[str]]]:
    """Run an HTTP proxy that leads every CONNECT to `server`; its URL, and the first lines that it read."""
    asked: list[str] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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


async def reach_by_name(server: Any, folder: Path, **cluster: str) -> KubeClient:
    """Return a client whose kubeconfig names the server as `api.test`, as one outside of this machine is named."""
    port = server.url.rpartition(":")[2]
    cluster |= {
        "server": f"https://api.test:{port}",
        "certificate-authority-data": encoded(server.ca_pem.encode()),
    }
    path = kubeconfig(folder, cluster=cluster, user={"token": "t"})
    return KubeClient(HttpServer(await configure_from_kubeconfig(path)), timeout_seconds=5)


@pytest.mark.parametrize("form", ["http://127.0.0.1:{port}", "127.0.0.1:{port}", "proxy-url"])
async def test_a_proxy_leads_to_the_api_server(server, tmp_path, monkeypatch, form):
    server.says(CONFIG_MAP)
    async with forward_proxy(server) as (url, asked):
        cluster = {"proxy-url": url} if form == "proxy-url" else {}
        if cluster:
            monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
            monkeypatch.setenv("NO_PROXY", "api.test")
        else:
            monkeypatch.setenv("HTTPS_PROXY", form.format(port=url.rpartition(":")[2]))
        async with await reach_by_name(server, tmp_path, **cluster) as client:
            assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP
    assert asked == [f"CONNECT api.test:{server.url.rpartition(':')[2]} HTTP/1.1"]
    assert server.requests[0].headers["Authorization"] == "Bearer t"


async def test_a_proxy_that_refuses_is_named(server, tmp_path, monkeypatch):
    async with forward_proxy(server, answer=b"HTTP/1.1 407 Proxy Authentication Required") as (url, _):
        monkeypatch.setenv("HTTPS_PROXY", url)
        async with await reach_by_name(server, tmp_path) as client:
            with pytest.raises(UnavailableError, match="the proxy refused the connection"):
                await client.get(CONFIG_MAPS, "x", namespace="a")


@pytest.mark.parametrize(
    ("server", "excluded"),
    [
        *(("https://10.1.2.3:6443", "10.0.0.0/8"), ("https://10.1.2.3", "10.1.2.3")),
        *(("https://api.corp.test", ".corp.test"), ("https://api.corp.test", "corp.test")),
        *(("https://127.0.0.1:1", ""), ("https://localhost:1", ""), ("https://[::1]:1", "")),
    ],
)
async def test_what_no_proxy_names_and_this_machine_are_reached_directly(
    tmp_path, monkeypatch, server, excluded
):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", excluded)
    path = kubeconfig(tmp_path, cluster={"server": server}, user={"token": "t"})
    assert (await configure_from_kubeconfig(path)).proxy is None
    other = kubeconfig(tmp_path, cluster={"server": "https://other.example"}, user={"token": "t"})
    assert (await configure_from_kubeconfig(other)).proxy == "http://proxy.test:3128"
