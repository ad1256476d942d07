"""Guest clusters: the same client with another configuration, through Rancher's proxy.

Rancher writes the kubeconfig and serves the connection, so both are trusted as far as Rancher is. What a guest
cluster's API server answers is not: it is bounded in bytes, pages and time, and a redirect is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from kubernetes.aio.client.configuration import Configuration

from fipop.errors import GuestError, StartError
from fipop.interfaces import ApiRequest, ApiResponse, ApiServer
from fipop.jsons import Json
from fipop.kube.server import HttpServer
from fipop.settings.yaml import parse_yaml

ANSWER_BYTES = 2 << 20
PAGES, PAGE_ITEMS = 20, 200
"""A list of a guest cluster has at most 4,000 objects, of 10 KiB each on average."""
CONNECTIONS = 64
"""All guest clusters behind one Rancher share so many connections, which bounds the answers that are read at once."""
_MOST_KUBECONFIG = 64 * 1024
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, StopIteration)
"""What reading a kubeconfig raises that has another shape."""


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
    try:
        document: Any = parse_yaml(data.decode(), max_bytes=_MOST_KUBECONFIG)
        context = _named(document, "contexts", document["current-context"])["context"]
        cluster = _named(document, "clusters", context["cluster"])["cluster"]
        user = _named(document, "users", context["user"])["user"]
        server, token = cluster["server"], user["token"]
        if not isinstance(server, str) or not isinstance(token, str):
            raise TypeError
        # A bundle can have comments in any encoding around its certificates.
        bundle = base64.b64decode(cluster.get("certificate-authority-data") or "", validate=True)
        authority = bundle.decode("ascii", errors="ignore")
        url = urlsplit(server)
        is_plain = server.isascii() and server.isprintable() and " " not in server and "\\" not in server
        is_token = token.isascii() and token.isprintable() and " " not in token
        if not (token and is_token and is_plain and url.hostname):
            raise ValueError
    except _MALFORMED:
        raise GuestError("the kubeconfig has no server, token or certificate authority") from None
    if f"//k8s/clusters/{guest_id}" in url.path:
        raise GuestError("the kubeconfig's server has a double slash: Rancher's server-url ends with a slash")
    wanted = f"/k8s/clusters/{guest_id}"
    is_bare = url.scheme == "https" and not ("@" in url.netloc or url.query or url.fragment)
    if not is_bare or not url.path.removesuffix("/").endswith(wanted) or ".." in url.path or "%" in url.path:
        raise GuestError(f"the kubeconfig's server must be https://<Rancher>{wanted}")
    return GuestAccess(server.rstrip("/"), token, authority)


def _named(document: Json, entries: str, name: str) -> Json:
    return next(each for each in document[entries] if each["name"] == name)


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
