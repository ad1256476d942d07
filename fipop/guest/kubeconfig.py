"""A guest's kubeconfig is hostile input: read what we know, refuse what would run or read something, build anew.

Nothing of the text is used as it stands. Errors name the field, never its value.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from fipop.errors import KubeconfigError
from fipop.kube.connection import Connection
from fipop.local_addresses import is_local_address
from fipop.settings.yaml import MAX_YAML_BYTES, YamlRefusedError, parse_yaml_mapping

_MAX_NAME = 253
_MAX_SERVER = 2048
_LABEL = r"[a-z0-9_](?:[-a-z0-9_]{0,61}[a-z0-9_])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?")
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")

_REFUSED_IN_CLUSTER = {
    "certificate-authority": "names a file",
    "proxy-url": "names a proxy",
}
_REFUSED_IN_USER = {
    "exec": "names a program to run",
    "auth-provider": "names a plugin to run",
    "tokenFile": "names a file",
    "client-certificate": "names a file",
    "client-key": "names a file",
    "username": "asks for basic authentication",
    "password": "asks for basic authentication",
    "as": "asks for impersonation",
    "as-uid": "asks for impersonation",
    "as-groups": "asks for impersonation",
    "as-user-extra": "asks for impersonation",
}

_Fields = Mapping[str, Any]


def parse_kubeconfig(data: bytes, *, guest_id: str, allow_loopback: bool) -> Connection:
    """Build a connection from the current context of a kubeconfig; raise KubeconfigError.

    The server must be https, and its path must end in `/k8s/clusters/<guest_id>`: one token opens several
    guests, and this pass is about one. Addresses of this machine, its link or a metadata service are refused
    unless `allow_loopback`; a host *name* is judged again by where it leads, when it is resolved.
    """
    document = _parse_document(data)
    context = _named(document, "contexts", "context", _text(document, "", "current-context", _MAX_NAME))
    cluster = _named(document, "clusters", "cluster", _text(context, "context.", "cluster", _MAX_NAME))
    user = _named(document, "users", "user", _text(context, "context.", "user", _MAX_NAME))
    _refuse(cluster, "cluster.", _REFUSED_IN_CLUSTER)
    _refuse(user, "user.", _REFUSED_IN_USER)
    if cluster.get("insecure-skip-tls-verify") not in (None, False):
        raise KubeconfigError(
            field="cluster.insecure-skip-tls-verify", reason="switches off TLS verification"
        )
    token = _text(user, "user.", "token", MAX_YAML_BYTES) if _given(user, "token") else None
    certificate = _pem(user, "user.", "client-certificate-data", "CERTIFICATE")
    key = _pem(user, "user.", "client-key-data", "PRIVATE KEY")
    if (certificate is None) != (key is None):
        raise KubeconfigError(field="user.client-key-data", reason="must be set with client-certificate-data")
    if token is None and certificate is None:
        raise KubeconfigError(field="user.token", reason="is missing, and so is a client certificate")
    return Connection(
        server=_server(cluster, guest_id, allow_loopback=allow_loopback),
        ca_pem=_pem(cluster, "cluster.", "certificate-authority-data", "CERTIFICATE"),
        token=token,
        client_certificate_pem=certificate,
        client_key_pem=key,
        tls_server_name=_tls_server_name(cluster),
        local_addresses_allowed=allow_loopback,
    )


def _parse_document(data: bytes) -> _Fields:
    if len(data) > MAX_YAML_BYTES:
        raise KubeconfigError(field="value", reason=f"is longer than {MAX_YAML_BYTES} bytes")
    try:
        return parse_yaml_mapping(data.decode())
    except UnicodeDecodeError:
        raise KubeconfigError(field="value", reason="is not UTF-8") from None
    except YamlRefusedError as error:
        raise KubeconfigError(field="value", reason=error.reason) from None


def _named(document: _Fields, listing: str, field: str, name: str) -> _Fields:
    """Give the one entry of a list that has this name."""
    entries = document.get(listing)
    if not isinstance(entries, list):
        raise KubeconfigError(field=listing, reason="is not a list")
    found = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("name") == name]
    if len(found) != 1:
        reason = "lacks the entry of the current context" if not found else "has two entries of one name"
        raise KubeconfigError(field=listing, reason=reason)
    value = found[0].get(field)
    if not isinstance(value, Mapping):
        raise KubeconfigError(field=f"{listing}[].{field}", reason="is not a mapping")
    return value


def _given(holder: _Fields, name: str) -> bool:
    return holder.get(name) not in (None, "")


def _text(holder: _Fields, prefix: str, name: str, longest: int) -> str:
    value = holder.get(name)
    if not isinstance(value, str) or not value or len(value) > longest:
        reason = "is missing" if value in (None, "") else f"is not a text of up to {longest} characters"
        raise KubeconfigError(field=prefix + name, reason=reason)
    return value


def _refuse(holder: _Fields, prefix: str, refused: Mapping[str, str]) -> None:
    for name, reason in refused.items():
        if holder.get(name) not in (None, "", [], {}):
            raise KubeconfigError(field=prefix + name, reason=f"{reason}, which is refused")


def _pem(holder: _Fields, prefix: str, name: str, kind: str) -> str | None:
    if not _given(holder, name):
        return None
    try:
        text = base64.b64decode("".join(_text(holder, prefix, name, MAX_YAML_BYTES).split()), validate=True)
        pem = text.decode("ascii")
    except (binascii.Error, ValueError):
        raise KubeconfigError(field=prefix + name, reason="is not PEM in base64") from None
    if not re.search(rf"^-----BEGIN [A-Z ]*{kind}-----", pem, re.MULTILINE):
        raise KubeconfigError(field=prefix + name, reason=f"holds no {kind.lower()}")
    return pem


def _server(cluster: _Fields, guest_id: str, *, allow_loopback: bool) -> str:
    text = _text(cluster, "cluster.", "server", _MAX_SERVER)
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise KubeconfigError(field="cluster.server", reason="is not a URL") from None
    # urlsplit drops line breaks and the like without a word: what it took must be what was there.
    if url.geturl() != text or not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise KubeconfigError(field="cluster.server", reason="is not a plain URL")
    if url.scheme != "https":
        raise KubeconfigError(field="cluster.server", reason="is not https")
    if "@" in url.netloc or url.query or url.fragment or port == 0:
        raise KubeconfigError(field="cluster.server", reason="holds more than a host, a port and a path")
    path = _path(url, guest_id)
    _check_host(url.hostname or "", allow_loopback=allow_loopback)
    return f"https://{url.netloc}{path}"


def _path(url: SplitResult, guest_id: str) -> str:
    path = url.path.removesuffix("/")
    segments = path.split("/")
    if "%" in path or any(segment in ("", ".", "..") for segment in segments[1:]):
        raise KubeconfigError(field="cluster.server", reason="has a path that is not plain")
    if segments[-3:] != ["k8s", "clusters", guest_id]:
        raise KubeconfigError(field="cluster.server", reason=f"must have the path /k8s/clusters/{guest_id}")
    return path


def _check_host(host: str, *, allow_loopback: bool) -> None:
    try:
        address = ip_address(host)
    except ValueError:
        # Numbers that are no address: what one resolver refuses, another takes for 127.0.0.1 (`127.1`, `0x7f000001`).
        last = host.rstrip(".").rpartition(".")[2]
        if not _HOST_NAME.fullmatch(host) or last.isdigit() or last.startswith("0x"):
            raise KubeconfigError(field="cluster.server", reason="has no valid host") from None
        name = host.rstrip(".")
        local = name in _LOCAL_NAMES or name.endswith(".localhost")
    else:
        local = is_local_address(address)
    if local and not allow_loopback:
        raise KubeconfigError(
            field="cluster.server",
            reason="is at this machine, its link or a metadata service (local fleets: --allow-loopback-guests)",
        )


def _tls_server_name(cluster: _Fields) -> str | None:
    if not _given(cluster, "tls-server-name"):
        return None
    name = _text(cluster, "cluster.", "tls-server-name", _MAX_NAME)
    if not _HOST_NAME.fullmatch(name.lower()):
        raise KubeconfigError(field="cluster.tls-server-name", reason="is not a host name")
    return name
