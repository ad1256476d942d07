"""What a source of charts asks for: who we are, and whose certificates are to be believed.

Both are read anew for each fetch, kept in no object that outlives it, and written only into helm's private folder,
which is gone when helm is. A password reaches helm by its standard input, never by its command line.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from yarl import URL

from fipop.api.names import parse_go_bool
from fipop.errors import ApiError, FipopError, ForbiddenError
from fipop.guest.helm.charts import ChartSource
from fipop.jsons import Json, JsonView, as_mapping, as_text
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS, SECRETS, Resource

_LONGEST = 16 * 1024
_LONGEST_AUTHORITY = 512 * 1024


class ChartAccessError(FipopError):
    """The Secret or ConfigMap with the access to a source cannot be used; the text names it and never quotes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartAccess:
    """The access to a source: a user and password, or a token, and the authority in PEM; "" for what is not needed.

    The credential goes to `hosts` alone, each with its port where that is not the usual one.
    """

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    authority: str = field(default="", repr=False)
    hosts: frozenset[str] = frozenset()
    allow_http: bool = False

    def problem_with(self, url: URL) -> str:
        """Say why the credential does not go to a URL; "" where it does, or where there is none."""
        if not (self.username or self.token):
            return ""
        if not {url.host_port_subcomponent, f"{url.host_subcomponent}:{url.port}"} & self.hosts:
            return f"the credential is not for {url.host_port_subcomponent}. Add it to hosts in the Secret"
        if url.scheme != "https" and not self.allow_http:
            return 'the credential is not sent over http. Set allowHTTP: "true" in the Secret to allow it'
        return ""

    def authorization(self) -> str:
        """Give the header that brings the credential."""
        pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return f"Bearer {self.token}" if self.token else f"Basic {pair}"


AccessReader = Callable[[ChartSource], Awaitable[ChartAccess]]


async def no_access(_source: ChartSource) -> ChartAccess:
    """Give the access of a source that asks for nothing."""
    return ChartAccess()


def parse_credential(name: str, secret: JsonView | None, host: str) -> ChartAccess:
    """Read the Secret of an admin: `username` and `password`, or `token`, and the `hosts` they are for, else `host`.

    Raises ChartAccessError.
    """
    if secret is None:
        raise ChartAccessError(f"Secret {name} does not exist")
    data = as_mapping(secret.get("data"))
    fields = ("username", "password", "token", "hosts", "allowHTTP")
    username, password, token, hosts, allow_http = (_decode(name, data, key) for key in fields)
    if bool(token) == bool(username or password) or bool(username) != bool(password):
        raise ChartAccessError(f"Secret {name} must hold username and password, or token")
    return ChartAccess(
        username=username,
        password=password,
        token=token,
        hosts=frozenset(each.strip().lower() for each in (hosts or host).split(",")),
        allow_http=parse_go_bool(allow_http.strip()) is True,
    )


def parse_authority(name: str, config_map: JsonView | None) -> str:
    """Read the ConfigMap of an admin: `ca.crt`. Raises ChartAccessError."""
    if config_map is None:
        raise ChartAccessError(f"ConfigMap {name} does not exist")
    pem = as_text(as_mapping(config_map.get("data")).get("ca.crt"))
    if "-----BEGIN CERTIFICATE-----" not in pem or not pem.isascii() or len(pem) > _LONGEST_AUTHORITY:
        raise ChartAccessError(f"ConfigMap {name} must hold certificates in PEM under ca.crt")
    return pem


def _decode(name: str, data: Mapping[str, object], key: str) -> str:
    try:
        text = base64.b64decode(as_text(data.get(key)), validate=True).decode().strip("\n")
    except ValueError:
        raise ChartAccessError(f"Secret {name}: {key} must be text") from None
    if len(text) > _LONGEST or not text.isprintable():
        raise ChartAccessError(f"Secret {name}: {key} must have at most {_LONGEST} printable characters")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartAccessReader:
    """Reads the access that the options name, at each fetch: a change takes effect at the next one.

    The objects are in the operator's own namespace.
    """

    client: KubeClient
    namespace: str

    async def read(self, source: ChartSource) -> ChartAccess:
        """Read the access to a source. Raises ChartAccessError."""
        access = ChartAccess()
        if source.secret:
            secret = await self._get(SECRETS, source.secret, "the chart's value settings.kubevipChartSecret")
            access = parse_credential(f"{self.namespace}/{source.secret}", secret, source.secret_host)
        if source.ca:
            config_map = await self._get(CONFIG_MAPS, source.ca, "the chart's value settings.kubevipChartCA")
            access = replace(access, authority=parse_authority(f"{self.namespace}/{source.ca}", config_map))
        return access

    async def _get(self, resource: Resource, name: str, grant: str) -> Json | None:
        try:
            return await self.client.get(resource, name, namespace=self.namespace)
        except ForbiddenError:
            what = f"{resource.kind} {self.namespace}/{name}"
            raise ChartAccessError(f"fipop cannot read {what}. Set {grant} to allow it") from None
        except ApiError as error:
            raise ChartAccessError(str(error)) from error


def write_registry_config(folder: Path, ref: str, access: ChartAccess) -> Path | None:
    """Write what tells helm who we are at the registry of an OCI reference; None where nobody asks."""
    if access.token:
        entry = {"registrytoken": access.token}
    elif access.username:
        entry = {"auth": access.authorization().removeprefix("Basic ")}
    else:
        return None
    return _write(folder / "registry.json", json.dumps({"auths": {urlsplit(ref).netloc: entry}}))


def write_authority(folder: Path, access: ChartAccess) -> Path | None:
    """Write the authority for helm; None where there is none of its own."""
    return _write(folder / "authority.pem", access.authority) if access.authority else None


def _write(path: Path, text: str) -> Path:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(text)
    return path
