"""Certificates, judged by the TLS library that servers and clients use."""

import asyncio
import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from localfleet.certificates import CertificateAuthority, KeyPair, build_authority, build_signing_key


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return build_authority("test", dt.datetime.now(dt.UTC))


def load(context: ssl.SSLContext, pair: KeyPair, folder: Path) -> ssl.SSLContext:
    (folder / "pair.pem").write_bytes(pair.certificate + pair.key)
    context.load_cert_chain(folder / "pair.pem")
    return context


async def greet(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> bytes:
    """What a client that asks for the server `name` is answered."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server) as running:
        port = running.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
        try:
            return await reader.read()
        finally:
            writer.close()


def server_context(authority: CertificateAuthority, folder: Path, *names: str) -> ssl.SSLContext:
    return load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), authority.issue_server(names), folder)


def client_context(authority: CertificateAuthority) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of newer Pythons
    return context


@pytest.mark.parametrize("name", ["127.0.0.1", "kubernetes.default.svc"])
async def test_a_server_is_known_by_its_addresses_and_its_names(
    authority: CertificateAuthority, tmp_path: Path, name: str
) -> None:
    server = server_context(authority, tmp_path, "127.0.0.1", "kubernetes.default.svc")
    assert await greet(server, client_context(authority), name) == b"hello"


async def test_a_server_is_not_known_by_another_name(authority: CertificateAuthority, tmp_path: Path) -> None:
    server = server_context(authority, tmp_path, "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        await greet(server, client_context(authority), "localhost")


async def test_one_control_planes_ca_vouches_for_no_other(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    other = build_authority("test", authority.now)
    with pytest.raises(ssl.SSLCertVerificationError):
        await greet(server_context(other, tmp_path, "127.0.0.1"), client_context(authority), "127.0.0.1")


async def test_a_client_is_let_in_by_its_certificate(authority: CertificateAuthority, tmp_path: Path) -> None:
    server = server_context(authority, tmp_path, "127.0.0.1")
    server.load_verify_locations(cadata=authority.pem.decode())
    server.verify_mode = ssl.CERT_REQUIRED
    client = load(client_context(authority), authority.issue_client("admin"), tmp_path)
    assert await greet(server, client, "127.0.0.1") == b"hello"


def test_a_client_bears_its_user_and_its_groups(authority: CertificateAuthority) -> None:
    pair = authority.issue_client("admin", ["system:masters", "others"])
    subject = x509.load_pem_x509_certificate(pair.certificate).subject
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["admin"]
    groups = [name.value for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert groups == ["system:masters", "others"]


def test_certificates_hold_for_a_month_and_stand_a_slow_clock(authority: CertificateAuthority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.issue_server(["localhost"]).certificate)
    assert certificate.not_valid_before_utc < authority.now - dt.timedelta(minutes=4)
    assert certificate.not_valid_after_utc > authority.now + dt.timedelta(days=29)


def test_the_two_halves_of_a_signing_key_belong_together() -> None:
    private, public = build_signing_key()
    key = serialization.load_pem_private_key(private, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == serialization.load_pem_public_key(public)
