"""A guest cluster in memory with cloud providers at work in it, in virtual time: a SIMULATION of all but the provider.

A test says what users of Services, the administrator and kube-vip do, lets time pass, and reads the objects of the API
server. The providers are the whole program, built by `build_provider`.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from fipop.api import names
from fipop.cloudprovider.app import build_provider
from fipop.cloudprovider.keepalived import parse_network
from fipop.cloudprovider.options import KeepalivedOptions, KubevipOptions, LeaseOptions, ProviderOptions
from fipop.interfaces import ApiRequest
from tests.harness.api_in_memory import ApiInMemory, Commit, Json, Key, Link, copy_json
from tests.harness.service_judge import A, Judge, Seen
from tests.harness.service_rows import FINALIZER, INTERFACE, show
from tests.harness.virtual_time import VirtualClock, virtual_now

__all__ = ["CONDITION", "FINALIZER", "INTERFACE", "KEEPALIVED_MAP", "LEASE", "A", "Running", "ServiceCluster"]

SERVICES = "services"
SYSTEM = "kube-system"
CONFIG_MAP: Key = ("configmaps", SYSTEM, "kubevip")
KEEPALIVED_MAP: Key = ("configmaps", SYSTEM, "vip-configmap")
LEASE = "kube-vip-cloud-controller"
CONDITION = "kubefip.k8s.binbash.org/AddressAssigned"
START_SECONDS = 5.0
"""After that a provider without election has served all Services that can be served."""
SETTLE_SECONDS = 4.0
"""Long enough for all that needs no waiting."""
FAMILIES = ("IPv4", "IPv6")


class SlowClock(VirtualClock):
    """A clock whose monotonic part goes at a fraction of the speed of time, as on a machine that is paused often."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._began_at = asyncio.get_running_loop().time()

    def boottime(self) -> float:
        """Return the seconds that this clock has counted."""
        return self._began_at + (super().boottime() - self._began_at) * self._speed


class Gate:
    """Between a provider and its API server. While it is shut requests wait, and no event arrives.

    A write whose sender gave up meanwhile arrives all the same: nothing calls back a request. `latency` returns the
    seconds that the next request takes.
    """

    def __init__(self, server: ApiInMemory) -> None:
        self.latency: Callable[[], float] = lambda: 0.0
        self._server = server
        self._late: list[ApiRequest] = []
        self._opened = asyncio.Event()
        self._opened.set()

    def shut(self) -> None:
        """Let nothing through from now on."""
        self._opened.clear()

    def open(self) -> None:
        """Let everything through, late writes first."""
        self._opened.set()
        self._deliver()

    async def let_pass(self, request: ApiRequest) -> None:
        """Return when a request may arrive."""
        try:
            seconds = self.latency()
            if seconds:
                await asyncio.sleep(seconds)
            await self._opened.wait()
        except asyncio.CancelledError:
            if request.method in {"PUT", "POST"}:
                self._late.append(request)
                asyncio.get_running_loop().call_later(self.latency(), self._deliver)
            raise

    async def let_event_pass(self) -> None:
        """Return when an event of a watch may arrive."""
        await self._opened.wait()

    def _deliver(self) -> None:
        if self._opened.is_set():
            late, self._late = self._late, []
            for each in late:
                self._server.answer(each)


@dataclass(slots=True)
class Running:
    """One process of the provider, and how it reaches the API server; `task` ends if the process would."""

    name: str
    link: Link
    gate: Gate
    task: asyncio.Task[None]
    options: Mapping[str, Any]
    """What it was begun with."""
    is_wanted: bool = True
    """Whether it is to run: nobody stopped or killed it."""

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return not self.task.done()


