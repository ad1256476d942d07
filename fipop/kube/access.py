"""Our own way to the API server: from a kubeconfig file or from inside a pod.

The kubernetes package reads kubeconfig files with all that those of administrators hold (credential plugins too): they
are ours and trusted. A guest's kubeconfig is neither, and never comes here. In a pod three files and two variables say
all, and are read without that package: it takes 19 MiB, of the 128 that a role in a guest has.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from yaml import YAMLError

from fipop.errors import KubeAccessError
from fipop.kube.connection import Connection

if TYPE_CHECKING:
    from kubernetes.client import Configuration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0

_MALFORMED = (OSError, ValueError, TypeError, LookupError, AttributeError)
"""What the kubernetes package lets through where a kubeconfig has not the shape it expects."""


def connection_from_kubeconfig(path: Path | str | None = None, *, context: str | None = None) -> Connection:
    """Return the connection that a kubeconfig file describes; without a path kubectl's default file is read."""
    from kubernetes import config  # noqa: PLC0415 - 0.2 s that only a program's start should pay
    from kubernetes.client import Configuration  # noqa: PLC0415

    configuration = Configuration()
    # The package writes certificates that stand in the kubeconfig to files and leaves them there until exit.
    with tempfile.TemporaryDirectory() as folder:
        try:
            config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=None if path is None else str(path),
                context=context,
                client_configuration=configuration,
                persist_config=False,
                temp_file_path=folder,
            )
            return _connection(configuration, passing=Path(folder).absolute())
        except (config.ConfigException, YAMLError, *_MALFORMED) as error:
            raise KubeAccessError(server=str(path or ""), problem="the kubeconfig cannot be used") from error


def connection_in_cluster(folder: Path = SERVICE_ACCOUNT) -> Connection:
    """Return the connection of the pod's ServiceAccount; its token is read again every minute, as it is renewed."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    authority = folder / "ca.crt"
    try:
        ca_pem, token = authority.read_text(encoding="ascii"), _TokenFile(folder / "token")
    except (OSError, UnicodeDecodeError):
        ca_pem = ""
    if not host or not port or not ca_pem or not token():
        raise KubeAccessError(
            server="", problem="this is no pod with a ServiceAccount, and no kubeconfig is named"
        )
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_pem=ca_pem,
        ca_path=authority,
        token_source=token,
    )


def _connection(configuration: Configuration, *, passing: Path | None = None) -> Connection:
    """Build the connection; files in the folder `passing` are gone afterwards."""
    token = configuration.api_key.get("BearerToken") or ""
    for problem, is_there in (
        ("insecure-skip-tls-verify is refused", not configuration.verify_ssl),
        ("proxy-url is not supported", bool(configuration.proxy)),
        ("user name and password are not supported", token.lower().startswith("basic ")),
    ):
        if is_there:
            raise KubeAccessError(server=str(configuration.host), problem=problem)
    ca_path = Path(configuration.ssl_ca_cert).absolute() if configuration.ssl_ca_cert else None
    return Connection(
        server=str(configuration.host),
        ca_pem=_read(configuration.ssl_ca_cert),
        token_source=_TokenSource(configuration) if token else None,
        client_certificate_pem=_read(configuration.cert_file),
        client_key_pem=_read(configuration.key_file),
        tls_server_name=configuration.tls_server_name,
        ca_path=None if ca_path is None or passing in ca_path.parents else ca_path,
    )


def _read(path: str | None) -> str | None:
    return Path(path).read_text(encoding="ascii") if path else None


_ASK_SECONDS = 1.0


class _TokenSource:
    """The current token, renewed by the kubernetes package; the last good one while it cannot be renewed."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._token = ""
        self._asked_at = float("-inf")

    def __call__(self) -> str:
        from kubernetes.config import ConfigException  # noqa: PLC0415

        now = time.monotonic()
        if self._token and now - self._asked_at < _ASK_SECONDS:
            return self._token  # to ask takes as long as a request does
        self._asked_at = now
        try:
            authorization = self._configuration.get_api_key_with_prefix("BearerToken") or ""
        except (ConfigException, OSError):
            return self._token
        self._token = authorization.strip().partition(" ")[2] or authorization
        return self._token


class _TokenFile:
    """The token of a pod, read again when it is a minute old; the last good one while it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read_at = float("-inf")

    def __call__(self) -> str:
        now = time.monotonic()
        if now - self._read_at >= TOKEN_SECONDS:
            self._read_at = now
            try:
                self._token = self._path.read_text(encoding="ascii").strip() or self._token
            except (OSError, UnicodeDecodeError):
                return self._token
        return self._token
