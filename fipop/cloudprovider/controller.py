"""Brings each Service of type LoadBalancer to its addresses, from the ConfigMap `kubevip`.

Why no address is assigned twice. Only the leader assigns. It chooses from all that Services carry and from its own
writes under way (`_pending`), then reads its Leases, and writes the Service tested on the version that it chose for. A
write without an answer stays under way until the Service has another version: by then it was done, or fails.

A former leader may have such a write under way, too, however long it was frozen. So a new leader lists all Services
live, and stamps each that lacks something (`fence`). It assigns from a pool when every Service of that pool is stamped:
a write of a former leader comes before the stamp, and is seen; or after it, and fails on the version. Only if the API
server answers for a minute that it refuses the stamp is the Service no longer waited for: it would refuse the other
write, too. No clock is trusted, nothing can fill up, age or be deleted.

A Service that is created later is none of a former leader's: it would choose, read the Leases, and find another holder.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from random import Random
from typing import Any, TypeAlias

from fipop.api.conditions import format_time
from fipop.boundary import loop_time
from fipop.cloudprovider.allocate import (
    DHCP_ADDRESSES,
    Refusal,
    Request,
    Usage,
    User,
    allocate,
    list_families,
    name_users,
)
from fipop.cloudprovider.pools import Pool, PoolKeys
from fipop.cloudprovider.service import (
    ADDRESSES,
    MOST_ADDRESSES,
    Need,
    Service,
    build_assigned,
    build_cleared,
    build_copied,
    build_released,
    build_stamped,
    build_taken_over,
    build_told,
    find_asked,
    find_manager,
    find_need,
    list_changed,
    parse_addresses,
    refer_to,
)
from fipop.cloudprovider.services import Machines, ServiceCache
from fipop.errors import ApiError, ConflictError, NotFoundError, UnavailableError
from fipop.ipam.addresses import Address, Family, FamilyPolicy, format_address
from fipop.ipam.intervals import AddressSet
from fipop.jsons import JsonView
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType
from fipop.kube.resources import SERVICES
from fipop.metrics.services import PoolSample, ServiceMetrics, ServiceSnapshot
from fipop.runtime.store import Change, Name
from fipop.runtime.workqueue import RetryAfter, WorkQueue
from fipop.texts import clean

logger = logging.getLogger(__name__)

SOON = RetryAfter(0.05)
"""Until the watch has shown what a read showed already."""
REFUSED_SECONDS, STAMP_RETRY_SECONDS = 60.0, 1.0
"""For how long a new leader repeats a stamp that the API server refuses, and how often."""
MACHINES_SECONDS = 300.0
"""Between two lists of nodes."""
REWRITES_AT_ONCE, REWRITES_SECONDS = 2, 600.0
"""How often a field is written again within that time without a pause."""
MOST_REWRITES = 16
"""How many are remembered."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 600.0

NOT_LEADING = "NotLeading"

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
    """The message of the last Warning, by reason."""
    written: set[str] = field(default_factory=set)
    """The fields that fipop wrote."""
    rewrites: list[tuple[float, frozenset[str]]] = field(default_factory=list)
    """When which fields were written again."""
    pauses: int = 0
    due_at: float | None = None
    """The end of the present pause."""

    @property
    def pause_seconds(self) -> float:
        """The length of the last pause; 0 before the first one."""
        if not self.pauses:
            return 0.0
        return min(FIRST_PAUSE_SECONDS * 2.0 ** min(self.pauses - 1, 10), LONGEST_PAUSE_SECONDS)


