"""Gives Services their addresses: many that wait in one write of the ledger, then each Service by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fipop.cloudprovider.ledger import LEDGER_ANNOTATION, Entry, Ledger, LedgerFullError, LedgerStore
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.services import Service, State, assigned, classify, order_addresses, parse_service
from fipop.errors import ApiConflictError, ApiError, ApiNotFoundError, IpamError
from fipop.ipam.addresses import DHCP, Address, Family, format_address
from fipop.ipam.assignment import AddressPool, Request, Tenancy, Tenant
from fipop.ipam.intervals import AddressSet
from fipop.jsons import JsonView
from fipop.kube.resources import SERVICES, Resource

logger = logging.getLogger(__name__)

AT_ONCE = 16
"""So many Services are written at once."""

_CLAIMING = frozenset({State.NEW, State.MOVING, State.STRIPPED, State.CHOSEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A Service has its addresses; `is_written` is False where it had them already."""

    service: Service
    addresses: tuple[Address, ...]
    is_written: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A Service waits; `reason` is that of its condition."""

    service: Service
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The Service changed while it was served, or its write failed: it is looked at again."""

    service: Service


Answer = Granted | Refused | Changed


class Door(Protocol):
    """What is asked of the door to the API."""

    async def replace(self, resource: Resource, body: dict[str, Any]) -> JsonView:
        """Replace an object at the version of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    service: Service
    addresses: tuple[Address, ...]


@dataclass(slots=True, kw_only=True)
class AddressAssigner:
    """Serves Services of one class; `class_name` None: those without one.

    `keys` gives the ConfigMap's data as it is now, `services` all LoadBalancer Services that are known, of whatever
    class: what they carry is in use; `list_live` asks the API server for them.
    """

    client: Door
    ledger: LedgerStore
    keys: Callable[[], PoolKeys]
    services: Callable[[], Iterable[Service]]
    list_live: Callable[[], Awaitable[Sequence[JsonView]]]
    class_name: str | None = None

    async def assign(self, waiting: Sequence[JsonView]) -> list[Answer]:
        """Serve Services as they were read, the oldest first. ApiError, LedgerContendedError where nothing was done."""
        if not (await self.ledger.known()).is_open:
            await self._open_ledger()
            return [Changed(service=parse_service(obj)) for obj in waiting]
        ordered = sorted(waiting, key=lambda obj: (obj["metadata"].get("creationTimestamp") or "", _key(obj)))
        parsed = ((parse_service(obj), obj) for obj in ordered)
        read = {service.uid: (service, obj) for service, obj in parsed}
        chosen: list[_Choice] = []
        refused: list[Refused] = []

        def change(ledger: Ledger) -> Ledger:
            chosen.clear()
            refused.clear()
            tenancy = self._tenancy(ledger)
            for service, _ in read.values():
                answer = self._choose(service, ledger, tenancy)
                if isinstance(answer, Refused):
                    refused.append(answer)
                elif answer is not None:
                    chosen.append(answer)
            return self._enter(ledger, chosen, refused)

        ledger = await self.ledger.swap(change)
        slots = asyncio.Semaphore(AT_ONCE)

        async def write(choice: _Choice) -> Answer:
            async with slots:
                return await self._write(choice, read[choice.service.uid][1])

        written = await asyncio.gather(*(write(each) for each in chosen))
        logger.debug("services were served", extra={"ledger": ledger.version, "services": len(written)})
        return [*written, *refused]

    async def _open_ledger(self) -> None:
        """Write every Service that waits anew, then open the ledger: see there. ApiError where that cannot be done."""
        ledger = await self.ledger.read()
        for obj in await self.list_live():
            service, meta = parse_service(obj), obj["metadata"]
            is_stamped = (meta.get("annotations") or {}).get(LEDGER_ANNOTATION) == ledger.uid
            if is_stamped or not service.is_load_balancer or service.annotated:
                continue
            annotations = {**(meta.get("annotations") or {}), LEDGER_ANNOTATION: ledger.uid}
            try:
                await self.client.replace(SERVICES, {**obj, "metadata": {**meta, "annotations": annotations}})
            except (ApiConflictError, ApiNotFoundError):
                # It changed, and so a write that was decided on what it was fails anyway.
                continue
        await self.ledger.swap(lambda found: replace(found, is_open=found.is_open or found.uid == ledger.uid))

    def _tenancy(self, ledger: Ledger) -> Tenancy[str]:
        """Tell who has what: by the ledger, and by what all Services carry, whoever wrote it."""
        keys, tenancy = self.keys(), Tenancy[str]()
        for address, tenants in ledger.entries.items():
            for uid, entry in tenants.items():
                # Consent counts as configured now for who comes next.
                consents = keys.allows_sharing(entry.namespace)
                tenancy.enter(address, uid, Tenant(ports=entry.ports, consents=consents))
        for service in self.services():
            if service.is_load_balancer:
                tenant = Tenant(ports=service.ports, consents=keys.allows_sharing(service.namespace))
                for address in service.carried:
                    tenancy.enter(address, service.uid, tenant)
        return tenancy

    def _choose(self, service: Service, ledger: Ledger, tenancy: Tenancy[str]) -> _Choice | Refused | None:
        held = ledger.held_by(service.uid)
        was_chosen = any(entry.is_chosen for entry in held.values())
        state = classify(service, class_name=self.class_name, was_chosen=was_chosen)
        if state not in _CLAIMING:
            return None
        keys = self.keys()
        tenant = Tenant(ports=service.ports, consents=keys.allows_sharing(service.namespace))
        wanted = service.requested if state is State.MOVING else None
        if wanted is not None and wanted not in held:
            tenancy.enter(wanted, service.uid, tenant)
            clashing = tenancy.clashing(wanted, service.uid)
            if clashing:
                tenancy.leave(wanted, service.uid)
                return Refused(
                    service=service,
                    reason="AddressInUse",
                    message=f"{format_address(wanted)} is in use by {self._names(clashing, ledger)}",
                )
        return self._choose_rest(service, tenancy, tenant, _find_kept(service, state, held, wanted))

    def _choose_rest(
        self, service: Service, tenancy: Tenancy[str], tenant: Tenant, kept: Mapping[Family, Address]
    ) -> _Choice | Refused:
        """Choose for the families of which nothing is kept."""
        found = self.keys().pool_of(service.namespace)
        if found is None:
            message = f"no key of the ConfigMap has a pool for namespace {service.namespace}"
            return Refused(service=service, reason="NoPool", message=message)
        if found.is_dhcp:
            return _Choice(service=service, addresses=(DHCP,))
        pool = found.pool or AddressPool(key=found.key, addresses=AddressSet())
        request = Request(
            owner=service.uid,
            pool=pool,
            policy=service.policy,
            families=service.families or (Family.IPV4,),
            is_any_family=not service.families,
            tenant=tenant,
            held=kept,
        )
        try:
            addresses = tenancy.choose(request)
        except IpamError as error:
            reason, message = ("PoolUnusable", found.problem) if found.problem else ("PoolFull", str(error))
            return Refused(service=service, reason=reason, message=message)
        for address in addresses:
            tenancy.enter(address, service.uid, tenant)
        return _Choice(service=service, addresses=order_addresses(addresses, service.families))

    def _enter(self, ledger: Ledger, chosen: list[_Choice], refused: list[Refused]) -> Ledger:
        """Enter what was chosen and is not entered yet; once the ledger is full, nothing new is."""
        keys, made = self.keys(), ledger
        for choice in list(chosen):
            service = choice.service
            entry = Entry(
                uid=service.uid,
                version=service.version,
                namespace=service.namespace,
                name=service.name,
                ports=service.ports,
                consents=keys.allows_sharing(service.namespace),
            )
            new = [
                (address, entry)
                for address in choice.addresses
                if address != DHCP and not _is_entered(ledger, address, entry, service)
            ]
            try:
                made = made.having(new) if new else made
            except LedgerFullError as error:
                chosen.remove(choice)
                refused.append(Refused(service=service, reason="LedgerFull", message=str(error)))
        return made

    async def _write(self, choice: _Choice, obj: JsonView) -> Answer:
        """Write the addresses into the Service, at the version that is entered in the ledger."""
        service = choice.service
        is_so = service.annotated == choice.addresses and service.requested == choice.addresses[0]
        if is_so and service.is_marked and service.has_finalizer:
            return Granted(service=service, addresses=choice.addresses, is_written=False)
        is_new = not set(choice.addresses) <= set(service.annotated)
        interface = self.keys().interface_of(service.namespace) if is_new else None
        body = assigned(obj, choice.addresses, interface=interface)
        try:
            await self.client.replace(SERVICES, body)
        except (ApiConflictError, ApiNotFoundError):
            return Changed(service=service)
        except ApiError as error:
            # Whether it was done shows when the Service is read again; the entry stands until then.
            fields = {"service": service.key, "error": str(error)}
            logger.warning("service not written", extra=fields)
            return Changed(service=service)
        return Granted(service=service, addresses=choice.addresses, is_written=True)

    def _names(self, uids: Iterable[str], ledger: Ledger) -> str:
        names = {service.uid: service.key for service in self.services()}
        for tenants in ledger.entries.values():
            names |= {uid: (entry.namespace, entry.name) for uid, entry in tenants.items()}
        return ", ".join(sorted("/".join(names.get(uid, ("", uid))) for uid in uids))


def _find_kept(
    service: Service, state: State, held: Mapping[Address, Entry], wanted: Address | None
) -> dict[Family, Address]:
    """Tell which address of each family stays: what A says; else what the ledger gave last. `wanted` is asked for."""
    given_last = sorted(held, key=lambda address: int(held[address].version))
    says = service.annotated if state in {State.CHOSEN, State.MOVING} else given_last
    kept = {address.family: address for address in says}
    if wanted is not None:
        kept[wanted.family] = wanted
    return kept


def _is_entered(ledger: Ledger, address: Address, entry: Entry, service: Service) -> bool:
    """Whether the ledger says all that matters: for a Service that carries the address its version does not."""
    known = ledger.entries.get(address, {}).get(entry.uid)
    if known is None:
        return False
    is_carried = address in service.annotated
    return known == (
        replace(entry, version=known.version, is_chosen=known.is_chosen) if is_carried else entry
    )


def _key(obj: JsonView) -> tuple[str, str]:
    meta = obj["metadata"]
    return str(meta.get("namespace")), str(meta.get("name"))
