"""Guest clusters: the same client with another configuration, through Rancher's proxy.

Rancher writes the kubeconfig and serves the connection, so both are trusted as far as Rancher is. What a guest
cluster's API server answers is not: it is bounded in bytes, pages and time, and a redirect is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kubernetes.aio.client.configuration import Configuration

from fipop.errors import GuestError, StartError
from fipop.interfaces import ApiRequest, ApiResponse, ApiServer
from fipop.jsons import JsonView, as_mapping, as_text
from fipop.kube.kubeconfig import find_current_context
from fipop.kube.server import HttpServer
from fipop.settings.yaml import RefusedError, parse_yaml

ANSWER_BYTES = 2 << 20
PAGES, PAGE_ITEMS = 20, 200
"""A list of a guest cluster has at most 4,000 objects, of 10 KiB each on average."""
CONNECTIONS = 64
"""All guest clusters behind one Rancher share so many connections, which bounds the answers that are read at once."""
_MOST_KUBECONFIG = 64 * 1024
_OTHER_CREDENTIALS = {
    "exec": "a program that gets its credential",
    "auth-provider": "a program that gets its credential",
    "client-certificate-data": "a client certificate",
    "client-certificate": "a client certificate",
    "tokenFile": "the path of a token",
    "username": "a password",
}
"""What users of kubeconfigs have instead of a token."""


@dataclass(frozen=True, slots=True)
class GuestAccess:
    """How to reach a guest cluster: Rancher's URL for it, the token, and the certificate authority of Rancher."""

    server: str
    token: str = field(repr=False)
    ca_pem: str = field(default="", repr=False)


GuestFactory = Callable[[GuestAccess], ApiServer]
"""Opens connections to a guest cluster."""


def read_kubeconfig(data: bytes, guest_id: str) -> GuestAccess:
    """Read the three fields that Rancher writes into the kubeconfig of a guest cluster. Raises GuestError.

    Nothing else of it counts: no program is run, no file is read, no proxy is used that it names.
    """
    document = _parse(data)
    found = find_current_context(document)
    if found is None:
        raise GuestError("the kubeconfig has no context that its current-context names")
    cluster, user = found
    return GuestAccess(_read_server(cluster, guest_id), _read_token(user), _read_authority(cluster))


def _parse(data: bytes) -> JsonView:
    if not data.strip():
        raise GuestError("the kubeconfig is empty")
    try:
        document = as_mapping(parse_yaml(data.decode(), max_bytes=_MOST_KUBECONFIG))
    except RefusedError as error:
        raise GuestError(f"the kubeconfig {error}") from None
    except ValueError:
        raise GuestError("the kubeconfig is not a text") from None
    if not document:
        raise GuestError("the kubeconfig is not a YAML mapping: it may be cut")
    return document


def _read_server(cluster: JsonView, guest_id: str) -> str:
    server = as_text(cluster.get("server"))
    if not server:
        raise GuestError("the kubeconfig has no cluster with a server that its context names")
    wanted = f"/k8s/clusters/{guest_id}"
    try:
        url = urlsplit(server)
        is_plain = server.isascii() and server.isprintable() and " " not in server and "\\" not in server
        is_bare = url.scheme == "https" and not ("@" in url.netloc or url.query or url.fragment)
        has_host = bool(url.hostname)
    except ValueError:
        raise GuestError(f"the kubeconfig's server must be https://<Rancher>{wanted}") from None
    if f"/{wanted}" in url.path:
        raise GuestError("the kubeconfig's server has a double slash: Rancher's server-url ends with a slash")
    is_guest = url.path.removesuffix("/").endswith(wanted) and ".." not in url.path and "%" not in url.path
    if not (is_plain and is_bare and has_host and is_guest):
        raise GuestError(f"the kubeconfig's server must be https://<Rancher>{wanted}")
    return server.rstrip("/")


def _read_token(user: JsonView) -> str:
    token = as_text(user.get("token"))
    if token and token.isascii() and token.isprintable() and " " not in token:
        return token
    if token:
        raise GuestError("the kubeconfig has a token with characters that no token has")
    for name, what in _OTHER_CREDENTIALS.items():
        if name in user:
            raise GuestError(f"the kubeconfig has {what} ({name}) and no token: fipop uses a token only")
    raise GuestError("the kubeconfig has no user with a token that its context names")


def _read_authority(cluster: JsonView) -> str:
    text = as_text(cluster.get("certificate-authority-data"))
    try:
        # In lines of any length, as `base64` writes it. A bundle can have comments in any encoding.
        return base64.b64decode("".join(text.split()), validate=True).decode("ascii", errors="ignore")
    except ValueError:
        raise GuestError("the kubeconfig's certificate-authority-data is not base64: it may be cut") from None


class GuestServers:
    """Reaches guest clusters; those behind one Rancher share its connections: a handshake costs more than a request."""

    def __init__(self) -> None:
        self._ranchers: dict[str, HttpServer] = {}

    def __call__(self, access: GuestAccess) -> ApiServer:
        """Return a guest cluster's API server. Raises GuestError if Rancher's certificate authority cannot be used."""
        rancher = self._ranchers.get(access.ca_pem)
        if rancher is None:
            configuration = Configuration(
                host=access.server, ca_cert_data=access.ca_pem or None, connection_pool_maxsize=CONNECTIONS
            )
            configuration.client_session_kwargs = {"trust_env": False}
            try:
                rancher = HttpServer(configuration)
            except StartError as error:
                raise GuestError("the kubeconfig's certificate authority cannot be used") from error
            self._ranchers[access.ca_pem] = rancher
        return _GuestServer(rancher, access)

    async def close(self) -> None:
        """Close all connections."""
        for rancher in self._ranchers.values():
            await rancher.close()
        self._ranchers.clear()


@dataclass(frozen=True, slots=True)
class _GuestServer:
    rancher: HttpServer
    access: GuestAccess

    async def close(self) -> None:
        """Leave the connections to the other guest clusters."""

    def check_authority(self) -> None:
        """Do nothing: each visit reads the authority with the kubeconfig."""

    def send(self, request: ApiRequest) -> AbstractAsyncContextManager[ApiResponse]:
        return self.rancher.send(request, to=(self.access.server, self.access.token))