class ServiceController:
    """Works for the one term of a leader; `identity` is that of its process.

    `check_leads` reads the Leases live, and returns whether this process holds them. `on_no_pool` is called if a
    Service has no pool, and returns whether that may have changed.
    """

    def __init__(  # noqa: PLR0913 - what one leader works with
        self,
        *,
        client: KubeClient,
        services: ServiceCache,
        events: EventRecorder,
        metrics: ServiceMetrics,
        random: Random,
        classes: frozenset[str],
        identity: str,
        check_leads: Callable[[], Awaitable[bool]],
        on_no_pool: Callable[[], Awaitable[bool]],
    ) -> None:
        self._client = client
        self._services = services
        self._events = events
        self._metrics = metrics
        self._classes = classes
        self._identity = identity
        self._check_leads = check_leads
        self._on_no_pool = on_no_pool
        self._machines = Machines(client)
        self._keys = PoolKeys({})
        self._usage = Usage()
        self._machine_uids: frozenset[str] = frozenset()
        self._pending: dict[str, tuple[str, frozenset[Address]]] = {}
        """Writes under way: by uid, the version that they are tested on, and their addresses."""
        self._memory: dict[str, _Memory] = {}
        self._waiting: dict[Name, str] = {}
        """Why Services wait."""
        self._fence: Counter[AddressSet] = Counter()
        """How many Services of a pool have no stamp yet."""
        self._behind_fence: set[Name] = set()
        """The Services that wait for that."""
        self._queue: WorkQueue[Name] = WorkQueue(name="services", random=random)

    async def run(self, *, concurrency: int) -> None:
        """Work until cancelled."""
        await self._services.wait_loaded()
        self._services.listeners.append(self._service_changed)
        try:
            await _repeat(partial(self._services.load, self._client))
            await _repeat(self._read_machines)
            # Those of now: they can have changed since the lists were asked for.
            self.take_keys(self._keys)
            due = self._raise_fence()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._lower_fence(due, concurrency=concurrency))
                group.create_task(self._queue.run(self.reconcile, concurrency=concurrency))
                group.create_task(self._follow_machines())
        finally:
            self._services.listeners.remove(self._service_changed)

    def take_keys(self, keys: PoolKeys) -> None:
        """Take in the ConfigMap: a Service that waits is served at once, one that has an address keeps it."""
        self._keys = keys
        for service in self._services.store.all():
            self._enter(service)
        self._add(self._services.store.all())

    async def _follow_machines(self) -> None:
        while True:
            await asyncio.sleep(MACHINES_SECONDS)
            try:
                await self._read_machines()
            except ApiError as error:
                logger.warning("Could not list nodes", extra={"error": str(error)})

    async def _read_machines(self) -> None:
        found = await self._machines.list()
        for uid in self._machine_uids - found.keys():
            self._look_again(self._usage.enter(User(uid=uid, name=uid), ()))
        for user, addresses in found.values():
            self._look_again(self._usage.enter(user, addresses))
        self._machine_uids = frozenset(found)
        self._retry_waiting()

    def _service_changed(self, change: Change[Service]) -> None:
        """Take in what became of a Service."""
        old, new = change.old, change.new
        if old is not None and (new is None or new.uid != old.uid):
            self._pending.pop(old.uid, None)
            self._memory.pop(old.uid, None)
            self._look_again(self._usage.enter(self._build_user(old), ()))
        if new is not None:
            self._enter(new)
        self._add([change.latest])
        if old is not None and (new is None or old.used - new.used or old.ports - new.ports):
            self._retry_waiting()

    # The fence

    def _raise_fence(self) -> list[tuple[Service, AddressSet]]:
        """Return every Service into which a former leader may still write an address, with its pool."""
        due = []
        for service in self._services.store.all():
            if self._is_open(service):
                pool = self._keys.pool_of(service.namespace)
                due.append((service, pool.addresses if pool is not None else AddressSet()))
        self._fence.update(pool for _, pool in due)
        return due

    async def _lower_fence(self, due: list[tuple[Service, AddressSet]], *, concurrency: int) -> None:
        """Stamp these Services, as many at a time as are written otherwise."""
        slots = asyncio.Semaphore(concurrency)
        async with asyncio.TaskGroup() as group:
            for service, pool in due:
                group.create_task(self._stamp_until_done(service, pool, slots))

    async def _stamp_until_done(self, service: Service, pool: AddressSet, slots: asyncio.Semaphore) -> None:
        refused_since: float | None = None
        while True:
            try:
                async with slots:
                    if await self._stamp(service):
                        break
                continue
            except ApiError as error:
                if not _is_refusal(error):
                    refused_since = None
                elif refused_since is None:
                    refused_since = loop_time()
                elif loop_time() - refused_since >= REFUSED_SECONDS:
                    text = "The API server refuses writes of this Service. Allow fipop to update its status."
                    self._warn(service, "SyncLoadBalancerFailed", text)
                    break
                fields = {"service": "/".join(service.key), "error": str(error)}
                logger.info("Could not stamp Service, retrying", extra=fields)
            await asyncio.sleep(STAMP_RETRY_SECONDS)
        self._fence[pool] -= 1
        if not self._fence[pool]:
            del self._fence[pool]
            behind, self._behind_fence = self._behind_fence, set()
            self._add(filter(None, (self._services.store.get(*name) for name in behind)))

    async def _stamp(self, service: Service) -> bool:
        """Change the version of a Service; return True if a write that was sent earlier can only fail now."""
        live = await self._services.get(self._client, *service.key, service.uid)
        known = self._services.store.by_uid(service.uid)
        if live is None or known is None or not self._is_open(known):
            return True
        try:
            body = build_stamped(live, self._identity)
            await self._services.replace(self._client, body, subresource="status")
        except ConflictError:
            return False
        except NotFoundError:
            return True
        return True

    def _is_open(self, service: Service) -> bool:
        """Return whether a Service lacks an address that its pool could assign, or asks for another one."""
        if find_need(service, self._classes) is not Need.ASSIGN or service.leader == self._identity:
            return False
        request, pool = self._build_request(service), self._keys.pool_of(service.namespace)
        if request.asked is not None or not request.kept:
            return True
        served = set(Family if pool is None or pool.problem or pool.dhcp else pool.families)
        lacking = served.intersection(list_families(request, pool)) - {each.family for each in request.kept}
        return bool(lacking) and not any(each in DHCP_ADDRESSES for each in request.kept)

    def _is_behind_fence(self, service: Service, pool: Pool | None) -> bool:
        """Return whether a Service of this pool, or of one that overlaps it, has no stamp yet."""
        if pool is None or not any(each & pool.addresses for each in self._fence):
            return False
        self._behind_fence.add(service.key)
        return True

    # What a Service needs

    async def reconcile(self, name: Name) -> RetryAfter | None:
        """Do what a Service needs."""
        service = self._services.store.get(*name)
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
        if pool is None and not request.kept and request.asked is None and await self._on_no_pool():
            return SOON
        is_invalid = service.is_as_noted and service.request and service.requested is None
        answer = _refuse_invalid(service) if is_invalid else allocate(request, pool, self._usage)
        if isinstance(answer, Refusal):
            return await self._refuse(service, answer)
        is_from_pool = not {*request.kept, request.asked} >= set(answer)
        if is_from_pool and self._is_behind_fence(service, pool):
            return None
        self._waiting.pop(service.key, None)
        is_done = answer == service.annotated and service.requested == answer[0] and service.has_finalizer
        if not is_done:
            again = await self._write_addresses(service, answer, is_followed=request.asked is not None)
            if again is None:
                self._metrics.count_assignment("assigned")
            if again is None and memory.waiting_since is not None:
                self._metrics.observe_assignment(loop_time() - memory.waiting_since)
                memory.waiting_since = None
            return again
        text = f"Assigned {', '.join(map(format_address, answer))}."
        return await self._tell(service, ("True", "Assigned", text)) if service.told else None

    async def _copy(self, service: Service) -> RetryAfter | None:
        """Copy `spec.loadBalancerIP` to the annotation; if it changed, only if no other Service has the address."""
        is_same = service.has_request_first or service.request == service.annotation
        is_changed = bool(service.annotation) and not is_same
        if is_changed and service.requested is None:
            return await self._refuse(service, _refuse_invalid(service))
        if is_changed:
            request = Request(user=self._build_user(service), asked=service.requested)
            answer = allocate(request, None, self._usage)
            if isinstance(answer, Refusal):
                return await self._refuse(service, answer)
        self._waiting.pop(service.key, None)
        return await self._write(service, build_copied, is_followed=is_changed)

    async def _refuse(self, service: Service, refusal: Refusal) -> RetryAfter | None:
        """Have a Service wait, and say why."""
        if self._waiting.get(service.key) != refusal.message:
            self._metrics.count_assignment(refusal.reason)
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
        memory = self._remember(service)
        if not is_followed and memory.due_at is not None and loop_time() < memory.due_at:
            return RetryAfter(memory.due_at - loop_time())
        live = await self._services.get(self._client, *service.key, service.uid)
        if live is None:
            return None
        if live["metadata"]["resourceVersion"] != service.version:
            return SOON
        body = change(live)
        fields = list_changed(live, body)
        rewritten = frozenset() if is_followed else _find_rewritten(service, memory, fields)
        if rewritten and self._must_pause(service, memory, live, rewritten):
            return RetryAfter((memory.due_at or 0.0) - loop_time())
        if not await self._check_leads():
            raise UnavailableError(f"replace {SERVICES.kind}", reason=NOT_LEADING, is_unsent=True)
        try:
            await self._services.replace(self._client, body)
        except (ConflictError, NotFoundError):
            return SOON
        memory.written |= fields
        if rewritten:
            memory.rewrites = [*memory.rewrites, (loop_time(), rewritten)][-MOST_REWRITES:]
            memory.due_at = None
        logger.info("Wrote Service", extra={"service": "/".join(service.key)})
        return None

    def _must_pause(self, service: Service, memory: _Memory, live: JsonView, fields: frozenset[str]) -> bool:
        """Return True if another controller keeps changing these fields and the pause before the next write runs."""
        now = loop_time()
        if memory.due_at is not None:
            return now < memory.due_at
        last = memory.rewrites[-1][0] if memory.rewrites else now
        if now - last > REWRITES_SECONDS + memory.pause_seconds:
            memory.pauses = 0
            memory.rewrites.clear()
        recent = [each for at, each in memory.rewrites if now - at < REWRITES_SECONDS]
        most = max((sum(name in each for each in recent) for name in fields), default=0)
        if not memory.pauses and most < REWRITES_AT_ONCE:
            return False
        memory.pauses += 1
        memory.due_at = now + memory.pause_seconds
        if memory.pauses == 1:
            manager = find_manager(live)
            who = f"Field manager {clean(manager, 63)}" if manager else "An unknown writer"
            text = (
                f"{who} changes {', '.join(sorted(fields))} of the Service again and again. fipop waits 10 s before "
                "it writes that again, and twice as long each time. Stop the other writer."
            )
            self._warn(service, "AnotherController", text)
        return True

    async def _tell(self, service: Service, told: Told | None) -> RetryAfter | None:
        """Write the condition if it says something new, and a Warning if the Service waits."""
        if service.told == told:
            return None
        live = await self._services.get(self._client, *service.key, service.uid)
        if live is None:
            return None
        try:
            body = build_told(live, told, format_time(self._client.server_now()))
            await self._services.replace(self._client, body, subresource="status")
        except (ConflictError, NotFoundError):
            return SOON
        if told is not None and told[1] != "Assigned":
            _, reason, message = told
            event = reason if reason in ("AddressInUse", "InvalidAddress") else "SyncLoadBalancerFailed"
            self._events.record(refer_to(service), EventType.WARNING, event, message)
            fields = {"service": "/".join(service.key), "reason": reason, "why": message}
            logger.warning("Service waits for an address", extra=fields)
        return None

    # What is warned of

    def _check(self, service: Service) -> None:
        """Warn once of what is wrong with the addresses that a Service has."""
        is_served = service.is_load_balancer and service.class_name in self._classes
        if not is_served or service.is_deleting or service.is_ignored:
            return
        user = self._build_user(service)
        own = service.annotated or tuple(filter(None, [service.requested]))
        found: dict[str, list[str]] = {"AddressInUse": [], "AddressOutsidePools": [], "InvalidAddress": []}
        has_pools = bool(self._keys.pools)
        for address in own:
            others = self._usage.find_conflicting(address, user)
            text = format_address(address)
            if others:
                found["AddressInUse"].append(
                    f"Address {text} is also in use by {name_users(others)}. Change one."
                )
            if has_pools and address not in DHCP_ADDRESSES and not self._keys.has_address(address):
                found["AddressOutsidePools"].append(
                    f"Address {text} is in no pool of the ConfigMap. fipop leaves it as it is."
                )
        if not service.is_assigned:
            found |= _find_unusual(service)
        for reason, texts in found.items():
            self._warn(service, reason, " ".join(texts))

    def _warn(self, service: Service, reason: str, text: str) -> None:
        """Record a Warning if it says something new."""
        memory = self._memory.get(service.uid) if not text else self._remember(service)
        if memory is None:
            return
        if text and text != memory.warned.get(reason):
            logger.warning(
                "Service has a problem",
                extra={"service": "/".join(service.key), "reason": reason, "why": text},
            )
            self._events.record(refer_to(service), EventType.WARNING, reason, text)
        memory.warned[reason] = text

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

    def _retry_waiting(self) -> None:
        self._add(filter(None, (self._services.store.get(*name) for name in self._waiting)))

    def _add(self, services: Iterable[Service]) -> None:
        """Have Services reconciled, the oldest first."""
        for service in sorted(services, key=lambda each: (each.created, each.key)):
            self._queue.add(service.key)

    def snapshot(self) -> ServiceSnapshot:
        """Return what the metrics show."""
        now = loop_time()
        return ServiceSnapshot(
            leading=True,
            pools=tuple(self._sample_pools()),
            waiting=len(self._waiting),
            paused=sum(each.due_at is not None and each.due_at > now for each in self._memory.values()),
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
            await asyncio.sleep(STAMP_RETRY_SECONDS)


def _is_refusal(error: ApiError) -> bool:
    """Return whether the API server answered that it does not do this, whatever it does for others."""
    passing = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
    is_answer = HTTPStatus.BAD_REQUEST <= error.status <= HTTPStatus.INTERNAL_SERVER_ERROR
    return is_answer and error.status not in passing


def _find_rewritten(service: Service, memory: _Memory, fields: frozenset[str]) -> frozenset[str]:
    """Return which of the fields that are due to be written fipop wrote before."""
    if service.note and f"annotation {ADDRESSES}" in fields and not service.annotation:
        return fields
    return fields & memory.written


def _find_unusual(service: Service) -> dict[str, list[str]]:
    """Return the Warnings for addresses that a user wrote: what is no address, and a family that is missing."""
    found: dict[str, list[str]] = {}
    text = service.annotation or service.request
    parts = [each.strip() for each in text.split(",")[:MOST_ADDRESSES]] if text else []
    odd = [clean(each, 64) for each in parts if not parse_addresses([each])]
    if odd:
        found["InvalidAddress"] = [f'"{each}" is not an IP address. Correct the Service.' for each in odd]
    has = {each.family for each in service.annotated}
    lacking = [each.label for each in service.families if each not in has]
    if service.policy is FamilyPolicy.REQUIRE_DUAL_STACK and has and lacking:
        message = f"The Service requires {lacking[0]}, too. Add an address to annotation {ADDRESSES}."
        found["FamilyMissing"] = [message]
    return found


def _refuse_invalid(service: Service) -> Refusal:
    text = clean(service.request, 64)
    message = f'spec.loadBalancerIP must be an IP address: it is "{text}". Correct the Service.'
    return Refusal(reason="InvalidAddress", message=message)
