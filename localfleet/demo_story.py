"""The story of the demo: a range, three guests, an admin's day, a farewell. What only the moment shows is kept."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from localfleet.client import Json
from localfleet.demo_services import API, is_served, open_services, read_services
from localfleet.demo_stage import GUESTS, INTERVAL_SECONDS, OPTED_IN, Stage, start_provider
from localfleet.errors import DeadlineError
from localfleet.observation import (
    OURS,
    GuestView,
    ManagementView,
    Sample,
    addresses_of,
    find_condition,
    observe_guest,
    observe_management,
    parse_metrics,
)
from localfleet.rancher_plan import REAL_ORDER, Guest, Step
from localfleet.routes import SeenRequest, upstream_of
from localfleet.waiting import eventually

EXAMPLES = Path(__file__).parent.parent / "examples"
STATIC_ADDRESS = "10.135.10.200"
FOREIGN_KEY = ("range-accounting", "192.168.7.10-192.168.7.20")
_RANGES = f"{OURS}/floatingipranges"
_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/kubevip"
_PATIENCE_SECONDS = 60.0
_LAST_LINK = Step.LINK
"""After it nothing is missing that a new guest's address depends on."""


@dataclass(slots=True, kw_only=True)
class Evidence:
    """What happened on the way, for the checks at the end."""

    guests: dict[str, Guest] = field(default_factory=dict)
    linked_at: dict[str, float] = field(default_factory=dict)
    address_of_gone: str = ""
    is_namespace_gone: bool = False
    written_back: bool = False
    waited_for: str = ""
    services: dict[str, Json] = field(default_factory=dict)
    quiet_requests: list[SeenRequest] = field(default_factory=list)
    quiet_passes: int = 0
    exit_code: int | None = None
    stop_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The fleet when the story is over."""

    management: ManagementView
    guests: dict[str, GuestView]
    metrics: tuple[Sample, ...]
    log: str


async def tell(stage: Stage, evidence: Evidence) -> Ending:
    """Play the whole story, whatever becomes of it, and look at the fleet at its end."""
    stage.report.chapter(
        "A range, and three guests: demo and shop carry the label kube-vip=true, plain does not"
    )
    await stage.management.client.create(_RANGES, read_example("range.yaml"))
    for name in GUESTS:
        await _bring_up(stage, evidence, name)
    await _wait_for_guests(stage)
    await start_provider(stage, "demo")
    stage.report.chapter("Services in demo")
    evidence.waited_for = await open_services(stage.guests["demo"].client)
    stage.report.step(f"the Service api waits: {evidence.waited_for}")
    stage.report.chapter("An admin's day")
    await _claim_addresses(stage, evidence)
    demo = stage.guests["demo"].client
    await _hope(stage, "the Service api has demo's second floating IP", lambda: is_served(demo, API))
    evidence.services = await read_services(demo)
    stage.report.chapter("The guest plain is deleted in Rancher")
    await _say_goodbye(stage, evidence)
    stage.report.chapter("Nothing happens for a while")
    await _listen(stage, evidence)
    return await look(stage)


async def look(stage: Stage) -> Ending:
    """See the fleet as it is."""
    views = await asyncio.gather(*(observe_guest(stage.guests[name].client) for name in GUESTS))
    return Ending(
        management=await observe_management(stage.management.client),
        guests=dict(zip(GUESTS, views, strict=True)),
        metrics=parse_metrics(await stage.operator.metrics()),
        log=stage.operator.process.log.read_text(errors="replace"),
    )


async def _bring_up(stage: Stage, evidence: Evidence, name: str) -> None:
    labels = {"kube-vip": "true"} if name in OPTED_IN else {}
    guest = await stage.player.create_guest(
        stage.player.plan_guest(name, labels=labels), upstream_of(stage.guests[name]), order=()
    )
    evidence.guests[name] = guest
    for step in REAL_ORDER:
        await stage.player.take(guest, step)
        stage.report.step(f"Rancher makes for {name} ({guest.cluster_id}) {step.value}")
        if step is _LAST_LINK:
            evidence.linked_at[name] = guest.changed_at


async def _wait_for_guests(stage: Stage) -> None:
    async def are_served() -> bool:
        floating_ips = (await observe_management(stage.management.client)).floating_ips
        return all(_is_true(floating_ips.get(f"{name}-kubevip"), "Ready") for name in GUESTS)

    await _hope(stage, "all three floating IPs are ready", are_served)


async def _claim_addresses(stage: Stage, evidence: Evidence) -> None:
    demo, shop = evidence.guests["demo"].cluster_id, evidence.guests["shop"].cluster_id
    await stage.guests["demo"].client.patch(_CONFIG_MAP, {"data": dict([FOREIGN_KEY])})
    stage.report.step(f"somebody adds {FOREIGN_KEY[0]} to the ConfigMap in demo: it is theirs")
    static, dynamic = read_example("floatingip-static.yaml"), read_example("floatingip-dynamic.yaml")
    stage.report.step(f"demo asks for {STATIC_ADDRESS}")
    await _ask(stage, static, demo, "demo-vip", clustername="demo")
    stage.report.step(f"shop asks for {STATIC_ADDRESS} too")
    await _ask(stage, static, shop, "shop-vip", clustername="shop")
    stage.report.step("in shop's namespace somebody asks for an address in demo")
    await _ask(stage, dynamic, shop, "stranger", clustername="demo")

    async def is_merged() -> bool:
        pools = (await observe_guest(stage.guests["demo"].client)).pools
        return STATIC_ADDRESS in pools.get("cidr-global", "")

    await _hope(stage, f"demo carries {STATIC_ADDRESS} too", is_merged)
    await _empty_address(stage, evidence, demo)


async def _ask(stage: Stage, example: Json, namespace: str, name: str, *, clustername: str) -> None:
    """Create an example under another name in a guest's namespace, and wait for the first word about it."""
    annotations = {**example["metadata"]["annotations"], "clustername": clustername}
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    await stage.management.client.create(_floating_ips(namespace), {**example, "metadata": metadata})

    async def verdict() -> Json:
        return find_condition(
            await stage.management.client.get(f"{_floating_ips(namespace)}/{name}"), "Ready"
        )

    await _hope(stage, f"there is a word about {name}", verdict)


