"""Writes what happens in the fleet while it happens, from watches of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self

import aiohttp

from localfleet.client import ApiClient, Json
from localfleet.errors import ApiError
from localfleet.observation import APPS, addresses_of, count_pods
from localfleet.report import Report
from localfleet.stack import ALL_FLOATING_IPS, RANGES, RESERVATIONS, condition

Describe = Callable[[Json], str]
_REST_SECONDS = 0.5


class Narrator:
    """Watches while entered as `async with`. Writes a line when what there is to say of an object changes."""

    def __init__(self, report: Report) -> None:
        """Prepare a narrator that writes to `report`."""
        self._report = report
        self._said: dict[tuple[str, str], str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Nothing is watched yet."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End all watches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def watch_management(self, client: ApiClient) -> None:
        """Write about the objects of fipop in the management cluster."""
        self._begin(self._follow(client, ALL_FLOATING_IPS, "", _describe_floating_ip))
        self._begin(self._follow(client, RESERVATIONS, "", _describe_reservation))
        self._begin(self._follow(client, RANGES, "", _describe_range))

    def watch_guest(self, name: str, client: ApiClient) -> None:
        """Write about what a visit brings about in a guest cluster."""
        kube_system = "/api/v1/namespaces/kube-system"
        self._begin(self._follow(client, f"{kube_system}/configmaps", name, _describe_config_map))
        self._begin(self._follow(client, f"{kube_system}/secrets", name, _describe_release))
        self._begin(self._follow(client, f"{APPS}/daemonsets", name, _describe_daemon_set))
        self._begin(self._follow(client, f"{APPS}/deployments", name, _describe_deployment))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _follow(self, client: ApiClient, path: str, place: str, describe: Describe) -> None:
        while True:
            try:
                async for event in client.watch(path):
                    self._describe(place, event, describe)
            except (ApiError, aiohttp.ClientError):
                # The server has gone or is not there yet; what is missed is seen when it is back.
                await asyncio.sleep(_REST_SECONDS)

    def _describe(self, place: str, event: Json, describe: Describe) -> None:
        found = event["object"]
        if event["type"] == "ERROR" or "metadata" not in found or "name" not in found["metadata"]:
            return
        text = describe(found)
        key = (place, f"{found['kind']}/{found['metadata'].get('namespace', '')}/{found['metadata']['name']}")
        if event["type"] == "DELETED":
            text = f"{_title(found)} is gone" if self._said.get(key) else ""
        if text and text != self._said.get(key):
            self._report.step(f"{place + ': ' if place else ''}{text}")
            self._said[key] = text


def _title(found: Json) -> str:
    kinds = {"FloatingIP": "floating IP", "FloatingIPReservation": "reservation", "FloatingIPRange": "range"}
    return f"{kinds.get(found['kind'], found['kind'])} {found['metadata']['name']}"


def _describe_floating_ip(found: Json) -> str:
    ready, held = condition(found, "Ready"), ", ".join(addresses_of(found))
    text = f"{_title(found)} holds {held}" if held else f"{_title(found)} has no address"
    if ready.get("status") == "True":
        return f"{text}, ready"
    return f"{text}, {ready['reason']}: {ready.get('message', '')}" if ready else ""


def _describe_reservation(found: Json) -> str:
    spec = found["spec"]
    owner = spec.get("owner", {})
    if spec.get("quarantinedUntil"):
        return f"{_title(found)} is in quarantine until {spec['quarantinedUntil']}"
    return f"{_title(found)} is held by {owner.get('namespace', '')}/{owner.get('name', '')}"


def _describe_range(found: Json) -> str:
    ready = condition(found, "Ready")
    return f"{_title(found)}: {ready.get('reason', '')}" if ready else ""


def _describe_config_map(found: Json) -> str:
    if found["metadata"]["name"] != "kubevip":
        return ""
    pools = ", ".join(f"{key} = {value}" for key, value in sorted((found.get("data") or {}).items()))
    return f"ConfigMap kubevip: {pools or 'empty'}"


def _describe_release(found: Json) -> str:
    labels = found["metadata"].get("labels", {})
    if labels.get("owner") != "helm" or labels["status"].startswith("pending"):
        return ""
    return f"helm release {labels['name']}, revision {labels['version']}: {labels['status']}"


def _describe_daemon_set(found: Json) -> str:
    selector = found["spec"]["template"]["spec"].get("nodeSelector") or {}
    if any("disabled" in key for key in selector):
        return f"DaemonSet {found['metadata']['name']}: parked" if count_pods(found) == (0, 0) else ""
    return _describe_deployment(found)


def _describe_deployment(found: Json) -> str:
    wanted, ready = count_pods(found)
    return f"{found['kind']} {found['metadata']['name']}: {ready} of {wanted} pods ready" if ready else ""
