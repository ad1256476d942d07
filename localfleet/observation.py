"""The fleet as it is at one moment, seen with an administrator's eyes and without any of the product's code."""

import asyncio
import base64
import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from localfleet.client import ApiClient, Json
from localfleet.stack import ALL_FLOATING_IPS, RESERVATIONS

APPS = "/apis/apps/v1"
_SECRETS = "/api/v1/secrets"
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/kubevip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A helm release in a guest, its newest revision."""

    name: str
    namespace: str
    revision: int
    status: str
    chart: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestView:
    """What is in a guest that anybody here cares about."""

    config_map: Json | None
    releases: Mapping[str, Release]
    daemon_sets: Mapping[str, Json]
    deployments: Mapping[str, Json]
    services: Mapping[str, Json]
    """Those of type LoadBalancer, by name."""

    @property
    def pools(self) -> Mapping[str, str]:
        """The data of the ConfigMap `kubevip`."""
        return (self.config_map or {}).get("data") or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line of a scrape."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """The objects of fipop in the management cluster, and the guest clusters by name."""

    floating_ips: Mapping[str, Json]
    """By name: in the demo no two namespaces have one of the same."""
    reservations: Mapping[str, Json]
    """By address."""
    guests: Mapping[str, GuestView]


async def observe_fleet(management: ApiClient, guests: Mapping[str, ApiClient]) -> FleetView:
    """Read everything that fipop writes, and what comes of it."""
    floating_ips, reservations = await asyncio.gather(
        management.items(ALL_FLOATING_IPS), management.items(RESERVATIONS)
    )
    views = await asyncio.gather(*(observe_guest(client) for client in guests.values()))
    return FleetView(
        floating_ips={one["metadata"]["name"]: one for one in floating_ips},
        reservations={one["spec"]["address"]: one for one in reservations},
        guests=dict(zip(guests, views, strict=True)),
    )


async def observe_guest(client: ApiClient) -> GuestView:
    """Read what a pass over a guest brings about."""
    config_map, secrets, daemon_sets, deployments, services = await asyncio.gather(
        client.find(_CONFIG_MAP),
        client.items(_SECRETS, labelSelector="owner=helm"),
        client.items(f"{APPS}/daemonsets"),
        client.items(f"{APPS}/deployments"),
        client.items("/api/v1/services"),
    )
    releases = sorted((decode_release(secret) for secret in secrets), key=lambda release: release.revision)
    return GuestView(
        config_map=config_map,
        releases={release.name: release for release in releases},
        daemon_sets={one["metadata"]["name"]: one for one in daemon_sets},
        deployments={one["metadata"]["name"]: one for one in deployments},
        services={
            one["metadata"]["name"]: one for one in services if one["spec"].get("type") == "LoadBalancer"
        },
    )


def decode_release(secret: Json) -> Release:
    """Read the Secret in which helm keeps a release: base64 in base64, gzip, JSON."""
    packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    release = json.loads(gzip.decompress(packed))
    chart = release["chart"]["metadata"]
    return Release(
        name=release["name"],
        namespace=release["namespace"],
        revision=release["version"],
        status=release["info"]["status"],
        chart=f"{chart['name']}-{chart['version']}",
    )


def parse_metrics(text: str) -> tuple[Sample, ...]:
    """Read a scrape to the letter: Prometheus' Python parser would append `_total` to a counter without it."""
    found = (_SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        Sample(
            name=sample["name"],
            labels=dict(_LABEL.findall(sample["labels"] or "")),
            value=float(sample["value"]),
        )
        for sample in found
        if sample is not None
    )


def count_pods(workload: Json) -> tuple[int, int]:
    """Return how many pods a DaemonSet or Deployment wants, and how many are ready."""
    spec, status = workload.get("spec", {}), workload.get("status", {})
    wanted = status.get("desiredNumberScheduled", spec.get("replicas", 0))
    return wanted, status.get("numberReady", status.get("readyReplicas", 0))


def addresses_of(floating_ip: Json | None) -> tuple[str, ...]:
    """The addresses that an object's status says are held."""
    return tuple((floating_ip or {}).get("status", {}).get("addresses") or ())