async def _empty_address(stage: Stage, evidence: Evidence, namespace: str) -> None:
    stage.report.step("somebody empties demo-vip's spec.ipaddress")
    place = f"{_floating_ips(namespace)}/demo-vip"
    await stage.management.client.patch(place, {"spec": {"ipaddress": ""}})

    async def is_back() -> bool:
        found = await stage.management.client.get(place)
        return bool(found["spec"].get("ipaddress") == STATIC_ADDRESS)

    evidence.written_back = await _hope(stage, f"{STATIC_ADDRESS} is written back", is_back)
    if evidence.written_back:
        stage.report.step("the address that it holds is written back there")


async def _say_goodbye(stage: Stage, evidence: Evidence) -> None:
    plain = evidence.guests["plain"]
    view = await observe_management(stage.management.client)
    evidence.address_of_gone = "".join(addresses_of(view.floating_ips.get("plain-kubevip")))
    await stage.player.delete_guest(plain)
    stage.report.step(f"Rancher has removed plain, and its namespace {plain.cluster_id} goes")

    async def is_namespace_gone() -> bool:
        return await stage.management.client.find(f"/api/v1/namespaces/{plain.cluster_id}") is None

    async def is_in_quarantine() -> bool:
        reservations = (await observe_management(stage.management.client)).reservations
        return bool(reservations[evidence.address_of_gone]["spec"].get("quarantinedUntil"))

    evidence.is_namespace_gone = await _hope(
        stage, f"namespace {plain.cluster_id} is gone", is_namespace_gone
    )
    await _hope(stage, f"{evidence.address_of_gone} is in quarantine", is_in_quarantine)


async def _listen(stage: Stage, evidence: Evidence) -> None:
    """Count what passes over demo cost while there is nothing to do."""
    demo = evidence.guests["demo"].cluster_id
    await asyncio.sleep(INTERVAL_SECONDS)
    before = await _passes(stage, "demo")
    stage.proxy.forget_requests(demo)

    async def have_passed() -> bool:
        return await _passes(stage, "demo") >= before + 2

    await _hope(stage, "two more passes have gone over demo", have_passed)
    # One pass may be under way at either end: what is counted is never more than one pass too much.
    evidence.quiet_passes = int(await _passes(stage, "demo") - before) + 1
    evidence.quiet_requests = stage.proxy.requests_of(demo)


async def _passes(stage: Stage, guest: str) -> float:
    samples = parse_metrics(await stage.operator.metrics())
    wanted = {"guestclustername": guest, "event": "api_connection"}
    return sum(
        one.value
        for one in samples
        if one.name == "kubefipoperator_guestcluster_events" and wanted.items() <= one.labels.items()
    )


async def stop_operator(stage: Stage, evidence: Evidence) -> None:
    """Ask the operator to end, as a kubelet does."""
    begun = time.monotonic()
    evidence.exit_code = await stage.operator.stop()
    evidence.stop_seconds = time.monotonic() - begun


async def _hope(stage: Stage, what: str, look_for: Callable[[], Awaitable[Any]]) -> bool:
    """Wait for something; where it does not come the story goes on, and the checks at the end will tell."""
    try:
        await eventually(look_for, seconds=_PATIENCE_SECONDS, what=what)
    except DeadlineError as error:
        stage.report.step(f"NOT in {_PATIENCE_SECONDS:.0f} s: {error}")
        return False
    return True


def read_example(name: str) -> Json:
    """A manifest of the folder `examples/`, as people create it."""
    manifest: Json = yaml.safe_load((EXAMPLES / name).read_text())
    return manifest


def _floating_ips(namespace: str) -> str:
    return f"{OURS}/namespaces/{namespace}/floatingips"


def _is_true(found: Json | None, kind: str) -> bool:
    return find_condition(found, kind).get("status") == "True"