@dataclass
class ServiceCluster:
    """The API server of a guest cluster, what people and kube-vip do there, and the providers at work; made in a loop.

    `data` are the keys of ConfigMap kube-system/kubevip; None: there is no such ConfigMap. Services are in namespace
    "shop" if a test does not say otherwise. Each commit is judged (`problems`). `families` are those of the cluster.
    """

    data: Mapping[str, str] | None = None
    families: tuple[str, ...] = FAMILIES
    chance: Random = field(default_factory=lambda: Random(1))
    memory: ApiInMemory = field(default_factory=ApiInMemory, init=False)
    providers: list[Running] = field(default_factory=list, init=False)
    judge: Judge = field(init=False)
    ended: list[str] = field(default_factory=list, init=False)
    """The providers that ended themselves at once."""

    def __post_init__(self) -> None:
        self.judge = Judge(shares=self._shares, scope_of=self._scope_of)
        self.memory.listeners.append(self._judge)
        for namespace in ("default", SYSTEM):
            self._ensure_namespace(namespace)
        if self.data is not None:
            self.set_keys(self.data)

    # Time

    async def settle(self) -> None:
        """Let everything happen that needs no waiting."""
        await asyncio.sleep(SETTLE_SECONDS)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, with all that happens meanwhile."""
        await asyncio.sleep(seconds)

    # Providers

    async def start(self, *, seconds: float = START_SECONDS, **options: Any) -> Running:
        """Begin a provider, and let so much time pass. The options are those of `begin`."""
        running = self.begin(**options)
        await asyncio.sleep(seconds)
        return running

    def begin(
        self,
        *,
        lease: str | None = None,
        classes: frozenset[str] = frozenset({""}),
        network: str | None = None,
        clock_speed: float = 1.0,
        **options: Any,
    ) -> Running:
        """Start a provider; those of one `lease` elect a leader, None: it always leads.

        `network`: it is keepalived's, with these addresses. Other options are those of ProviderOptions.
        """
        wanted = {"lease": lease, "classes": classes, "network": network, "clock_speed": clock_speed}
        name = f"provider-{len(self.providers) + 1}"
        gate = Gate(self.memory)
        link = Link(self.memory, before=gate.let_pass, pace=gate.let_event_pass)
        mode = (
            KubevipOptions(classes=classes)
            if network is None
            else KeepalivedOptions(network=parse_network(network))
        )
        provider = build_provider(
            ProviderOptions(
                identity=name,
                version="0",
                lease=LeaseOptions(name=lease, namespace=SYSTEM) if lease is not None else None,
                mode=mode,
                port=None,
                **options,
            ),
            api=lambda: link,
            clock=SlowClock(clock_speed) if clock_speed != 1.0 else VirtualClock(),
            random=Random(self.chance.random()),
            end=partial(self.ended.append, f"{name} was ended at once"),
        )
        running = Running(name, link, gate, asyncio.create_task(provider.run()), {**wanted, **options})
        self.providers.append(running)
        return running

    async def stop(self, running: Running | None = None) -> None:
        """End a provider as SIGTERM does."""
        running = running or self.providers[-1]
        running.is_wanted = False
        running.task.cancel()
        await asyncio.wait({running.task})

    async def kill(self, running: Running | None = None) -> None:
        """End a provider as SIGKILL does: not one request of it is sent any more, its Lease stays."""
        running = running or self.providers[-1]
        running.is_wanted = False
        running.link.is_cut = True
        running.task.cancel()
        await asyncio.wait({running.task})

    def restart_ended(self) -> None:
        """Start those providers again that ended by themselves, as the kubelet does."""
        for each in self.providers[:]:
            if each.is_wanted and not each.is_alive:
                each.is_wanted = False
                self.begin(**each.options)

    async def restart(self, **options: Any) -> Running:
        """End the provider that was started last, and start another that knows nothing but what is stored."""
        await self.stop()
        return await self.start(**options)

    # Users of Services

    def add(
        self,
        name: str = "web",
        *,
        namespace: str = "shop",
        ports: Iterable[int | Json] = (80,),
        a: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        has: Iterable[str] = (),
        **spec: Any,
    ) -> None:
        """Create a Service of type LoadBalancer; `a` is its annotation, `has` are the addresses in its status."""
        self._ensure_namespace(namespace)
        made = {"type": "LoadBalancer", "ports": _build_ports(ports), **spec}
        meta = {**(metadata or {})}
        if a is not None:
            meta["annotations"] = {**(meta.get("annotations") or {}), A: a}
        status = {"loadBalancer": {"ingress": [{"ip": each} for each in has]} if has else {}}
        body = {"metadata": meta, "spec": self._with_defaults(made), "status": status}
        self._write_by_people((SERVICES, namespace, name), body)

    def leave_behind(
        self, name: str, a: str, *, requested: str | None = None, namespace: str = "shop", **spec: Any
    ) -> None:
        """Have a Service as kube-vip-cloud-provider left it, announced by kube-vip."""
        wanted = a.partition(",")[0] if requested is None else requested
        self.add(
            name,
            namespace=namespace,
            a=a,
            metadata={"labels": {"implementation": "kube-vip"}, "finalizers": [FINALIZER]},
            has=a.split(","),
            **({"loadBalancerIP": wanted} if wanted else {}),
            **spec,
        )

    def change(
        self,
        name: str = "web",
        *,
        namespace: str = "shop",
        ports: Iterable[int | Json] | None = None,
        a: str | None = None,
        annotations: Mapping[str, str | None] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """Change a Service. None removes an annotation or a field of the spec, `a` "" the annotation A."""
        key = (SERVICES, namespace, name)
        found = copy_json(self.memory.objects[key])
        changes = {**(annotations or {}), **({A: a or None} if a is not None else {})}
        found["metadata"] |= metadata or {}
        if changes:
            known = {**(found["metadata"].get("annotations") or {}), **changes}
            found["metadata"]["annotations"] = _without_none(known)
        if ports is not None:
            spec["ports"] = _build_ports(ports)
        found["spec"] = self._with_defaults(_without_none({**found["spec"], **spec}))
        if found["spec"]["type"] != "LoadBalancer":
            found["status"] = {**(found.get("status") or {}), "loadBalancer": {}}
        self._write_by_people(key, found)

    def delete(self, name: str = "web", *, namespace: str = "shop") -> None:
        """Delete a Service: it is gone when it has no finalizer."""
        self.judge.by_people.add(self.memory.version + 1)
        self.memory.delete((SERVICES, namespace, name))

    def announce(self, name: str, *addresses: str, namespace: str = "shop") -> None:
        """Have kube-vip put addresses into the status of a Service."""
        key = (SERVICES, namespace, name)
        found = copy_json(self.memory.objects[key])
        balancer = {"ingress": [{"ip": each} for each in addresses]}
        found["status"] = {**(found.get("status") or {}), "loadBalancer": balancer}
        self._write_by_people(key, found)

    # The administrator

    def set_keys(self, data: Mapping[str, str], *, by_operator: bool = False) -> None:
        """Have the ConfigMap of the pools hold these keys and no others, written by fipop's operator or not."""
        mark = {names.ANNOTATION_APPLIED: json.dumps(dict(data))}
        metadata = {"annotations": mark if by_operator else {}}
        self.memory.put(CONFIG_MAP, {"metadata": metadata, "data": dict(data)})

    def hold_lease(self, holder: str, *, seconds: int, name: str = LEASE, namespace: str = SYSTEM) -> None:
        """Have another program hold a Lease for so long."""
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": self._micro_time(),
            "renewTime": self._micro_time(),
            "leaseTransitions": 0,
        }
        self._ensure_namespace(namespace)
        self.memory.put(("leases", namespace, name), {"metadata": {}, "spec": spec})

    # What is stored

    @property
    def problems(self) -> list[str]:
        """Which addresses a provider assigned to two that may not share them so far, and which ended at once."""
        return [*self.judge.violations, *self.ended]

    def service(self, name: str = "web", *, namespace: str = "shop") -> Json:
        """Return a Service as it is stored."""
        return self.memory.objects[SERVICES, namespace, name]

    def exists(self, name: str = "web", *, namespace: str = "shop") -> bool:
        """Return whether a Service is stored."""
        return (SERVICES, namespace, name) in self.memory.objects

    def names(self) -> list[str]:
        """Return the names of all Services."""
        return [key[2] for key in self.stored_keys()]

    def stored_keys(self) -> list[Key]:
        """Return plural, namespace and name of all Services."""
        return [*self.memory.of_kind(SERVICES)]

    def addresses(self, name: str = "web", *, namespace: str = "shop") -> str:
        """Return the annotation with the addresses of a Service; "" if there is none."""
        return self.annotation(A, name, namespace=namespace)

    def annotation(self, key: str, name: str = "web", *, namespace: str = "shop") -> str:
        """Return an annotation of a Service; "" if there is none."""
        return str(
            (self.service(name, namespace=namespace)["metadata"].get("annotations") or {}).get(key, "")
        )

    def shown(self, name: str = "web", *, namespace: str = "shop") -> dict[str, Any]:
        """Return what matters of a Service, as `show` has it."""
        return show(self.service(name, namespace=namespace))

    def condition(self, name: str = "web", *, namespace: str = "shop") -> tuple[str, str]:
        """Return status and reason of the condition AddressAssigned; two empty texts if there is none."""
        found = self._find_condition(name, namespace)
        return str(found.get("status", "")), str(found.get("reason", ""))

    def message(self, name: str = "web", *, namespace: str = "shop") -> str:
        """Return the message of the condition AddressAssigned; "" if there is none."""
        return str(self._find_condition(name, namespace).get("message", ""))

    def announced(self, name: str = "web", *, namespace: str = "shop") -> list[str]:
        """Return the addresses in the status of a Service."""
        status = self.service(name, namespace=namespace).get("status") or {}
        return [each["ip"] for each in (status.get("loadBalancer") or {}).get("ingress", ())]

    def events(self, about: str = "") -> list[tuple[str, str, str]]:
        """Return name of the object, reason and message of each event, in their order."""
        found = []
        for each in sorted(
            self.memory.of_kind("events").values(),
            key=lambda event: int(event["metadata"]["resourceVersion"]),
        ):
            regarding = each.get("regarding") or each.get("involvedObject") or {}
            if about in ("", regarding.get("name")):
                found.append(
                    (regarding.get("name"), each["reason"], each.get("note") or each.get("message") or "")
                )
        return found

    def reasons(self, about: str = "") -> list[str]:
        """Return the reasons of the events about the objects of a name, in their order."""
        return [reason for _, reason, _ in self.events(about)]

    def writes_of_services(self, since: int) -> list[Commit]:
        """Return what was written to Services after a version."""
        return [each for each in self.memory.commits if each.version > since and each.key[0] == SERVICES]

    @property
    def keepalived_map(self) -> Json:
        """The ConfigMap of keepalived."""
        return self.memory.objects[KEEPALIVED_MAP]

    @property
    def keepalived_plan(self) -> list[Json]:
        """The entries in the annotation of keepalived's ConfigMap."""
        text = self.keepalived_map["metadata"]["annotations"]["k8s.co/cloud-provider-config"]
        found: list[Json] = json.loads(text)["services"]
        return found

    # How

    def _micro_time(self) -> str:
        return virtual_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    @property
    def _keys(self) -> Json:
        return (self.memory.objects.get(CONFIG_MAP) or {}).get("data") or {}

    def _shares(self, seen: Seen) -> bool:
        allowed = self._keys.get(f"allow-pool-{seen.pool}", seen.pool or "").replace(",", " ").split()
        # The consent of a closed pool is that of others.
        is_open = bool({"*", seen.namespace} & {*allowed})
        scopes = [seen.pool] if is_open else [seen.namespace, self._serving(seen.namespace)]
        texts = [self._keys.get(f"allow-share-{scope}") for scope in (*scopes, "global")]
        return next((each for each in texts if each is not None), "") in {
            "1",
            "t",
            "T",
            "true",
            "TRUE",
            "True",
        }

    def _scope_of(self, seen: Seen) -> str:
        return seen.pool if seen.pool is not None else self._serving(seen.namespace)

    def _serving(self, namespace: str) -> str:
        """Return the scope of the pool that serves a namespace: its own, or the first that names it."""
        named = sorted(
            key.removeprefix("namespaces-")
            for key, text in self._keys.items()
            if key.startswith("namespaces-") and namespace in text.replace(",", " ").split()
        )
        with_pool = (
            each for each in (namespace, *named) if {f"cidr-{each}", f"range-{each}"} & self._keys.keys()
        )
        return next(with_pool, "global")

    def _judge(self, commit: Commit) -> None:
        if commit.key[0] == SERVICES:
            self.judge.take(commit.type, commit.object)

    def _with_defaults(self, spec: Json) -> Json:
        """Return a spec with the families that an API server grants."""
        policy = spec.get("ipFamilyPolicy") or "SingleStack"
        wanted = [*(spec.get("ipFamilies") or self.families[:1])]
        if policy != "SingleStack":
            wanted += [each for each in self.families if each not in wanted]
        else:
            wanted = wanted[:1]
        return {**spec, "ipFamilyPolicy": policy, "ipFamilies": wanted}

    def _find_condition(self, name: str, namespace: str) -> Json:
        conditions = (self.service(name, namespace=namespace).get("status") or {}).get("conditions") or ()
        return next((each for each in conditions if each["type"] == CONDITION), {})

    def _ensure_namespace(self, name: str) -> None:
        key = ("namespaces", "", name)
        if key not in self.memory.objects:
            self.memory.put(key, {"metadata": {}})

    def _write_by_people(self, key: Key, obj: Json) -> None:
        self.judge.by_people.add(self.memory.version + 1)
        self.memory.put(key, obj)


def _build_ports(ports: Iterable[int | Json]) -> list[Json]:
    return [
        {"port": each, "protocol": "TCP"} if isinstance(each, int) else {"protocol": "TCP", **each}
        for each in ports
    ]


def _without_none(fields: Mapping[str, Any]) -> Json:
    return {key: value for key, value in fields.items() if value is not None}
