"""How the command line and the roles reach their own API server: by a kubeconfig, or by the pod's ServiceAccount."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from urllib import request
from urllib.parse import urlsplit

from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import kube_config
from yaml import YAMLError

from fipop.errors import StartError
from fipop.jsons import as_mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_KUBECONFIG = Path("~/.kube/config").expanduser()
RENEW_SECONDS = 60.0
"""How often a kubeconfig's credential is read again: a file or a credential plugin can have a new token."""

_MALFORMED = (OSError, ValueError, LookupError, TypeError, AttributeError, YAMLError, config.ConfigException)
"""What the kubernetes package raises if a kubeconfig has not the expected shape."""
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


def configure_in_cluster() -> Configuration:
    """Return the configuration of the pod's ServiceAccount, whose token is read again every minute. StartError."""
    loaded = Configuration()
    try:
        config.load_incluster_config(loaded)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        raise StartError(
            what="this process",
            problem="is in no pod with a ServiceAccount. Name a kubeconfig with --kubeconfig",
        ) from error
    # The package's hook sets the server again, too, which may be another one by --master.
    configuration = Configuration(host=loaded.host, ssl_ca_cert=loaded.ssl_ca_cert)
    configuration.api_key = _read_token(loaded)
    read_again: Callable[[Configuration], None] = loaded.refresh_api_key_hook  # type: ignore[assignment]

    def renew(configuration: Configuration) -> None:
        with contextlib.suppress(OSError, config.ConfigException):
            read_again(loaded)
        configuration.api_key = _read_token(loaded)

    configuration.refresh_api_key_hook = renew  # type: ignore[assignment]
    # To look for proxies costs two thread hops for each request, most of its time.
    configuration.client_session_kwargs = {"trust_env": False}
    return configuration


async def configure_from_kubeconfig(
    path: Path | None = None, *, context: str | None = None, renew_seconds: float = RENEW_SECONDS
) -> Configuration:
    """Return the configuration that a kubeconfig describes, as kubectl reads it. Raises StartError.

    Without a path, the files that KUBECONFIG names, or ~/.kube/config. Credential plugins run. A proxy is the
    cluster's `proxy-url`, else that of HTTPS_PROXY, except for NO_PROXY.
    """
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # it logs what a credential plugin prints
    source = str(path or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG)
    configuration = Configuration()
    try:
        merger = kube_config.KubeConfigMerger(source)  # type: ignore[no-untyped-call]
        merged = merger.config
        if merged is None:
            raise StartError(
                what=f'kubeconfig "{source}"', problem="does not exist. Name one with --kubeconfig"
            )
        # Of several files kubectl takes the first that names a context, the package the last.
        named = (each.get("current-context") for each in merger.config_files.values())
        context = context or next(filter(None, named), None)
        _check_context(merged, context, source)
        loader = kube_config.KubeConfigLoader(merged, context, config_base_path=None)  # type: ignore[no-untyped-call]
        await loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        user = merged["users"].get_with_name(loader.current_context["context"].get("user"), safe=True)
        _check_credential(configuration, user["user"].value if user is not None else {})
    except _MALFORMED as error:
        problem = f"cannot be used. kubectl version --kubeconfig {source} shows why"
        raise StartError(what=f'kubeconfig "{source}"', problem=problem) from error
    configuration.api_key = _read_token(configuration)
    configuration.refresh_api_key_hook = _renew(loader.load_and_set, renew_seconds)  # type: ignore[assignment]
    configuration.proxy = _find_proxy(configuration)
    configuration.client_session_kwargs = {"trust_env": False}
    return configuration


def _check_context(merged: kube_config.ConfigNode, context: str | None, source: str) -> None:
    names = [each["name"] for each in merged["contexts"].value]
    has = f"It has {', '.join(names) or 'no context'}"
    if context is None and names:
        problem = f"has no current context. Name one with --context. {has}"
        raise StartError(what=f'kubeconfig "{source}"', problem=problem)
    if context is not None and context not in names:
        raise StartError(what=f'context "{context}"', problem=f"does not exist in the kubeconfig. {has}")


def _check_credential(configuration: Configuration, user: dict[str, object]) -> None:
    """Refuse a user whose requests would be those of another one, or of an anonymous one."""
    if any(key in user for key in _IMPERSONATION):
        raise StartError(
            what="impersonation (as, as-groups) in a kubeconfig",
            problem="is not supported. Use a credential of that user",
        )
    if not configuration.api_key.get("BearerToken") and not configuration.cert_file:
        plugin = as_mapping(user.get("exec")).get("command")
        if plugin:
            problem = "made no credential. Log in again. kubectl version shows what it prints"
            raise StartError(what=f'credential plugin "{plugin}" of the kubeconfig', problem=problem)
        raise StartError(
            what="user of the kubeconfig",
            problem="has neither a token nor a client certificate. Log in again",
        )


def _renew(
    load: Callable[[Configuration], Awaitable[None]], seconds: float
) -> Callable[[Configuration], Awaitable[None]]:
    """Return a hook that loads a credential again, and nothing else; while that fails, the last one stays."""
    loaded_at = time.monotonic()

    async def renew(configuration: Configuration) -> None:
        nonlocal loaded_at
        if time.monotonic() - loaded_at < seconds:
            return
        loaded_at = time.monotonic()
        loaded = Configuration()
        with contextlib.suppress(*_MALFORMED):
            await load(loaded)
            configuration.api_key = _read_token(loaded)

    return renew


def _read_token(configuration: Configuration) -> dict[str, str]:
    """Return the Authorization header, without the line break at the end of a token file."""
    return {name: text.strip() for name, text in configuration.api_key.items()}


def _find_proxy(configuration: Configuration) -> str | None:
    """Return the URL of the proxy by which kubectl would reach the server. Raises StartError."""
    proxy = configuration.proxy
    if not proxy and not _bypasses(configuration.host):
        proxy = request.getproxies_environment().get("https")
    if not proxy:
        return None
    if "://" in proxy and not proxy.startswith("http://"):
        scheme = proxy.partition(":")[0]
        raise StartError(
            what=f"proxy by {scheme} (HTTPS_PROXY, proxy-url)", problem="is not supported. Use http"
        )
    return proxy if "://" in proxy else f"http://{proxy}"


def _bypasses(server: str) -> bool:
    """Whether a server is reached directly: this machine, and what NO_PROXY names, networks among it."""
    from requests.utils import should_bypass_proxies  # noqa: PLC0415 - 0.1 s that only the command line should pay

    host = urlsplit(server).hostname or ""
    with contextlib.suppress(ValueError):
        if ip_address(host).is_loopback:
            return True
    return host == "localhost" or bool(should_bypass_proxies(server, no_proxy=None))
