"""Assigns addresses to Services for keepalived, instead of keepalived-cloud-provider: one plan, one tested write.

The annotation of the ConfigMap says which Service has which address, with which forward method. `data`, which
keepalived reads, is made from it. Keys of `data` that the annotation does not have belong to others: they stay, and are
in use. An annotation that cannot be read changes nothing: read as an empty one it would renumber all Services.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from fipop.api.objects import read_metadata
from fipop.api.service import Service
from fipop.cloudprovider.allocate import INVALID_METHOD, Refusal
from fipop.cloudprovider.caches import SOON, ConfigMapCache, ServiceCache
from fipop.cloudprovider.metrics import ASSIGNMENTS, ServiceSnapshot
from fipop.cloudprovider.needs import build_assigned_finding
from fipop.errors import WRITE_REFUSED, ApiError, ConflictError, NotFoundError, UnavailableError
from fipop.ipam.addresses import Address, Family, format_address, parse_address, parse_addresses
from fipop.ipam.errors import IpamError
from fipop.jsons import Json, JsonView, as_mapping, as_text
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from fipop.runtime.store import Change
from fipop.runtime.workqueue import RetryAfter, WorkQueue
from fipop.texts import clean

logger = logging.getLogger(__name__)

PLAN = "k8s.co/cloud-provider-config"
"""The annotation of the ConfigMap."""
ALL = "services"
"""The one key of the work queue: all Services are planned together."""
EVERY_SECONDS = 300.0
STATUSES_AT_ONCE = 16
_ENDS = 2
"""A network of no more addresses has no first and last to leave out."""


class Method(StrEnum):
    """How keepalived forwards; NAT if nothing is said."""

    NAT = "NAT"
    DR = "DR"
    PROXY = "PROXY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The addresses to assign, from `first` to `last`, however many."""

    text: str
    family: Family
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepalivedOptions:
    """Where the ConfigMap of keepalived is."""

    namespace: str = "kube-system"
    config_map: str = "vip-configmap"
    network: Network | None = None
    """The addresses to assign. None: only Services that ask for an address get one."""
    default_method: Method = Method.NAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The address of one Service."""

    uid: str
    address: Address
    namespace: str
    name: str
    method: Method = Method.NAT

    @property
    def value(self) -> str:
        """What keepalived reads of it."""
        suffix = f":{self.method}" if self.method is not Method.NAT else ""
        return f"{self.namespace}/{self.name}{suffix}"


@dataclass(slots=True, kw_only=True)
class Plan:
    """What the ConfigMap should be, and which Services do not get what they ask for."""

    options: KeepalivedOptions
    by_uid: dict[str, Held]
    foreign: Mapping[str, str]
    """The data that belongs to others."""
    foreign_addresses: frozenset[Address] = frozenset()
    refusals: list[tuple[Service, Refusal]] = field(default_factory=list)

    @property
    def held(self) -> tuple[Held, ...]:
        """The address of each Service."""
        return tuple(self.by_uid.values())

    @property
    def data(self) -> dict[str, str]:
        """What keepalived should read."""
        return {**self.foreign, **{format_address(each.address): each.value for each in self.held}}

    @property
    def waiting(self) -> dict[str, Refusal]:
        """Why Services wait, by uid."""
        return {service.uid: each for service, each in self.refusals if each.waits}

    def serve(self, service: Service) -> None:
        """Find the address of a Service; it keeps the one that it has if it cannot have another."""
        known = self.by_uid.get(service.uid)
        address = self._find_address(service, known.address if known is not None else None)
        if address is not None:
            self.by_uid[service.uid] = Held(
                uid=service.uid,
                address=address,
                namespace=service.namespace,
                name=service.name,
                method=self._find_method(service, known),
            )

    def keep(self, config_map: JsonView, services: Iterable[Service], refusal: Refusal) -> None:
        """Keep what the ConfigMap has, which cannot be written; Services that should have something else wait."""
        stored = {each.uid: each for each in read_held(config_map)}
        changed = [each for each in services if self.by_uid.get(each.uid) != stored.get(each.uid)]
        self.refusals += [(each, refusal) for each in changed]
        self.by_uid = stored

    def _find_address(self, service: Service, kept: Address | None) -> Address | None:
        if not service.request:
            return kept or self._choose(service)
        if service.requested is None:
            text = "The Service is invalid: spec.loadBalancerIP must be an address."
            return self._refuse(service, "InvalidAddress", text, kept)
        others = (each for each in self.held if each.uid != service.uid)
        holders = [f"{each.namespace}/{each.name}" for each in others if each.address == service.requested]
        if service.requested in self.foreign_addresses:
            holders.append("a key of the ConfigMap that belongs to no Service")
        if holders:
            address = format_address(service.requested)
            text = f"Address {address} is in use by {', '.join(holders)}. Use another."
            return self._refuse(service, "AddressInUse", text, kept)
        return service.requested

    def _choose(self, service: Service) -> Address | None:
        """Return the lowest free address of the network."""
        network = self.options.network
        if network is None:
            return self._refuse(service, "NoPool", "The network is not known. Set KEEPALIVED_SERVICE_CIDR.")
        taken = self.foreign_addresses.union(each.address for each in self.held)
        value = network.first
        while value <= network.last and Address(network.family, value) in taken:
            value += 1
        if value > network.last:
            text = f"Network {network.text} is full. Delete unused Services."
            return self._refuse(service, "PoolFull", text)
        return Address(network.family, value)

    def _find_method(self, service: Service, known: Held | None) -> Method:
        """Return what the Service asks for, else what it has, else the default."""
        if service.forward_method in set(Method):
            return Method(service.forward_method)
        if service.forward_method:
            asked = clean(service.forward_method, 64)
            text = f'The forward method must be one of {", ".join(Method)}: it is "{asked}".'
            self._refuse(service, INVALID_METHOD, text)
        return known.method if known is not None else self.options.default_method

    def _refuse(
        self, service: Service, reason: str, message: str, kept: Address | None = None
    ) -> Address | None:
        """Note that a Service does not get what it asks for; return what it keeps."""
        self.refusals.append((service, Refusal(reason=reason, message=message)))
        return kept


def parse_network(text: str) -> Network:
    """Read the CIDR of the addresses to assign; host bits are masked. Raises: ValueError."""
    found = ipaddress.ip_network(text.strip(), strict=False)
    first, last = int(found.network_address), int(found.broadcast_address)
    if last - first >= _ENDS:
        first, last = first + 1, last - 1
    return Network(text=str(found), family=Family(found.version), first=first, last=last)


def read_held(config_map: JsonView) -> tuple[Held, ...]:
    """Read the annotation. Raises: ValueError if a part of it cannot be read."""
    annotation = as_text(as_mapping(as_mapping(config_map.get("metadata")).get("annotations")).get(PLAN))
    try:
        found = json.loads(annotation) if annotation.strip() else {}
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(found, dict) or not isinstance(found.get("services") or [], list):
        raise ValueError("no list of services")
    held = map(_read_one, found.get("services") or [])
    return tuple({each.uid: each for each in held}.values())


def make_plan(
    config_map: JsonView,
    services: Iterable[Service],
    *,
    gone: frozenset[str],
    options: KeepalivedOptions,
) -> Plan:
    """Decide what the ConfigMap should be; `gone` are the uids of Services that do not exist, by a live read.

    Raises: ValueError if the annotation cannot be read.
    """
    before = read_held(config_map)
    data = {key: as_text(value) for key, value in as_mapping(config_map.get("data")).items()}
    ours = {format_address(each.address) for each in before}
    foreign = {key: value for key, value in data.items() if key not in ours}
    plan = Plan(
        options=options,
        by_uid={each.uid: each for each in before if each.uid not in gone},
        foreign=foreign,
        foreign_addresses=frozenset(parse_addresses(foreign)),
    )
    for service in sorted(services, key=lambda each: (each.created, each.key)):
        plan.serve(service)
    return plan


def render(config_map: JsonView, wanted: Plan) -> Json:
    """Return the ConfigMap as it should be, at the version that was read."""
    metadata = as_mapping(config_map.get("metadata"))
    services = [_render_one(each) for each in wanted.held]
    annotations = dict(as_mapping(metadata.get("annotations")))
    if services or PLAN in annotations:
        annotations[PLAN] = json.dumps({"services": services}, separators=(",", ":"))
    return {**config_map, "metadata": {**metadata, "annotations": annotations}, "data": wanted.data}


def is_done(config_map: JsonView, wanted: Plan) -> bool:
    """Return whether the ConfigMap is as it should be."""
    data = {key: as_text(value) for key, value in as_mapping(config_map.get("data")).items()}
    return read_held(config_map) == wanted.held and data == wanted.data


def _read_one(entry: object) -> Held:
    value = as_mapping(entry)
    method, uid = as_text(value.get("forwardMethod")), as_text(value.get("uid"))
    try:
        address = parse_address(as_text(value.get("ip")))
    except IpamError as error:
        raise ValueError(str(error)) from None
    if not uid:
        raise ValueError("an entry without a uid")
    return Held(
        uid=uid,
        address=address,
        namespace=as_text(value.get("serviceNamespace")),
        name=as_text(value.get("serviceName")),
        method=Method(method) if method in set(Method) else Method.NAT,
    )


def _render_one(held: Held) -> Json:
    known: Json = {
        "uid": held.uid,
        "ip": format_address(held.address),
        "serviceNamespace": held.namespace,
        "serviceName": held.name,
    }
    return known | ({"forwardMethod": str(held.method)} if held.method is not Method.NAT else {})


class KeepalivedMode:
    """Brings the ConfigMap and the statuses of Services to the plan; docs/reference/cloud-provider.md has the rules."""

    def __init__(
        self,
        options: KeepalivedOptions,
        client: KubeClient,
        events: EventRecorder,
        *,
        random: Random,
    ) -> None:
        self.services = ServiceCache(client, self._plan_again, random=random)
        self.config_map = ConfigMapCache(
            client, self._plan_again, namespace=options.namespace, name=options.config_map, random=random
        )
        self._options = options
        self._events = events
        self._queue = WorkQueue[str](name="keepalived", random=random)
        self._client: KubeClient | None = None
        self._refused: frozenset[tuple[str, Refusal]] = frozenset()

    async def load(self) -> None:
        """Nothing is needed before the first plan."""

    def snapshot(self) -> ServiceSnapshot | None:
        """Return what the metrics show; None while this replica does not work."""
        waiting = {uid for uid, refusal in self._refused if refusal.waits}
        return ServiceSnapshot(leading=True, waiting=len(waiting)) if self._client else None

    async def work(self, client: KubeClient) -> None:
        """Serve Services until cancelled."""
        await self.services.loaded.wait()
        self._client = client
        try:
            self._queue.add(ALL)
            await self._queue.run(self._reconcile, concurrency=1)
        finally:
            self._client = None

    def _plan_again(self, _change: Change[Service] | JsonView | None) -> None:
        if self._client is not None:
            self._queue.add(ALL)

    async def _reconcile(self, _key: str) -> RetryAfter | None:
        """Carry out the plan. Raises: ApiError."""
        assert self._client is not None
        client = self._client
        config_map = await self._read(client)
        about = reference_to(CONFIG_MAPS, read_metadata(config_map))
        served = [each for each in self.services.store.all() if each.is_load_balancer and not each.class_name]
        try:
            plan = make_plan(
                config_map,
                served,
                gone=await self._find_gone(client, config_map, {each.uid for each in served}),
                options=self._options,
            )
        except ValueError as error:
            text = f"Annotation {PLAN} cannot be read, and fipop changes nothing: {clean(str(error), 200)}. Repair it."
            logger.warning("Could not read annotation", extra={"annotation": PLAN, "error": str(error)})
            self._events.record(about, EventType.WARNING, "AnnotationUnreadable", text)
            return RetryAfter(EVERY_SECONDS)
        refused: ApiError | None = None
        try:
            await self._write_plan(client, config_map, plan)
        except (ConflictError, NotFoundError):
            return SOON
        except ApiError as error:
            if isinstance(error, UnavailableError) and not error.refuser:
                raise
            refused = error
            plan.keep(config_map, served, _refuse_write(error))
            self._events.record(about, EventType.WARNING, WRITE_REFUSED, error.explain())
        unshown = await self._show_all(client, served, plan)
        failed = refused or unshown
        if failed is None or isinstance(failed, ConflictError | NotFoundError):
            return RetryAfter(EVERY_SECONDS) if failed is None else SOON
        raise failed

    async def _read(self, client: KubeClient) -> Json:
        """Read the ConfigMap; one that does not exist has no version."""
        namespace, name = self._options.namespace, self._options.config_map
        found = await client.get(CONFIG_MAPS, name, namespace=namespace)
        return found or {"metadata": {"name": name, "namespace": namespace}}

    async def _write_plan(self, client: KubeClient, config_map: Json, plan: Plan) -> None:
        """Have the ConfigMap say what was planned; it is created if it does not exist. Raises: ApiError."""
        is_stored = "resourceVersion" in config_map["metadata"]
        if not is_stored or not is_done(config_map, plan):
            write = client.replace if is_stored else client.create
            await write(CONFIG_MAPS, render(config_map, plan))
            logger.info("Wrote ConfigMap", extra={"services": len(plan.held)})

    async def _find_gone(self, client: KubeClient, config_map: Json, served: set[str]) -> frozenset[str]:
        """Return the uids whose Service, read after the ConfigMap, is gone or is no LoadBalancer any more."""
        gone = set()
        for each in read_held(config_map):
            if each.uid in served:
                continue
            live = None
            if each.namespace and each.name:
                live = await self.services.get(client, each)
            if live is None or live["spec"].get("type") != "LoadBalancer":
                gone.add(each.uid)
        return frozenset(gone)

    async def _show_all(self, client: KubeClient, served: Iterable[Service], plan: Plan) -> ApiError | None:
        """Have the statuses of Services follow the plan, and report who waits; return what kept one from that."""
        left = (each for each in self.services.store.all() if not each.is_load_balancer and each.finding)
        shown = [*served, *(each for each in left if not each.class_name)]
        waiting, slots = plan.waiting, asyncio.Semaphore(STATUSES_AT_ONCE)
        showing = (
            self._show(client, each, plan.by_uid.get(each.uid), waiting.get(each.uid), slots)
            for each in shown
        )
        ends = zip(shown, await asyncio.gather(*showing), strict=True)
        failed = [(service, error) for service, error in ends if error is not None]
        refusals = [(each, _refuse_write(error)) for each, error in failed if error.is_refusal]
        self._report([*plan.refusals, *refusals])
        return next((error for _, error in failed), None)

    async def _show(
        self,
        client: KubeClient,
        service: Service,
        held: Held | None,
        refusal: Refusal | None,
        slots: asyncio.Semaphore,
    ) -> ApiError | None:
        """Have the status of a Service name its address alone, and why it waits; return what kept it from that."""
        finding = None
        if refusal is not None:
            finding = refusal.to_finding(has_address=held is not None)
        elif held is not None and service.finding:
            finding = build_assigned_finding([held.address])
        if service.finding == finding and (held is None or service.announced == (held.address,)):
            return None
        async with slots:
            try:
                announced = held.address if held is not None else None
                await self.services.write_status(client, service, finding, announced=announced)
            except ApiError as error:
                return error
        return None

    def _report(self, refusals: Iterable[tuple[Service, Refusal]]) -> None:
        """Report once each Service that does not get what it asks for."""
        refused = {(service.uid, refusal): service for service, refusal in refusals}
        for (uid, refusal), service in refused.items():
            if (uid, refusal) not in self._refused:
                ASSIGNMENTS.labels(refusal.reason).inc()
                fields = {"service": "/".join(service.key), "reason": refusal.reason, "why": refusal.message}
                logger.warning("Service was not assigned its address", extra=fields)
                event = "SyncLoadBalancerFailed" if refusal.reason == WRITE_REFUSED else refusal.reason
                self._events.record(
                    reference_to(SERVICES, service), EventType.WARNING, event, refusal.message
                )
        self._refused = frozenset(refused)


def _refuse_write(error: ApiError) -> Refusal:
    return Refusal(reason=WRITE_REFUSED, message=error.explain())
