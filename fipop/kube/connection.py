"""Everything that is needed to reach one API server, as a value."""

from __future__ import annotations

import functools
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fipop.errors import AuthorityReplacedError, KubeAccessError

_LONGEST_TOKEN = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach one API server; of what it says, nothing is read from disk later but by `token_source`.

    `server` is an https URL, a path prefix included (`https://rancher/k8s/clusters/c-m-x`). Without `ca_pem` the
    machine's own certificate authorities are trusted. `token_source` wins over `token` and is asked at every call:
    for our own ServiceAccount token, which is renewed on disk. `local_addresses_allowed=False` refuses servers
    whose name leads to this machine, its link or a cloud's metadata service: for whatever a guest's kubeconfig says.
    `ca_path` is the file that `ca_pem` was read from, where it is one that is kept up to date. `proxy` is the http URL
    of the proxy through which the server is reached.
    """

    server: str
    ca_pem: str | None = None
    token: str | None = field(default=None, repr=False)
    token_source: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    client_certificate_pem: str | None = field(default=None, repr=False)
    client_key_pem: str | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    local_addresses_allowed: bool = True
    ca_path: Path | None = None
    proxy: str | None = field(default=None, repr=False)

    def authorization(self) -> str | None:
        """Return the Authorization header of the next call; raise KubeAccessError for a token that can't be one."""
        token = self.token_source() if self.token_source is not None else self.token
        if token is None:
            return None
        token = token.strip()
        if not token.isascii() or not token.isprintable() or " " in token or len(token) > _LONGEST_TOKEN:
            raise KubeAccessError(
                server=self.server, problem="the token has characters that a token cannot have"
            )
        return f"Bearer {token}"

    def check_authority(self) -> None:
        """Raise AuthorityReplacedError where the file of the authority says something else by now.

        For those whose requests fail. A file that is empty or cannot be read says nothing: it may be half replaced.
        """
        try:
            pem = self.ca_path.read_text(encoding="ascii") if self.ca_path is not None else ""
        except (OSError, UnicodeDecodeError):
            return
        if pem.strip() and pem != self.ca_pem:
            raise AuthorityReplacedError(server=self.server, path=str(self.ca_path))


def build_ssl_context(connection: Connection) -> ssl.SSLContext:
    """Return the TLS settings of a connection; raise KubeAccessError when its certificates can't be used."""
    try:
        if connection.client_certificate_pem is None:
            return _anonymous_context(connection.ca_pem)
        context = _new_context(connection.ca_pem)
        pem = f"{connection.client_certificate_pem}\n{connection.client_key_pem or ''}\n"
        with _pem_path(pem) as path:
            # An encrypted key would make OpenSSL ask on the terminal: an empty password fails instead.
            context.load_cert_chain(path, password="")
    except (ssl.SSLError, ValueError, OSError) as error:
        raise KubeAccessError(server=connection.server, problem="could not read its certificates") from error
    return context


@functools.lru_cache(maxsize=16)
def _anonymous_context(ca_pem: str | None) -> ssl.SSLContext:
    """Build a context without a client key once: all guests behind one Rancher trust the same authority."""
    return _new_context(ca_pem)


def _new_context(ca_pem: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_pem is None:
        context.load_default_certs()
    elif ca_pem.isascii():
        context.load_verify_locations(cadata=ca_pem)
    else:
        raise ValueError("PEM is ASCII")
    return context


@contextmanager
def _pem_path(pem: str) -> Iterator[str]:
    """Lend a path under which OpenSSL reads a key: in memory where the system can, else a private file."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(descriptor), "w", encoding="ascii") as stream:
                stream.write(pem)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "client.pem")
            path.touch(mode=0o600)
            path.write_text(pem, encoding="ascii")
            yield str(path)
