"""Which releases a guest is to have: chart, values and the digest that tells whether they changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from yarl import URL

from fipop.api import names
from fipop.settings.options import Settings

Values: TypeAlias = Mapping[str, Any]

DIGEST_LENGTH = 32
"""In hex digits. A label's value takes 63 characters."""

HARVESTER_RELEASE = "harvester-cloud-provider"
"""The release by which RKE2 installs Harvester's cloud provider, with a kube-vip of its own."""

FILE_SCHEME = "file://"

_LAST_NAME_SUFFIX = 5


class Role(StrEnum):
    """What a release is for; the value is also the name of its chart, and its label on the release."""

    KUBE_VIP = "kube-vip"
    CLOUD_PROVIDER = "kube-vip-cloud-provider"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSource:
    """Where a chart comes from: by name from a repository, or by an `oci://` or `file://` reference.

    `version` "" is the newest. `secret` and `ca` name the Secret with the credential and the ConfigMap with the
    authority that the source wants, "" for none; `sha256` is what the archive must be, in hex, "" for anything. The
    credential goes to `secret_host` alone, unless its Secret names others.
    """

    name: str
    repo_url: str = ""
    ref: str = ""
    version: str = ""
    secret: str = ""
    secret_host: str = ""
    ca: str = ""
    sha256: str = ""

    @property
    def file(self) -> str:
        """The path of the archive, where it is mounted into our pod; "" for a source elsewhere."""
        return self.ref.removeprefix(FILE_SCHEME) if self.ref.startswith(FILE_SCHEME) else ""

    @property
    def url(self) -> URL:
        """Where it is, a registry by https."""
        return URL(self.ref.replace("oci://", "https://", 1) or self.repo_url)

    @property
    def probe_urls(self) -> tuple[URL, ...]:
        """What helm asks for first; a registry may want to know who asks for the one and not for the other."""
        if not self.ref:
            return (self.url / "index.yaml",)
        paths = ("tags/list", f"manifests/{self.version.replace('+', '_') or 'latest'}")
        return tuple(self.url.with_path(f"/v2{self.url.path}/{path}") for path in paths)

    def __str__(self) -> str:
        return self.ref or f"{self.repo_url.rstrip('/')}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartIdentity:
    """What a chart is, wherever it came from; `content` is a digest over its files."""

    name: str
    version: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRelease:
    """One release as the settings want it; `values` lack the name of its objects, which each guest may need to vary.

    `object_name` is that name where the admin's own values give one.
    """

    role: Role
    name: str
    namespace: str
    source: ChartSource
    values: Values = field(repr=False)
    object_name: str | None = None


def wanted_releases(settings: Settings) -> tuple[WantedRelease, ...]:
    """Give the two releases of an opted-in guest, kube-vip first."""
    kube_vip = WantedRelease(
        role=Role.KUBE_VIP,
        name=settings.kubevip_release_name,
        namespace=settings.kubevip_namespace,
        source=_source(
            Role.KUBE_VIP,
            settings,
            settings.kubevip_chart_ref,
            settings.kubevip_chart_version,
            settings.kubevip_chart_digest,
        ),
        values=build_values(Role.KUBE_VIP, settings.kubevip_chart_values.values),
        object_name=_own_name(settings.kubevip_chart_values.values),
    )
    cloud_provider = WantedRelease(
        role=Role.CLOUD_PROVIDER,
        name=settings.kubevip_cloud_provider_release_name,
        namespace=settings.kubevip_namespace,
        source=_source(
            Role.CLOUD_PROVIDER,
            settings,
            settings.kubevip_cloud_provider_chart_ref,
            settings.kubevip_cloud_provider_chart_version,
            settings.kubevip_cloud_provider_chart_digest,
        ),
        values=build_values(Role.CLOUD_PROVIDER, settings.kubevip_cloud_provider_chart_values.values),
        object_name=_own_name(settings.kubevip_cloud_provider_chart_values.values),
    )
    return kube_vip, cloud_provider


def build_values(role: Role, admin: Values) -> dict[str, Any]:
    """Give the admin's values with what the charts need to work with us; what the admin says himself stands.

    `config.vip_interface` has named no interface since 2021: it is copied to `env.vip_interface`, which does.
    Variables of an environment are texts, whatever YAML took them for.
    """
    values = dict(admin)
    env = values.get("env")
    if role is Role.KUBE_VIP:
        config = values.get("config")
        interface = config.get("vip_interface") if isinstance(config, Mapping) else None
        if interface not in (None, "") and isinstance(env, Mapping | None):
            env = {"vip_interface": interface, **(env or {})}
    else:
        values["configMapName"] = values.get("configMapName") or names.GUEST_CONFIG_MAP
    if isinstance(env, Mapping):
        values["env"] = {name: _as_env(value) for name, value in env.items()}
    return values


def with_object_name(values: Values, name: str) -> dict[str, Any]:
    """Give the values with the name of the release's objects."""
    return {**values, "nameOverride": name}


def object_name_candidates(wanted: WantedRelease, taken: frozenset[str]) -> tuple[str, ...]:
    """Give the names to try for a new release's objects: the admin's own alone, else the release's and variants.

    `taken` are names that objects of others were seen to have; helm finds those that were not seen, and decides where
    all of them are.
    """
    if wanted.object_name is not None:
        return (wanted.object_name,)
    variants = [wanted.name, f"{wanted.name}-fipop"]
    variants += [f"{wanted.name}-fipop-{number}" for number in range(2, _LAST_NAME_SUFFIX + 1)]
    return tuple(name for name in variants if name not in taken) or tuple(variants)


def digest(chart: ChartIdentity, values: Values) -> str:
    """Give 32 hex digits that change with the chart or the values, and with nothing else."""
    what = [chart.name, chart.version, chart.content, values]
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def same_by_admin(role: Role, deployed: Values, wanted: Values) -> bool:
    """Whether two sets of values are the same but for what kube-fip-operator or fipop adds to the admin's."""
    return _without_ours(role, deployed) == _without_ours(role, wanted)


def _without_ours(role: Role, values: Values) -> str:
    complete = build_values(role, values)
    complete.pop("nameOverride", None)
    return json.dumps(complete, sort_keys=True, default=dict)


def _source(role: Role, settings: Settings, ref: str, version: str, digest_text: str) -> ChartSource:
    sha256 = digest_text.removeprefix("sha256:")
    if ref.startswith(FILE_SCHEME):
        return ChartSource(name=role.value, ref=ref, version=version, sha256=sha256)
    home = ChartSource(name="", ref=settings.kubevip_chart_ref, repo_url=settings.kubevip_chart_repo_url)
    access = {
        "secret": settings.kubevip_chart_secret,
        "secret_host": (URL(home.repo_url) if home.file else home.url).host_port_subcomponent or "",
        "ca": settings.kubevip_chart_ca,
        "sha256": sha256,
    }
    if ref:
        return ChartSource(name=ref.rpartition("/")[2], ref=ref, version=version, **access)
    return ChartSource(name=role.value, repo_url=settings.kubevip_chart_repo_url, version=version, **access)


def _own_name(admin: Values) -> str | None:
    name = admin.get("nameOverride")
    return name if isinstance(name, str) and name else None


def _as_env(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value
