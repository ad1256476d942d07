"""Brings each Service of type LoadBalancer to its addresses, from the ConfigMap `kubevip`.

Why no address is assigned twice. Only the leader assigns. It chooses from all that Services carry and from its own
writes under way (`Cluster`), then reads its Leases, and writes the Service tested on the version that it chose for. A
write without an answer stays under way until the Service has another version: by then it was done, or fails.

A former leader may have such a write under way, too, however long it was frozen. So a new leader lists all Services
live, and stamps each that lacks something (`Fence`). It assigns from a pool when every Service of that pool is stamped:
a write of a former leader comes before the stamp, and is seen; or after it, and fails on the version. Only if the API
server answers for a minute that it refuses the stamp is the Service no longer waited for: it would refuse the other
write, too. No clock is trusted, nothing can fill up, age or be deleted.

A Service that is created later is none of a former leader's: it would choose, read the Leases, and find another holder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeAlias

from fipop.api.conditions import ConditionContent
from fipop.api.objects import read_metadata
from fipop.api.service import Service, parse_service
from fipop.cloudprovider.allocate import Refusal, ServiceRequest, allocate, refuse_asked
from fipop.cloudprovider.caches import SOON, ConfigMapCache, Machines, ServiceCache
from fipop.cloudprovider.cluster import Cluster, UnderWay
from fipop.cloudprovider.fence import Fence
from fipop.cloudprovider.metrics import ASSIGNMENT_SECONDS, ASSIGNMENTS, ServiceSnapshot
from fipop.cloudprovider.needs import (
    LEASE_FIELD,
    Need,
    build_assigned,
    build_assigned_finding,
    build_cleared,
    build_copied,
    build_copy,
    build_released,
    build_taken_over,
    find_manager,
    is_assigned,
    list_changed,
    put_lease,
)
from fipop.cloudprovider.options import KubevipOptions, ProviderOptions
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.problems import find_problems
from fipop.cloudprovider.reporter import Reporter
from fipop.cloudprovider.rewrites import Rewrites
from fipop.cloudprovider.sticky import StickyAddresses
from fipop.errors import WRITE_REFUSED, ApiError, ConflictError, NotFoundError, UnavailableError
from fipop.guests.config_map import read_applied
from fipop.interfaces import loop_time
from fipop.ipam.addresses import Address, Family, format_address
from fipop.jsons import JsonView, as_mapping
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from fipop.runtime.store import Change, Name
from fipop.runtime.workqueue import RetryAfter, WorkQueue
from fipop.texts import clean

logger = logging.getLogger(__name__)

MACHINES_SECONDS = 300.0
"""Between two lists of nodes."""
BEGIN_RETRY_SECONDS = 1.0
NOT_LEADING = "NotLeading"

Rewrite: TypeAlias = Callable[[JsonView], dict[str, Any]]
"""Returns a Service as it should be."""


@dataclass(slots=True)
class _Memory:
    """What is remembered of a Service while it exists, by its uid."""

    waiting_since: float | None = None
    """When it was first seen without an address."""
    rewrites: Rewrites = field(default_factory=Rewrites)


class ServiceController:
    """Assigns addresses from the ConfigMap `kubevip`, instead of kube-vip-cloud-provider.

    It leads once at most: a process that loses a Lease ends. `check_leads` reads the Leases live, and returns whether
    this process holds them.
    """

    def __init__(
        self,
        options: ProviderOptions,
        mode: KubevipOptions,
        check_leads: Callable[[], Awaitable[bool]],
        client: KubeClient,
        events: EventRecorder,
        *,
        random: Random,
    ) -> None:
        self.services = ServiceCache(client, self._service_changed, random=random)
        self.config_map = ConfigMapCache(
            client, self._keys_changed, namespace=mode.namespace, name=mode.config_map, random=random
        )
        self._writes_at_once = options.writes_at_once
        self._check_leads = check_leads
        self._client = client
        self._events = events
        self._cluster = Cluster(classes=mode.classes, identity=options.identity, namespace=mode.namespace)
        self._machines = Machines()
        self._sticky = StickyAddresses(namespace=mode.namespace, events=events)
        self._reporter = Reporter(self.services, events)
        self._key_texts: Mapping[str, str] = {}
        """What was said last about a key."""
        self._is_working = False
        self._memory: dict[str, _Memory] = {}
        self._waiting: dict[Name, Refusal] = {}
        """Why Services wait."""
        self._refused: set[Name] = set()
        """The Services that wait since the API server refuses to have them written; the queue retries them."""
        self._fence = Fence(
            self.services, self._cluster, self._reporter, identity=options.identity, lowered=self._add_names
        )
        self._queue: WorkQueue[Name] = WorkQueue(name="services", random=random)

    async def load(self) -> None:
        """Read the ConfigMap. Raises: ApiError."""
        await self.config_map.load()

    async def work(self, client: KubeClient) -> None:
        """Serve Services until cancelled; `client` writes only while this replica leads."""
        self._client = client
        await self.services.loaded.wait()
        self._is_working = True
        try:
            await _repeat(partial(self.services.load, client))
            await _repeat(self._read_machines)
            if self._cluster.keys.sticky_seconds:
                await _repeat(partial(self._sticky.load, client))
            self._enter_all()
            self._fence.build()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fence.lower(client, concurrency=self._writes_at_once))
                group.create_task(self._queue.run(self.reconcile, concurrency=self._writes_at_once))
                group.create_task(self._follow_machines())
                group.create_task(self._sticky.follow(client))
        finally:
            self._is_working = False

    # What a Service needs

    async def reconcile(self, name: Name) -> RetryAfter | None:
        """Do what a Service needs."""
        service = self.services.store.get(*name)
        self._refused.discard(name)
        need = self._cluster.find_need(service) if service is not None else Need.NOTHING
        if need not in (Need.ASSIGN, Need.COPY):
            self._waiting.pop(name, None)
        if service is None:
            return None
        if self._cluster.is_served(service):
            user, usage, keys = self._cluster.build_user(service), self._cluster.usage, self._cluster.keys
            self._reporter.report_problems(service, find_problems(service, user, usage, keys))
        match need:
            case Need.ASSIGN:
                return await self._assign(service)
            case Need.COPY:
                return await self._copy(service)
            case Need.TAKE_OVER:
                return await self._write(service, build_taken_over)
            case Need.CLEAR:
                interfaces = self._cluster.keys.interfaces
                return await self._write(service, partial(build_cleared, interfaces=interfaces))
            case Need.RELEASE:
                return await self._write(service, build_released, is_followed=service.is_deleting)
            case Need.NOTHING:
                return None if service.is_deleting else await self._show_if_waited(service, ())

    async def _assign(self, service: Service) -> RetryAfter | None:
        memory = self._remember(service)
        if not service.annotation and memory.waiting_since is None:
            memory.waiting_since = loop_time()
        pool, request = self._cluster.pool_of(service), self._build_request(service)
        is_poolless = pool is None and not request.kept and request.asked is None
        if is_poolless and await self.config_map.create_if_missing():
            return SOON
        is_invalid = service.is_as_noted and service.request and service.requested is None
        answer = _refuse_invalid(service) if is_invalid else allocate(request, pool, self._cluster.usage)
        if isinstance(answer, Refusal):
            return await self._refuse(service, answer)
        is_from_pool = not {*request.kept, request.asked} >= set(answer)
        if is_from_pool and self._fence.holds_back(service, pool):
            return None
        self._waiting.pop(service.key, None)
        if answer == service.annotated and service.requested == answer[0] and service.has_finalizer:
            return await self._show_if_waited(service, answer)
        again = await self._write_addresses(service, answer, is_followed=request.asked is not None)
        if again is None:
            ASSIGNMENTS.labels("assigned").inc()
            if memory.waiting_since is not None:
                ASSIGNMENT_SECONDS.observe(loop_time() - memory.waiting_since)
                memory.waiting_since = None
        return again

    def _build_request(self, service: Service) -> ServiceRequest:
        now, seconds = self._client.server_now(), self._cluster.keys.sticky_seconds
        is_new = not service.annotation and seconds
        return self._cluster.build_request(
            service, self._sticky.find(service, now, seconds) if is_new else ()
        )

    async def _copy(self, service: Service) -> RetryAfter | None:
        """Copy `spec.loadBalancerIP` to the annotation; if it changed, only if no other Service has the address."""
        is_same = service.has_request_first or service.request == service.annotation
        is_changed = bool(service.annotation) and not is_same
        if is_changed:
            refusal: Refusal | None = _refuse_invalid(service)
            if service.requested is not None:
                # Its user alone decides, also about the family.
                user = self._cluster.build_user(service)
                refusal = refuse_asked(service.requested, list(Family), user, self._cluster.usage)
            if refusal is not None:
                return await self._refuse(service, refusal)
        self._waiting.pop(service.key, None)
        return await self._write(service, build_copied, is_followed=is_changed)

    async def _refuse(self, service: Service, refusal: Refusal) -> RetryAfter | None:
        """Have a Service wait, and say why."""
        if self._waiting.get(service.key) != refusal:
            ASSIGNMENTS.labels(refusal.reason).inc()
        self._waiting[service.key] = refusal
        if service.is_as_noted and not service.is_marked and not service.request:
            # Its user took its own address off: it does not keep it until it gets another one.
            return await self._write(service, partial(build_cleared, interfaces=())) or SOON
        return await self._show(service, refusal.to_finding(has_address=bool(service.annotation)))

    async def _show_if_waited(self, service: Service, addresses: tuple[Address, ...]) -> RetryAfter | None:
        """Have the condition of a Service that waited name its addresses; without any it goes."""
        has_waited = service.finding is not None and addresses
        return await self._show(service, build_assigned_finding(addresses) if has_waited else None)

    async def _show(self, service: Service, finding: ConditionContent | None) -> RetryAfter | None:
        """Have a Service whose addresses stay name the Lease of all that share them, and show its condition."""
        again: RetryAfter | None = None
        lease = self._cluster.find_lease(service)
        is_due = lease != (service.lease_name if service.has_lease_as_noted else "")
        if is_due and self._cluster.is_served(service):
            again = await self._write(service, build_copy, is_followed=not lease)
        return await self._reporter.show(self._client, service, finding) or again

    # What is written

    async def _write_addresses(
        self, service: Service, addresses: tuple[Address, ...], *, is_followed: bool
    ) -> RetryAfter | None:
        """Write addresses into a Service. From the choice on, without a pause, they are in use."""
        before = self._cluster.find_writes(service)
        writes = UnderWay(service.version, before.addresses.union(addresses))
        self._add_uids(self._cluster.put_writes(service, writes))
        pool = self._cluster.pool_of(service)
        is_new = not set(addresses) <= set(service.annotated)
        keys = self._cluster.keys
        interface = keys.interface_of(service.namespace, service.pool) if is_new else None
        former = keys.interfaces if is_new and service.note else ()
        change = partial(build_assigned, addresses=addresses, interface=interface, former=former)
        try:
            again = await self._write(service, change, is_followed=is_followed)
        except ApiError as error:
            if not isinstance(error, UnavailableError) or error.is_unsent:
                self._take_back(service, before)
            raise
        if again is not None:
            self._take_back(service, before)
        elif is_new:
            addresses_of_pool = pool.addresses if pool is not None and not pool.problem else ()
            is_from_pool = any(each in addresses_of_pool for each in addresses)
            source = f" from key {pool.key}" if pool is not None and is_from_pool else ""
            text = f"Assigned {', '.join(map(format_address, addresses))}{source}."
            self._reporter.report_assigned(service, text)
        return again

    def _take_back(self, service: Service, before: UnderWay) -> None:
        """Take back that a write is under way, as nothing was sent: what was before that may be so still."""
        known = self.services.store.by_uid(service.uid)
        if known is not None and self._cluster.find_writes(service).version:
            self._add_uids(self._cluster.put_writes(known, before))

    async def _write(
        self, service: Service, change: Rewrite, *, is_followed: bool = False
    ) -> RetryAfter | None:
        """Change a Service at the version that was decided on.

        Return when to try again if nothing was written. Raises: ApiError, after which a write can be under way.
        `is_followed`: the change follows the user's word.
        """
        rewrites = self._remember(service).rewrites
        if not is_followed and rewrites.left_seconds(loop_time()):
            return RetryAfter(rewrites.left_seconds(loop_time()))
        live = await self.services.get(self._client, service)
        if live is None:
            return None
        if live["metadata"]["resourceVersion"] != service.version:
            return SOON
        body, lease = change(live), ""
        if not service.is_deleting:
            lease = self._cluster.find_lease(parse_service(body))
            put_lease(body, lease)
        fields = list_changed(live, body)
        rewritten = frozenset[str]() if is_followed else rewrites.find(service, fields)
        pause_seconds = rewrites.pause_seconds(rewritten, loop_time()) if rewritten else 0.0
        if pause_seconds:
            if rewrites.pauses == 1:
                self._reporter.report_other_writer(service, find_manager(live), rewritten)
            return RetryAfter(pause_seconds)
        if not await self._check_leads():
            raise UnavailableError(f"replace {SERVICES.kind}", reason=NOT_LEADING, is_unsent=True)
        try:
            await self.services.replace(self._client, body)
        except (ConflictError, NotFoundError):
            return SOON
        except ApiError as error:
            if error.is_refusal:
                await self._report_refusal(service, error)
            raise
        self._reporter.report_written(service)
        rewrites.note(fields, rewritten, loop_time())
        if not lease:
            rewrites.forget(LEASE_FIELD)
        logger.info("Wrote Service", extra={"service": "/".join(service.key)})
        return None

    async def _report_refusal(self, service: Service, error: ApiError) -> None:
        """Report that a Service cannot be written: by a Warning, and by the condition if it waits for an address."""
        if not service.is_load_balancer or service.is_ignored or service.is_deleting:
            self._reporter.report_unwritable(service, error.explain())
            return
        self._refused.add(service.key)
        refusal = Refusal(reason=WRITE_REFUSED, message=error.explain())
        finding = refusal.to_finding(has_address=bool(service.annotation))
        if service.finding != finding:
            ASSIGNMENTS.labels(WRITE_REFUSED).inc()
        with suppress(ApiError):  # the Warning remains
            await self._reporter.show(self._client, service, finding)

    # What changes

    def _service_changed(self, change: Change[Service]) -> None:
        """Take in what became of a Service."""
        if not self._is_working:
            return
        old, new = change.old, change.new
        if old is not None and (new is None or new.uid != old.uid):
            self._memory.pop(old.uid, None)
            self._reporter.forget(old)
            self._add_uids(self._cluster.remove(old))
            if is_assigned(old) and self._cluster.keys.sticky_seconds:
                self._sticky.remember(old, self._client.server_now())
        elif old is not None and new is not None and _has_other_kind(old, new):
            self._remember(new).rewrites = Rewrites()
        if new is not None:
            self._add_uids(self._cluster.enter(new))
        self._add([change.latest])
        if old is not None and (new is None or _leaves_room(old, new)):
            self._add_names(self._waiting)

    def _keys_changed(self, found: JsonView | None) -> None:
        data = as_mapping(found.get("data")) if found is not None else {}
        keys = PoolKeys({key: str(value) for key, value in data.items()}, read_applied(found))
        problems, spelling_warnings = keys.problems(), keys.spelling_warnings()
        for texts, reason in ((problems, "KeyInvalid"), (spelling_warnings, "KeyUnusual")):
            for key, text in texts.items():
                if found is not None and self._key_texts.get(key) != text:
                    logger.warning("Key is invalid or unusual", extra={"key": key, "problem": text})
                    about = reference_to(CONFIG_MAPS, read_metadata(found))
                    self._events.record(about, EventType.WARNING, reason, text)
        self._key_texts = {**spelling_warnings, **problems}
        self._cluster.keys = keys
        if self._is_working:
            self._enter_all()

    def _enter_all(self) -> None:
        """Have Services that wait served at once; one that has an address keeps it."""
        for service in self.services.store.all():
            self._add_uids(self._cluster.enter(service))
        self._add(self.services.store.all())

    async def _follow_machines(self) -> None:
        while True:
            await asyncio.sleep(MACHINES_SECONDS)
            try:
                await self._read_machines()
            except ApiError as error:
                logger.warning("Could not list nodes", extra={"error": str(error)})

    async def _read_machines(self) -> None:
        self._add_uids(self._cluster.enter_machines(await self._machines.read(self._client)))
        self._add_names(self._waiting)

    def _remember(self, service: Service) -> _Memory:
        return self._memory.setdefault(service.uid, _Memory())

    def _add_uids(self, uids: Iterable[str]) -> None:
        self._add(filter(None, map(self.services.store.by_uid, uids)))

    def _add_names(self, names: Iterable[Name]) -> None:
        self._add(filter(None, (self.services.store.get(*name) for name in names)))

    def _add(self, services: Iterable[Service]) -> None:
        """Have Services reconciled, the oldest first."""
        for service in sorted(services, key=lambda each: (each.created, each.key)):
            self._queue.add(service.key)

    # What the metrics show

    def snapshot(self) -> ServiceSnapshot | None:
        """Return what the metrics show; None while this replica does not work."""
        now = loop_time()
        if not self._is_working:
            return None
        return ServiceSnapshot(
            leading=True,
            pools=tuple(self._cluster.sample_pools()),
            waiting=len({name for name, why in self._waiting.items() if why.waits} | self._refused),
            paused=sum(each.rewrites.left_seconds(now) > 0 for each in self._memory.values()),
            bad_keys=len(self._cluster.keys.problems()),
        )


async def _repeat(step: Callable[[], Awaitable[None]]) -> None:
    """Do a step until the API server answers it."""
    while True:
        try:
            return await step()
        except ApiError as error:
            logger.warning("Could not begin to lead, retrying", extra={"error": str(error)})
            await asyncio.sleep(BEGIN_RETRY_SECONDS)


def _has_other_kind(old: Service, new: Service) -> bool:
    """Return whether the owner of a Service changed its type, its class or whether it is ignored.

    A write that follows answers the owner: it does not count as a rewrite of what another program wrote.
    """
    one, other = ((each.is_load_balancer, each.is_ignored, each.class_name) for each in (old, new))
    return one != other


def _leaves_room(old: Service, new: Service) -> bool:
    """Return whether a Service that waits may find an address now that another one changed."""
    has_other_terms = (old.pool, old.group) != (new.pool, new.group)
    return bool(old.used - new.used or old.ports - new.ports) or has_other_terms


def _refuse_invalid(service: Service) -> Refusal:
    text = clean(service.request, 64)
    message = f'spec.loadBalancerIP must be an IP address: it is "{text}". Correct the Service.'
    return Refusal(reason="InvalidAddress", message=message)
