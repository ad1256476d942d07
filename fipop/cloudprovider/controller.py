"""Brings each Service of type LoadBalancer to its addresses, from the ConfigMap `kubevip`.

Why no address is assigned twice. Only the leader assigns. It chooses from all that Services carry and from its own
writes under way (`_pending`), then reads its Leases, and writes the Service tested on the version that it chose for. A
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
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeAlias

from fipop.api.codec import format_time
from fipop.api.objects import read_metadata
from fipop.cloudprovider.allocate import (
    DHCP_ADDRESSES,
    Refusal,
    Request,
    Usage,
    User,
    allocate,
    refuse_asked,
)
from fipop.cloudprovider.config_map import ConfigMap, ConfigMapFollower
from fipop.cloudprovider.fence import Fence
from fipop.cloudprovider.metrics import ASSIGNMENT_SECONDS, ASSIGNMENTS, PoolSample, ServiceSnapshot
from fipop.cloudprovider.options import KubevipOptions, ProviderOptions
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.problems import find_problems
from fipop.cloudprovider.rewrites import Rewrites
from fipop.cloudprovider.service import (
    Need,
    Service,
    build_assigned,
    build_cleared,
    build_copied,
    build_released,
    build_taken_over,
    build_told,
    find_asked,
    find_manager,
    find_need,
    list_changed,
    refer_to,
)
from fipop.cloudprovider.services import Machines, ServiceCache
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

SOON = RetryAfter(0.05)
"""Until the watch has shown what a read showed already."""
MACHINES_SECONDS = 300.0
"""Between two lists of nodes."""
BEGIN_RETRY_SECONDS = 1.0
NOT_LEADING = "NotLeading"
_WAITS = "waits"
"""The Warning of a Service that waits, in what is remembered of it."""

Told: TypeAlias = tuple[str, str, str]
"""Status, reason and message of a condition."""
Rewrite: TypeAlias = Callable[[JsonView], dict[str, Any]]
"""Returns a Service as it should be."""


@dataclass(slots=True)
class _Memory:
    """What is remembered of a Service while it exists, by its uid."""

    waiting_since: float | None = None
    """When it was first seen without an address."""
    warned: dict[str, str] = field(default_factory=dict)
    """The message of the last Warning, by reason; why the Service waits, by _WAITS."""
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
        services: ServiceCache,
        events: EventRecorder,
        *,
        random: Random,
    ) -> None:
        self._classes = mode.classes
        self._identity = options.identity
        self._writes_at_once = options.writes_at_once
        self._check_leads = check_leads
        self._client = client
        self._services = services
        self._events = events
        self._config_map = ConfigMapFollower(
            client=client,
            namespace=mode.namespace,
            name=mode.config_map,
            take=self._keys_changed,
            random=random,
        )
        self._keys = PoolKeys({})
        self._sticky = StickyAddresses(namespace=mode.namespace, events=events)
        self._said: Mapping[str, str] = {}
        """What was said last about a key."""
        self._is_working = False
        self._machine_uids: frozenset[str] = frozenset()
        self._usage = Usage()
        self._pending: dict[str, tuple[str, frozenset[Address]]] = {}
        """Writes under way: by uid, the version that they are tested on, and their addresses."""
        self._memory: dict[str, _Memory] = {}
        self._waiting: dict[Name, str] = {}
        """Why Services wait."""
        self._refused: set[Name] = set()
        """The Services that wait since the API server refuses to have them written; the queue retries them."""
        self._fence = Fence(
            services,
            identity=options.identity,
            is_open=self._is_open,
            refused=self._warn_of_refused_stamp,
            lowered=self._add_names,
        )
        self._queue: WorkQueue[Name] = WorkQueue(name="services", random=random)

    async def load(self) -> None:
        """Read the ConfigMap. Raises: ApiError."""
        await self._config_map.load()

    def follow(self) -> Coroutine[Any, Any, None]:
        """Keep up with the ConfigMap, for ever."""
        return self._config_map.follow()

    async def work(self, client: KubeClient) -> None:
        """Serve Services until cancelled; `client` writes only while this replica leads."""
        self._client, machines = client, Machines(client)
        await self._services.loaded.wait()
        self._services.listeners.append(self._service_changed)
        try:
            await _repeat(partial(self._services.load, client))
            await _repeat(partial(self._read_machines, machines))
            if self._keys.sticky_seconds:
                await _repeat(partial(self._sticky.load, client))
            # Those of now: they can have changed since the lists were asked for.
            self._is_working = True
            self._take_keys()
            self._fence.build(self._keys.pool_of)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fence.lower(client, concurrency=self._writes_at_once))
                group.create_task(self._queue.run(self.reconcile, concurrency=self._writes_at_once))
                group.create_task(self._follow_machines(machines))
                group.create_task(self._sticky.follow(client))
        finally:
            self._is_working = False
            self._services.listeners.remove(self._service_changed)

    def _keys_changed(self, found: ConfigMap | None) -> None:
        data = as_mapping(found.get("data")) if found is not None else {}
        applied = read_applied(found)
        self._keys = PoolKeys({key: str(value) for key, value in data.items()}, applied)
        problems, oddities = self._keys.problems(), self._keys.oddities()
        for said, reason in ((problems, "KeyInvalid"), (oddities, "KeyUnusual")):
            for key, text in said.items():
                if found is not None and self._said.get(key) != text:
                    logger.warning("Key is invalid or unusual", extra={"key": key, "problem": text})
                    about = reference_to(CONFIG_MAPS, read_metadata(found))
                    self._events.record(about, EventType.WARNING, reason, text)
        self._said = {**oddities, **problems}
        if self._is_working:
            self._take_keys()

    def _take_keys(self) -> None:
        """Have Services that wait served at once; one that has an address keeps it."""
        for service in self._services.store.all():
            self._enter(service)
        self._add(self._services.store.all())

    async def _follow_machines(self, machines: Machines) -> None:
        while True:
            await asyncio.sleep(MACHINES_SECONDS)
            try:
                await self._read_machines(machines)
            except ApiError as error:
                logger.warning("Could not list nodes", extra={"error": str(error)})

    async def _read_machines(self, machines: Machines) -> None:
        found = await machines.list()
        for uid in self._machine_uids - found.keys():
            self._look_again(self._usage.enter(User(uid=uid, name=uid), ()))
        for user, addresses in found.values():
            self._look_again(self._usage.enter(user, addresses))
        self._machine_uids = frozenset(found)
        self._add_names(self._waiting)

    def _service_changed(self, change: Change[Service]) -> None:
        """Take in what became of a Service."""
        old, new = change.old, change.new
        if old is not None and (new is None or new.uid != old.uid):
            self._pending.pop(old.uid, None)
            self._memory.pop(old.uid, None)
            self._look_again(self._usage.enter(self._build_user(old), ()))
            if old.is_assigned and self._keys.sticky_seconds:
                self._sticky.remember(old, self._client.server_now())
        if new is not None:
            self._enter(new)
        self._add([change.latest])
        if old is not None and (new is None or old.used - new.used or old.ports - new.ports):
            self._add_names(self._waiting)

    def _is_open(self, service: Service) -> bool:
        """Return whether a Service lacks an address that its pool could assign, or asks for another one."""
        if find_need(service, self._classes) is not Need.ASSIGN or service.leader == self._identity:
            return False
        request, pool = self._build_request(service), self._keys.pool_of(service.namespace)
        if request.asked is not None or not request.kept:
            return True
        served = set(Family if pool is None or pool.problem or pool.dhcp else pool.families)
        lacking = served.intersection(request.needed) - {each.family for each in request.kept}
        return bool(lacking) and not any(each in DHCP_ADDRESSES for each in request.kept)

    def _warn_of_refused_stamp(self, service: Service) -> None:
        text = "The API server refuses writes of this Service. Allow fipop to update its status."
        self._warn(service, "SyncLoadBalancerFailed", text)

    # What a Service needs

    async def reconcile(self, name: Name) -> RetryAfter | None:
        """Do what a Service needs."""
        service = self._services.store.get(*name)
        self._refused.discard(name)
        need = find_need(service, self._classes) if service is not None else Need.NOTHING
        if need not in (Need.ASSIGN, Need.COPY):
            self._waiting.pop(name, None)
        if service is None:
            return None
        self._check(service)
        if need is Need.ASSIGN:
            return await self._assign(service)
        if need is Need.COPY:
            return await self._copy(service)
        if need is not Need.NOTHING:
            interface = self._keys.interface_of(service.namespace)
            changes: dict[Need, Rewrite] = {
                Need.TAKE_OVER: build_taken_over,
                Need.CLEAR: partial(build_cleared, interface=interface),
                Need.RELEASE: build_released,
            }
            return await self._write(service, changes[need], is_followed=service.is_deleting)
        return await self._tell(service, None) if service.told and not service.is_deleting else None

    async def _assign(self, service: Service) -> RetryAfter | None:
        memory = self._remember(service)
        if not service.annotation and memory.waiting_since is None:
            memory.waiting_since = loop_time()
        pool, request = self._keys.pool_of(service.namespace), self._build_request(service)
        if (
            pool is None
            and not request.kept
            and request.asked is None
            and await self._config_map.create_if_missing()
        ):
            return SOON
        is_invalid = service.is_as_noted and service.request and service.requested is None
        answer = _refuse_invalid(service) if is_invalid else allocate(request, pool, self._usage)
        if isinstance(answer, Refusal):
            return await self._refuse(service, answer)
        is_from_pool = not {*request.kept, request.asked} >= set(answer)
        if is_from_pool and self._fence.holds_back(service, pool):
            return None
        self._waiting.pop(service.key, None)
        is_done = answer == service.annotated and service.requested == answer[0] and service.has_finalizer
        if not is_done:
            again = await self._write_addresses(service, answer, is_followed=request.asked is not None)
            if again is None:
                ASSIGNMENTS.labels("assigned").inc()
            if again is None and memory.waiting_since is not None:
                ASSIGNMENT_SECONDS.observe(loop_time() - memory.waiting_since)
                memory.waiting_since = None
            return again
        text = f"Assigned {', '.join(map(format_address, answer))}."
        return await self._tell(service, ("True", "Assigned", text)) if service.told else None

    async def _copy(self, service: Service) -> RetryAfter | None:
        """Copy `spec.loadBalancerIP` to the annotation; if it changed, only if no other Service has the address."""
        is_same = service.has_request_first or service.request == service.annotation
        is_changed = bool(service.annotation) and not is_same
        if is_changed:
            refusal: Refusal | None = _refuse_invalid(service)
            if service.requested is not None:
                # Its user alone decides, also about the family.
                user = self._build_user(service)
                refusal = refuse_asked(service.requested, list(Family), user, self._usage)
            if refusal is not None:
                return await self._refuse(service, refusal)
        self._waiting.pop(service.key, None)
        return await self._write(service, build_copied, is_followed=is_changed)

    async def _refuse(self, service: Service, refusal: Refusal) -> RetryAfter | None:
        """Have a Service wait, and say why."""
        if self._waiting.get(service.key) != refusal.message:
            ASSIGNMENTS.labels(refusal.reason).inc()
        self._waiting[service.key] = refusal.message
        if service.is_as_noted and not service.is_marked and not service.request:
            # Its user took its own address off: it does not keep it until it gets another one.
            return await self._write(service, partial(build_cleared, interface=None)) or SOON
        status = "True" if service.annotation else "False"
        return await self._tell(service, (status, refusal.reason, refusal.message))

    def _build_request(self, service: Service) -> Request:
        asked = find_asked(service)
        _, under_way = self._pending.get(service.uid, ("", frozenset()))
        # One whose user took `spec.loadBalancerIP` off, from which the annotation was made, begins again.
        is_fresh = service.is_as_noted and not service.is_marked
        kept = () if is_fresh else service.annotated
        former = () if is_fresh else (*service.noted, *service.announced)
        if not service.annotation and self._keys.sticky_seconds:
            now = self._client.server_now()
            former += self._sticky.find(service, now, self._keys.sticky_seconds)
        return Request(
            user=self._build_user(service),
            policy=service.policy,
            families=service.families,
            kept=tuple(each for each in kept if asked is None or each.family is not asked.family),
            preferred=(*sorted(under_way), *former),
            asked=asked,
        )

    # What is written

    async def _write_addresses(
        self, service: Service, addresses: tuple[Address, ...], *, is_followed: bool
    ) -> RetryAfter | None:
        """Write addresses into a Service. From the choice on, without a pause, they are in use."""
        version, under_way = self._pending.get(service.uid, ("", frozenset[Address]()))
        self._pending[service.uid] = service.version, under_way.union(addresses)
        self._enter(service)
        is_new = not set(addresses) <= set(service.annotated)
        interface = self._keys.interface_of(service.namespace) if is_new else None
        change = partial(build_assigned, addresses=addresses, interface=interface)
        try:
            again = await self._write(service, change, is_followed=is_followed)
        except ApiError as error:
            if not isinstance(error, UnavailableError) or error.is_unsent:
                self._set_pending(service, version, under_way)
            raise
        if again is not None:
            self._set_pending(service, version, under_way)
        elif is_new:
            pool = self._keys.pool_of(service.namespace)
            text = f"Assigned {', '.join(map(format_address, addresses))}"
            if pool is not None and any(each in pool.addresses for each in addresses):
                text += f" from key {pool.key}"
            self._events.record(refer_to(service), EventType.NORMAL, "AddressAssigned", f"{text}.")
        return again

    def _set_pending(self, service: Service, version: str, addresses: frozenset[Address]) -> None:
        """Take back that addresses are under way, as nothing was sent: what was before that may be so still."""
        if service.uid in self._pending:
            self._pending[service.uid] = version, addresses
            known = self._services.store.by_uid(service.uid)
            if known is not None:
                self._enter(known)

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
        live = await self._services.get(self._client, *service.key, service.uid)
        if live is None:
            return None
        if live["metadata"]["resourceVersion"] != service.version:
            return SOON
        body = change(live)
        fields = list_changed(live, body)
        rewritten = frozenset[str]() if is_followed else rewrites.find(service, fields)
        pause_seconds = rewrites.pause_seconds(rewritten, loop_time()) if rewritten else 0.0
        if pause_seconds:
            if rewrites.pauses == 1:
                self._warn_of_another(service, find_manager(live), rewritten)
            return RetryAfter(pause_seconds)
        if not await self._check_leads():
            raise UnavailableError(f"replace {SERVICES.kind}", reason=NOT_LEADING, is_unsent=True)
        try:
            await self._services.replace(self._client, body)
        except (ConflictError, NotFoundError):
            return SOON
        except ApiError as error:
            if error.is_refusal:
                await self._report_refusal(service, error)
            raise
        self._remember(service).warned.pop(_WAITS, None)
        rewrites.note(fields, rewritten, loop_time())
        logger.info("Wrote Service", extra={"service": "/".join(service.key)})
        return None

    async def _report_refusal(self, service: Service, error: ApiError) -> None:
        """Report that a Service cannot be written: by a Warning, and by the condition if it waits for an address."""
        if not service.is_load_balancer or service.is_ignored or service.is_deleting:
            self._warn(service, "SyncLoadBalancerFailed", error.explain(), about=_WAITS)
            return
        self._refused.add(service.key)
        told = "True" if service.annotation else "False", WRITE_REFUSED, error.explain()
        if service.told != told:
            ASSIGNMENTS.labels(WRITE_REFUSED).inc()
        with suppress(ApiError):  # the Warning remains
            await self._tell(service, told)

    async def _tell(self, service: Service, told: Told | None) -> RetryAfter | None:
        """Write the condition if it says something new, and before it a Warning if the Service waits."""
        if service.told == told:
            return None
        if told is not None and told[1] != "Assigned":
            _, reason, message = told
            event = reason if reason in ("AddressInUse", "InvalidAddress") else "SyncLoadBalancerFailed"
            self._warn(service, event, message, about=_WAITS)
        else:
            self._remember(service).warned.pop(_WAITS, None)
        live = await self._services.get(self._client, *service.key, service.uid)
        if live is None:
            return None
        try:
            body = build_told(live, told, format_time(self._client.server_now()))
            await self._services.replace(self._client, body, subresource="status")
        except (ConflictError, NotFoundError):
            return SOON
        return None

    # What is warned of

    def _check(self, service: Service) -> None:
        """Warn once of what is wrong with the addresses that a Service has."""
        is_served = service.is_load_balancer and service.class_name in self._classes
        if is_served and not service.is_deleting and not service.is_ignored:
            problems = find_problems(service, self._build_user(service), self._usage, self._keys)
            for reason, text in problems.items():
                self._warn(service, reason, text)

    def _warn_of_another(self, service: Service, manager: str, fields: frozenset[str]) -> None:
        who = f"Field manager {clean(manager, 63)}" if manager else "An unknown writer"
        text = (
            f"{who} changes {', '.join(sorted(fields))} of the Service again and again. fipop waits 10 s before "
            "it writes that again, and twice as long each time. Stop the other writer."
        )
        self._warn(service, "AnotherController", text)

    def _warn(self, service: Service, reason: str, text: str, *, about: str = "") -> None:
        """Record a Warning if it says something new `about` this; about its reason if nothing is given."""
        memory = self._memory.get(service.uid) if not text else self._remember(service)
        if memory is None:
            return
        if text and text != memory.warned.get(about or reason):
            logger.warning(
                "Service has a problem",
                extra={"service": "/".join(service.key), "reason": reason, "why": text},
            )
            self._events.record(refer_to(service), EventType.WARNING, reason, text)
        memory.warned[about or reason] = text

    # What is known

    def _remember(self, service: Service) -> _Memory:
        return self._memory.setdefault(service.uid, _Memory())

    def _enter(self, service: Service) -> None:
        """Bring the usage up to date: what a Service carries, and what is under way for it."""
        version, under_way = self._pending.get(service.uid, ("", frozenset()))
        if version != service.version:
            self._pending.pop(service.uid, None)
            under_way = frozenset()
        self._look_again(
            self._usage.enter(self._build_user(service), service.used | under_way - {*DHCP_ADDRESSES})
        )

    def _build_user(self, service: Service) -> User:
        shares = self._keys.allows_sharing(service.namespace)
        name = f"Service {'/'.join(service.key)}"
        return User(uid=service.uid, name=name, ports=service.ports, shares=shares)

    def _look_again(self, uids: Iterable[str]) -> None:
        self._add(filter(None, map(self._services.store.by_uid, uids)))

    def _add_names(self, names: Iterable[Name]) -> None:
        self._add(filter(None, (self._services.store.get(*name) for name in names)))

    def _add(self, services: Iterable[Service]) -> None:
        """Have Services reconciled, the oldest first."""
        for service in sorted(services, key=lambda each: (each.created, each.key)):
            self._queue.add(service.key)

    def snapshot(self) -> ServiceSnapshot | None:
        """Return what the metrics show; None while this replica does not work."""
        now = loop_time()
        if not self._is_working:
            return None
        return ServiceSnapshot(
            leading=True,
            pools=tuple(self._sample_pools()),
            waiting=len(self._waiting.keys() | self._refused),
            paused=sum(each.rewrites.left_seconds(now) > 0 for each in self._memory.values()),
            bad_keys=len(self._keys.problems()),
        )

    def _sample_pools(self) -> Iterable[PoolSample]:
        taken = {family: sorted(v for f, v in self._usage.addresses() if f is family) for family in Family}
        for each in self._keys.pools:
            for family in each.families:
                addresses, values = each.addresses.of(family), taken[family]
                spans = ((one.first, one.last) for one in addresses.intervals)
                near = (values[bisect_left(values, low) : bisect_right(values, high)] for low, high in spans)
                used = len({value for some in near for value in some if value in addresses})
                yield PoolSample(key=each.key, family=family.label, total=addresses.count, used=used)


async def _repeat(step: Callable[[], Awaitable[None]]) -> None:
    """Do a step until the API server answers it."""
    while True:
        try:
            return await step()
        except ApiError as error:
            logger.warning("Could not begin to lead, retrying", extra={"error": str(error)})
            await asyncio.sleep(BEGIN_RETRY_SECONDS)


def _refuse_invalid(service: Service) -> Refusal:
    text = clean(service.request, 64)
    message = f'spec.loadBalancerIP must be an IP address: it is "{text}". Correct the Service.'
    return Refusal(reason="InvalidAddress", message=message)
