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
    from kubernetes.config.kube_config import ConfigNode

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0

_MALFORMED = (OSError, ValueError, TypeError, LookupError, AttributeError)
"""What the kubernetes package lets through where a kubeconfig has not the shape it expects."""

_NEVER_BY_PROXY = "localhost,127.0.0.0/8,::1"
"""Servers that kubectl reaches directly, whatever NO_PROXY says."""
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


def connection_from_kubeconfig(path: Path | str | None = None, *, context: str | None = None) -> Connection:
    """Return the connection that a kubeconfig file describes; without a path kubectl's default file is read.

    A proxy is used as kubectl uses it: that of the cluster's `proxy-url`, or of HTTPS_PROXY, except for NO_PROXY.
    """
    from kubernetes import config  # noqa: PLC0415 - 0.2 s that only a program's start should pay
    from kubernetes.client import Configuration  # noqa: PLC0415
    from kubernetes.config import kube_config  # noqa: PLC0415

    configuration = Configuration()
    # The package writes certificates that stand in the kubeconfig to files and leaves them there until exit.
    with tempfile.TemporaryDirectory() as folder:
        try:
            source = str(path or kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
            found = kube_config.KubeConfigMerger(source).config  # type: ignore[no-untyped-call]
            if found is None:
                raise KubeAccessError(
                    server="", problem=f'there is no kubeconfig at "{source}". Name one with --kubeconfig'
                )
            _check_context(found, context)
            loader = kube_config.KubeConfigLoader(  # type: ignore[no-untyped-call]
                found, context, config_base_path=None, temp_file_path=folder
            )
            loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
            user = found["users"].get_with_name(loader.current_context["context"].get("user"), safe=True)
            return _connection(configuration, user, passing=Path(folder).absolute())
        except (config.ConfigException, YAMLError, *_MALFORMED) as error:
            raise KubeAccessError(server=str(path or ""), problem="the kubeconfig cannot be used") from error


def _check_context(found: ConfigNode, context: str | None) -> None:
    names = [each["name"] for each in found["contexts"].value]
    if context is not None and context not in names:
        problem = f'the kubeconfig has no context "{context}". It has {", ".join(names) or "none"}'
        raise KubeAccessError(server="", problem=problem)


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
            server="", problem="this is not a pod with a ServiceAccount. Name a kubeconfig with --kubeconfig"
        )
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_pem=ca_pem,
        ca_path=authority,
        token_source=token,
    )


def _connection(configuration: Configuration, user: ConfigNode | None, *, passing: Path) -> Connection:
    """Build the connection; files in the folder `passing` are gone afterwards.

    Requests that would go out as somebody else than the user, or as nobody, are refused.
    """
    token = configuration.api_key.get("BearerToken") or ""
    for problem, is_there in (
        ("insecure-skip-tls-verify is refused", not configuration.verify_ssl),
        ("user name and password are not supported", token.lower().startswith("basic ")),
        (
            "impersonation (as, as-groups) is not supported",
            user is not None and any(key in user["user"] for key in _IMPERSONATION),
        ),
        (
            "the user has neither a token nor a client certificate. If a credential plugin makes them, log in again",
            not token and not configuration.cert_file,
        ),
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
        proxy=_proxy(configuration),
    )


def _proxy(configuration: Configuration) -> str | None:
    from kubernetes.client.rest import should_bypass_proxies  # noqa: PLC0415

    proxy, server = configuration.proxy or "", str(configuration.host)
    if not proxy or should_bypass_proxies(server, f"{configuration.no_proxy or ''},{_NEVER_BY_PROXY}"):
        return None
    if not proxy.startswith("http://") and "://" in proxy:
        problem = f"a proxy by {proxy.partition(':')[0]} (HTTPS_PROXY, proxy-url) is not supported. Use http"
        raise KubeAccessError(server=server, problem=problem)
    return proxy if "://" in proxy else f"http://{proxy}"


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
