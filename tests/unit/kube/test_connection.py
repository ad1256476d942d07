import datetime as dt
import os
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from fipop.errors import ApiUnreachableError, AuthorityReplacedError, KubeAccessError
from fipop.kube.client import Connection, KubeClient
from fipop.kube.connection import build_ssl_context
from fipop.kube.resources import CONFIG_MAPS
from localfleet.certificates import build_authority

from .conftest import serve, server_tls

CONFIG_MAP = {"metadata": {"name": "x", "namespace": "a"}}


def test_secrets_do_not_show_in_the_representation():
    connection = Connection(
        server="https://a", token="s3cret", client_key_pem="s3cret", client_certificate_pem="s3cret"
    )
    assert "s3cret" not in repr(connection)


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "two words", "ünïcode", "a\x00b", "x" * 20_000])
def test_a_token_that_is_none_is_refused_without_being_shown(token):
    with pytest.raises(KubeAccessError) as caught:
        Connection(server="https://a", token=token).authorization()
    assert token not in str(caught.value)


def test_a_token_file_s_newline_is_no_part_of_the_token():
    assert Connection(server="https://a", token="abc\n").authorization() == "Bearer abc"
    assert Connection(server="https://a").authorization() is None


def test_a_token_source_is_asked_at_every_call():
    tokens = iter(["one", "two"])
    connection = Connection(server="https://a", token="never", token_source=lambda: next(tokens))
    assert [connection.authorization(), connection.authorization()] == ["Bearer one", "Bearer two"]


def test_tls_is_at_least_1_2_and_verified():
    context = build_ssl_context(Connection(server="https://a"))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize("server", ["http://10.0.0.1", "10.0.0.1", "", "file:///etc/passwd"])
def test_a_server_without_https_is_refused(server):
    with pytest.raises(KubeAccessError):
        KubeClient(Connection(server=server))


def test_certificates_that_are_none_are_refused():
    for fields in (
        {"ca_pem": "nonsense"},
        {"ca_pem": "ünïcode"},
        {"client_certificate_pem": "nonsense"},
        {"client_certificate_pem": "nonsense", "client_key_pem": "ünïcode"},
    ):
        with pytest.raises(KubeAccessError):
            KubeClient(Connection(server="https://a", **fields))


def test_an_encrypted_client_key_fails_at_once_and_asks_nobody(authority):
    pair = authority.issue_client("u")
    key = serialization.load_pem_private_key(pair.key, password=None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"pass"),
    )
    with pytest.raises(KubeAccessError):
        KubeClient(
            Connection(
                server="https://a",
                client_certificate_pem=pair.certificate.decode(),
                client_key_pem=encrypted.decode(),
            )
        )


@pytest.mark.parametrize("in_memory", [True, False])
async def test_a_client_certificate_is_shown_and_leaves_no_file(authority, tmp_path, monkeypatch, in_memory):
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    pair = authority.issue_client("fipop-test")
    tls = server_tls(authority.issue_server(["127.0.0.1"]), tmp_path, client_ca=authority.pem)
    subjects = []
    async with serve(authority, tls) as fake:

        async def answer(request: web.Request) -> web.Response:
            peer = request.transport.get_extra_info("peercert")
            subjects.append(dict(part[0] for part in peer["subject"])["commonName"])
            return web.json_response(CONFIG_MAP)

        fake.answer = answer
        connection = fake.connection(
            client_certificate_pem=pair.certificate.decode(), client_key_pem=pair.key.decode()
        )
        async with KubeClient(connection) as client:
            assert list(scratch.iterdir()) == []
            await client.get(CONFIG_MAPS, "x", namespace="a")
        assert subjects == ["fipop-test"]


async def test_a_server_of_another_authority_is_unreachable_and_nothing_was_sent(server):
    other = build_authority("other", dt.datetime.now(dt.UTC))
    server.says(CONFIG_MAP)
    async with KubeClient(server.connection(ca_pem=other.pem.decode())) as client:
        with pytest.raises(ApiUnreachableError) as caught:
            await client.create(CONFIG_MAPS, CONFIG_MAP)
    assert caught.value.reason == "CertificateInvalid"
    assert not caught.value.outcome_unknown
    assert server.requests == []


async def test_the_name_in_the_certificate_counts_unless_another_is_expected(server):
    server.says(CONFIG_MAP)
    by_name = server.url.replace("127.0.0.1", "localhost")
    async with KubeClient(server.connection(server=by_name)) as client:
        with pytest.raises(ApiUnreachableError) as caught:
            await client.get(CONFIG_MAPS, "x", namespace="a")
        assert caught.value.reason == "CertificateInvalid"
    async with KubeClient(server.connection(server=by_name, tls_server_name="api.test")) as client:
        assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_a_guest_s_server_on_this_machine_is_refused_before_anything_is_sent(server, host):
    server.says(CONFIG_MAP)
    url = server.url.replace("127.0.0.1", host)
    connection = replace(
        server.connection(tls_server_name="api.test"), server=url, local_addresses_allowed=False
    )
    async with KubeClient(connection) as client:
        with pytest.raises(ApiUnreachableError) as caught:
            await client.get(CONFIG_MAPS, "x", namespace="a")
    assert caught.value.reason == "AddressRefused"
    assert server.requests == []


async def test_proxies_of_the_environment_are_not_used(server, monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.says(CONFIG_MAP)
    async with KubeClient(server.connection()) as client:
        assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP


def test_no_descriptor_of_a_key_stays_open():
    targets = [os.fspath(path.readlink()) for path in Path("/proc/self/fd").glob("*") if path.is_symlink()]
    assert not [target for target in targets if "memfd:client" in target]


def test_a_replaced_authority_is_noticed_and_a_file_that_says_nothing_is_none(tmp_path):
    """The file was read once for the life of the process: after a rotation every request failed for ever."""
    path = tmp_path / "ca.crt"
    connection = Connection(server="https://api.test", ca_pem="old", ca_path=path)
    for content in (b"old", b"", b"\n", b"\xff"):
        path.write_bytes(content)
        connection.check_authority()
    path.unlink()
    connection.check_authority()
    path.write_text("new")
    with pytest.raises(AuthorityReplacedError) as caught:
        connection.check_authority()
    assert (caught.value.server, caught.value.path) == ("https://api.test", str(path))


def test_an_authority_without_a_file_is_never_replaced():
    Connection(server="https://api.test", ca_pem="old").check_authority()
    Connection(server="https://api.test").check_authority()
