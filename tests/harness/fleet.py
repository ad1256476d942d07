"""A Rancher fleet in memory with operators at work, in virtual time: a SIMULATION of all but the operator.

A test says what Rancher, administrators and the owners of guest clusters do, lets time pass, and reads the objects of
the API servers. The operators are the whole program, built by `build_operator`.
"""

import asyncio
import base64
import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from ipaddress import ip_address
from random import Random
from typing import Any

from fipop.api import names
from fipop.errors import FipopError
from fipop.interfaces import ApiRequest
from fipop.operator.app import OperatorOptions, build_operator
from localfleet.simulated import GUEST_KINDS, Answer
from tests.harness.api_in_memory import (
    ApiInMemory,
    Commit,
    Json,
    Key,
    Link,
    Response,
    Watched,
    respond_with_text,
)
from tests.harness.helm_in_memory import HelmInMemory
from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, Carried, Change
from tests.harness.invariants.revisions import Judge, Setting
from tests.harness.stored import addresses_of, condition, is_held
from tests.harness.virtual_time import VirtualClock, VirtualLoop, virtual_now

WORKSPACE = "fleet-default"
NAMESPACE = names.OPERATOR_NAMESPACE
EVERY_GUEST = {"matchLabels": {}}
"""A selector that every guest cluster matches."""
CLUSTERS = "clusters"
"""The plural of both kinds of Cluster: provisioning ones have a namespace, management ones have none."""
WEB = ("services", "default", "web")
"""The Service of a guest cluster that has no other name."""
SETTLE_SECONDS = 0.9
"""Long enough for all that needs no waiting, shorter than any back-off."""
START_SECONDS = 10.0
"""After that a new leader has read every guest cluster that answers."""
RANCHER = "https://rancher.example"
RESET_SECONDS, LONGEST_BACKOFF_SECONDS = 600.0, 300.0
"""Of a kubelet: a process that ran for so long is started again at once; the longest wait before that."""


@dataclass(slots=True, kw_only=True)
class Guest(ApiInMemory):
    """One guest cluster: its API server behind Rancher, and how that answers.

    A `silent` one refuses connections, a `hanging` one never answers, a slow one takes `seconds` for each request.
    """

    id: str
    kinds: frozenset[str] = GUEST_KINDS
    forbidden: set[str] = field(default_factory=set)
    """The plurals of which every request is answered with 403."""
    protected: set[str] = field(default_factory=set)
    """The plurals of which every write is answered with 403."""
    silent: bool = False
    hanging: bool = False
    status: int = 0
    """The status of every answer of Rancher's proxy, if not 0."""
    token_refused: bool = False
    """Whether Rancher accepts the token of the kubeconfig no more."""
    seconds: float = 0.0
    lost_answers: int = 0
    """So many of the next writes take effect, and their answers never arrive."""
    leader: str = "n1"
    """The node that holds kube-vip's Lease and renews it whenever it is read; "" if it renews it no more."""
    clock_behind: int = 0
    """By how many seconds the clock of that node is behind."""
    asked: int = 0
    """How many requests Rancher was asked to pass on to it."""
    is_asked: bool = False
    """Whether it answers a request now: what is written meanwhile, its owner did not write."""
    answered: Counter[str] = field(default_factory=Counter)
    """How many requests it answered, by plural."""

    async def before(self, _request: ApiRequest) -> None:
        """Answer as this guest cluster does."""
        self.asked += 1
        if self.silent:
            raise ConnectionError("refused")
        if self.hanging:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(self.seconds)

    async def after(self, request: ApiRequest) -> None:
        """Lose the answer to a write, if it is to be lost."""
        if self.lost_answers > 0 and request.method != "GET":
            self.lost_answers -= 1
            raise ConnectionError("the answer was lost")

    def instead(self) -> Response | None:
        """Return what Rancher answers in place of this guest cluster."""
        if self.token_refused:
            return respond_with_text(403, "Unauthorized 403: must authenticate", X_Api_Cattle_Auth="false")
        return respond_with_text(self.status, "cluster agent disconnected") if self.status else None

    @property
    def config_map(self) -> dict[str, str]:
        """The data of ConfigMap kube-system/kubevip."""
        found = self.objects.get(("configmaps", "kube-system", names.GUEST_CONFIG_MAP)) or {}
        return dict(found.get("data") or {})

    @property
    def addresses(self) -> set[str]:
        """The addresses in its ConfigMap, without their prefix lengths."""
        texts = ",".join(self.config_map.values()).split(",")
        return {text.partition("/")[0] for text in texts if text}

    @property
    def releases(self) -> dict[str, str]:
        """The status of the latest revision of each helm release, by name."""
        found: dict[str, tuple[int, str]] = {}
        for each in self.of_kind("secrets").values():
            labels = each["metadata"].get("labels") or {}
            if labels.get("owner") == "helm":
                entry = int(labels["version"]), str(labels["status"])
                found[labels["name"]] = max(found.get(labels["name"], entry), entry)
        return {name: status for name, (_, status) in found.items()}

    def answer(self, request: ApiRequest) -> Answer:
        """Answer as an API server does; kinds that are `forbidden` get 403."""
        target = self.parse(request.path)
        self.answered[target.plural if target is not None else ""] += 1
        if target is not None and target.plural == "leases" and self.leader and request.method == "GET":
            self.renew_lease()
        refused = self.forbidden | (self.protected if request.method != "GET" else set())
        if target is None or target.plural not in refused:
            self.is_asked = True
            try:
                return ApiInMemory.answer(self, request)
            finally:
                self.is_asked = False
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403}
        return Answer(status=403, body={**body, "reason": "Forbidden", "message": "as the test says"})

    def renew_lease(self) -> None:
        """Renew kube-vip's Lease."""
        key = ("leases", "kube-system", "plndr-svcs-lock")
        renewed = virtual_now() - timedelta(seconds=self.clock_behind)
        spec = {"holderIdentity": self.leader, "renewTime": renewed.isoformat().replace("+00:00", "Z")}
        self.put(key, {**_object(key), "spec": spec})

    def write_config_map(self, *, namespace: str = "kube-system", **data: str) -> None:
        """Write keys of the ConfigMap as its owner does; underscores stand for dashes."""
        key = ("configmaps", namespace, names.GUEST_CONFIG_MAP)
        found = self.objects.get(key) or _object(key)
        more = {name.replace("_", "-"): value for name, value in data.items()}
        self.put(key, {**found, "data": {**(found.get("data") or {}), **more}})

    def add_service(
        self,
        *addresses: str,
        name: str = "web",
        namespace: str = "default",
        pool: str | None = None,
        **spec: Any,
    ) -> None:
        """Have a Service of type LoadBalancer that uses these addresses; `pool` is what it chooses."""
        key = ("services", namespace, name)
        made = _object(key)
        if pool is not None:
            made["metadata"]["annotations"] = {names.GROUP + "/pool": pool}
        status = {"loadBalancer": {"ingress": [{"ip": each} for each in addresses]}}
        self.put(key, {**made, "spec": {"type": "LoadBalancer", **spec}, "status": status})

    def announce(self, *addresses: str, node: str = "n1") -> None:
        """Have a Service with an endpoint on a node, and kube-vip announce these addresses for it there."""
        self.add_service(*addresses)
        service = self.objects[WEB]
        annotations = {"kube-vip.io/loadbalancerIPs": ",".join(addresses), "kube-vip.io/vipHost": node}
        self.put(WEB, {**service, "metadata": {**service["metadata"], "annotations": annotations}})
        key = ("endpointslices", "default", "web-x")
        labels = {"kubernetes.io/service-name": "web"}
        endpoints = [{"addresses": ["10.42.0.9"], "nodeName": node, "conditions": {"serving": True}}]
        made = _object(key)
        self.put(key, {**made, "metadata": {**made["metadata"], "labels": labels}, "endpoints": endpoints})

    def stop_announcing(self, *, note: str, node: str = "n1") -> None:
        """Have a Service leave type LoadBalancer as fipop's cloud provider and kube-vip leave it: with a note."""
        service = self.objects[WEB]
        annotations = {"kube-vip.io/vipHost": node, names.GROUP + "/assigned": note}
        metadata = {**service["metadata"], "annotations": annotations}
        self.put(WEB, {**service, "metadata": metadata, "spec": {"type": "ClusterIP"}, "status": {}})

    def put_workload(self, key: Key, image: str, *, release: str = "", **env: str) -> None:
        """Have a ready workload that runs one image; `release` is the helm release that it belongs to."""
        annotations = {"meta.helm.sh/release-name": release} if release else {}
        container = {"image": image, "env": [{"name": name, "value": value} for name, value in env.items()]}
        metadata = {"name": key[2], "namespace": key[1], "annotations": annotations}
        status = {"observedGeneration": 99, "desiredNumberScheduled": 1, "numberReady": 1}
        spec = {"template": {"spec": {"containers": [container]}}}
        self.put(key, {"metadata": metadata, "spec": spec, "status": status})

    def remove_service(self, name: str = "web", namespace: str = "default") -> None:
        """Delete a Service."""
        self.remove(("services", namespace, name))


def written_to(guest: Guest) -> set[str]:
    """Return the addresses in the ConfigMap of a guest cluster."""
    return addresses_of({"data": guest.config_map})


def services_of(guest: Guest) -> set[str]:
    """Return the addresses that Services of a guest cluster use."""
    found: set[str] = set()
    return found.union(*map(addresses_of, guest.of_kind("services").values()))


def used_by(guest: Guest) -> set[str]:
    """Return the addresses that a guest cluster uses."""
    return written_to(guest) | services_of(guest)


@dataclass(slots=True)
class Running:
    """One container of the operator, and how it reaches the world; `task` ends if its process would.

    Each process of it has a `name` of its own.
    """

    name: str
    link: Link
    options: Mapping[str, Any]
    """Those of the command line."""
    task: asyncio.Task[None] = field(init=False)
    watch: Watched | None = None
    """How it hears of changes; None before it watches."""
    operator: Any = None
    """The object that `build_operator` returned: what it keeps in memory can be measured."""
    began_at: float = 0.0
    restarts: int = 0
    """How often its process ended without being asked to, since one ran for RESET_SECONDS."""

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return not self.task.done()


class Fleet:
    """The management cluster and its guest clusters, what people do there, and the operators at work.

    `memory` is the API server of the management cluster. Floating IPs are named "web", guest clusters that a test does
    not name otherwise "cluster-<id>". Each commit is judged (`problems`). A process that ends without being asked to is
    started again as by a kubelet, if it `has_kubelet`.
    """

    def __init__(self, *, chance: Random | None = None, has_kubelet: bool = True) -> None:
        self._has_kubelet = has_kubelet
        self._crashes: list[str] = []
        self._numbers = itertools.count(2)
        self.memory = ApiInMemory()
        self.guests: dict[str, Guest] = {}
        self.sessions: Counter[str] = Counter()
        """How often operators opened connections of their own to a guest cluster."""
        self.chance = chance or Random(1)
        self.helm = HelmInMemory(self._guest_behind)
        self.operators: list[Running] = []
        self.judge = Judge(setting=Setting())
        self.memory.listeners.append(self._judge)
        self.judge_guest: Callable[[Guest, Commit], None] = self._judge_guest
        """Hears of each write to a guest cluster."""
        self._heard: set[str] = set()
        self._install()

    # Time

    async def settle(self) -> None:
        """Let everything happen that needs no waiting."""
        await asyncio.sleep(SETTLE_SECONDS)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, with all that happens meanwhile."""
        await asyncio.sleep(seconds)

    def jump(self, seconds: float) -> None:
        """Let time pass while nothing runs, as on machines that are suspended."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.jump(seconds)

    @property
    def now(self) -> datetime:
        """What the clocks show."""
        return virtual_now()

    # Operators

    @property
    def operator(self) -> Running:
        """The operator that was started last."""
        return self.operators[-1]

    @property
    def link(self) -> Link:
        """How the operator that was started last reaches the management cluster."""
        return self.operator.link

    async def start(self, *, seconds: float = START_SECONDS, **options: Any) -> Running:
        """Begin an operator, and let so much time pass: it leads by then, and has read all guest clusters that answer.

        The options are those of `begin`.
        """
        running = self.begin(**options)
        await asyncio.sleep(seconds)
        return running

    def begin(self, *, own_lease: bool = False, **options: Any) -> Running:
        """Start an operator that is one of several replicas.

        With `own_lease` it leads whoever else does. Other options are those of the command line.
        """
        number = len(self.operators) + 1
        link = Link(self.memory, leases=ApiInMemory() if own_lease else None)
        if link.leases is not None:
            link.leases.put(("namespaces", "", NAMESPACE), _object(("namespaces", "", NAMESPACE)))

        running = Running(f"operator-{number}", link, options)
        self.operators.append(running)
        self._begin_process(running)
        return running

    def _begin_process(self, running: Running) -> None:
        async def watch(callbacks: Mapping[Any, Callable[[str | None, Any], None]]) -> None:
            running.watch = Watched(self.memory, callbacks)
            await running.watch.run()

        running.operator = build_operator(
            OperatorOptions(identity=running.name, version="0", health_port=None, **running.options),
            api=lambda: running.link,
            guests=lambda access: self._link_to(access.server),
            watch=watch,
            helm=self.helm,
            clock=VirtualClock(),
            random=Random(self.chance.random()),
            end=lambda: self._crashes.append(f"{running.name} was ended at once"),
        )
        running.task = asyncio.create_task(running.operator.run())
        running.began_at = asyncio.get_running_loop().time()
        if self._has_kubelet:
            running.task.add_done_callback(partial(self._restart, running))

    def _restart(self, running: Running, ended: asyncio.Task[None]) -> None:
        """Start another process in a container, at once, then after 10 s, 20 s and so on."""
        if ended.cancelled():
            return
        if not isinstance(error := ended.exception(), FipopError):
            self._crashes.append(f"{running.name} ended with {error!r}")
        loop = asyncio.get_running_loop()
        if loop.time() - running.began_at >= RESET_SECONDS:
            running.restarts = 0
        delay = min(LONGEST_BACKOFF_SECONDS, 10.0 * 2 ** (running.restarts - 1)) if running.restarts else 0.0
        running.restarts += 1
        running.name = f"{running.name.partition('.')[0]}.{next(self._numbers)}"
        loop.call_later(delay, self._begin_process, running)

    async def stop(self, running: Running | None = None) -> None:
        """End an operator as SIGTERM does."""
        running = running or self.operator
        running.task.cancel()
        await asyncio.wait({running.task})

    async def kill(self, running: Running | None = None) -> None:
        """End an operator as SIGKILL does: not one request of it arrives any more, its Lease stays."""
        running = running or self.operator
        running.link.is_cut = True
        running.task.cancel()
        await asyncio.wait({running.task})

    async def restart(self, *, seconds: float = START_SECONDS, **options: Any) -> Running:
        """End the operator that was started last, and start another that knows nothing but what is stored."""
        await self.stop()
        return await self.start(seconds=seconds, **options)

    # Administrators

    def add_range(
        self,
        name: str = "pool",
        iprange: str = "10.0.0.10-10.0.0.13",
        *,
        harvester: str = "",
        network: str = "",
        **spec: object,
    ) -> None:
        """Create a range; `harvester` and `network` are the Harvester cluster and the network that it is of."""
        annotations = {names.ANNOTATION_HARVESTER_CLUSTER: harvester} if harvester else {}
        annotations |= {names.ANNOTATION_HARVESTER_NETWORK: network} if network else {}
        self._put((RANGES, "", name), annotations=annotations, spec={"iprange": iprange, **spec})

    def change_range(self, name: str = "pool", **spec: object) -> None:
        """Change the spec of a range."""
        self._change((RANGES, "", name), spec)

    def remove_range(self, name: str = "pool") -> None:
        """Delete a range."""
        self.memory.remove((RANGES, "", name))

    def ask(
        self,
        guest_id: str,
        ipaddress: str = "",
        *,
        has: str = "",
        space: str = "default",
        name: str = "web",
        guest: dict[str, object] | None = None,
        range_name: str = "pool",
        **spec: object,
    ) -> None:
        """Create a floating IP for a guest cluster, of no range if `range_name` is ""; `has` is what its status names.

        `guest` is what the status says of the guest cluster.
        """
        status: Json = {
            "addresses": has.split(",") if has else [],
            "range": range_name or "pool",
            "addressSpace": space,
            "observedGeneration": 1,
        }
        status |= {"guest": guest} if guest is not None else {}
        self._put(
            (FLOATING_IPS, guest_id, name),
            annotations={names.ANNOTATION_RANGE: range_name} if range_name else {},
            spec={"ipaddress": ipaddress or has, **spec},
            **({"status": status} if has else {}),
        )

    def change(self, guest_id: str, name: str = "web", **spec: object) -> None:
        """Change the spec of a floating IP."""
        self._change((FLOATING_IPS, guest_id, name), spec)

    def ask_for_another(self, guest_id: str, ipaddress: str) -> None:
        """Have a floating IP ask for another address."""
        self.change(guest_id, ipaddress=ipaddress)

    def ask_for_range(self, guest_id: str, range_name: str) -> None:
        """Have the floating IP of a guest cluster name another range."""
        self.annotate((FLOATING_IPS, guest_id, "web"), {names.ANNOTATION_RANGE: range_name}, is_all=True)

    def move(self, guest_id: str, range_name: str, **spec: object) -> None:
        """Have the floating IP of a guest cluster name another range and change its spec, in one write."""
        found = self.floating_ip(guest_id)
        annotations = {names.ANNOTATION_RANGE: range_name} if range_name else {}
        metadata = {**found["metadata"], "annotations": annotations}
        changed = {**found, "metadata": metadata, "spec": {**found["spec"], **spec}}
        self._write_by_people((FLOATING_IPS, guest_id, "web"), changed)

    def replace(self, guest_id: str, name: str = "web") -> None:
        """Delete a floating IP and create it again at once as it was, as Flux does with force: its uid is another."""
        found = self.floating_ip(guest_id, name)
        self.give_up(guest_id, name)
        annotations = found["metadata"]["annotations"]
        self._put((FLOATING_IPS, guest_id, name), annotations=annotations, spec=found["spec"])

    def install_crds(self) -> None:
        """Have fipop's CRDs created now: floating IPs that exist already were made for kube-fip-operator."""
        key = ("customresourcedefinitions", "", f"{RESERVATIONS}.kubefip.k8s.binbash.org")
        self.memory.remove(key)
        self._put(key, spec={})

    def ignore_claims(self, guest_id: str, *claimants: str) -> None:
        """Have the floating IP of a guest cluster name others whose reports do not count."""
        self.annotate((FLOATING_IPS, guest_id, "web"), {names.ANNOTATION_IGNORE_CLAIM: ",".join(claimants)})

    def move_to_space(self, guest_id: str, *, iprange: str, **spec: object) -> None:
        """Create a range in address space "lab", and have the floating IP of a guest cluster name it."""
        self.add_range("lab", iprange, addressSpace="lab", **spec)
        self.ask_for_range(guest_id, "lab")

    def pause(self, guest_id: str) -> None:
        """Pause the floating IP of a guest cluster."""
        self.annotate((FLOATING_IPS, guest_id, "web"), {names.ANNOTATION_PAUSED: "true"})

    def give_up(self, guest_id: str, name: str = "web") -> None:
        """Delete a floating IP."""
        self.memory.remove((FLOATING_IPS, guest_id, name))

    def reserve(
        self,
        address: str,
        guest_id: str,
        *,
        until: datetime | None = None,
        space: str = "default",
        range_name: str = "pool",
    ) -> None:
        """Have a reservation, of the floating IP if there is one."""
        owner = self.memory.objects.get((FLOATING_IPS, guest_id, "web"))
        parsed = ip_address(address)
        spec: Json = {
            "address": parsed.exploded,
            "space": space,
            "range": range_name,
            "owner": {
                "namespace": guest_id,
                "name": "web",
                "uid": owner["metadata"]["uid"] if owner else "dead",
                "cluster": f"cluster-{guest_id}",
                "workspace": WORKSPACE,
            },
            "requested": "dynamic",
            "since": self.memory.timestamp(),
        }
        if until is not None:
            spec["quarantinedUntil"] = until.strftime("%Y-%m-%dT%H:%M:%SZ")
        key = parsed.exploded.replace(":", "") if parsed.version == 6 else address
        self._put((RESERVATIONS, "", f"{space}.{key}"), spec=spec)

    def remove_reservation(self, name: str) -> None:
        """Delete a reservation by hand; `name` is address space and address ("default.10.0.0.10")."""
        self.judge.by_people.add(self.memory.version + 1)
        self.memory.remove((RESERVATIONS, "", name))

    def set_options(self, **options: str) -> None:
        """Change options in kube-fip-config, as an administrator does; None removes one."""
        key = ("configmaps", NAMESPACE, names.SETTINGS_CONFIG_MAP)
        found = self.memory.objects.get(key) or _object(key)
        data = {**(found.get("data") or {}), **options}
        self.memory.put(
            key, {**found, "data": {name: each for name, each in data.items() if each is not None}}
        )

    def annotate(self, key: Key, annotations: Mapping[str, str], *, is_all: bool = False) -> None:
        """Set annotations of an object; `is_all`: it keeps no others."""
        found = self.memory.objects[key]
        kept = {} if is_all else found["metadata"].get("annotations") or {}
        metadata = {**found["metadata"], "annotations": {**kept, **annotations}}
        self.write(key, {**found, "metadata": metadata})

    def write(self, key: Key, obj: Json) -> None:
        """Create or change any object, as administrators may."""
        self._write_by_people(key, obj)

    # Rancher and the owners of guest clusters

    def add_guest(  # noqa: PLR0913 - what Rancher says of a cluster
        self,
        guest_id: str,
        *,
        imported: bool = False,
        connected: bool = True,
        named: str = "",
        called: str = "",
        workspace: str = WORKSPACE,
        provider: str = "k3s",
        is_served: bool = False,
        custom: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> Guest:
        """Have a guest cluster in Rancher that is Ready from now on; `named` is its cluster's name.

        `called` is its display name, if that is another one, as of an imported cluster that Rancher names by its id.
        An administrator made the machines of a `custom` one, and registered them. Of one that `is_served` a floating IP
        is made automatically. One that comes back under its id is the same guest cluster.
        """
        name = named or f"cluster-{guest_id}"
        guest = self.guests.setdefault(guest_id, Guest(id=guest_id))
        if not guest.objects:
            for each in ("default", "kube-system"):
                guest.put(("namespaces", "", each), _object(("namespaces", "", each)))
        if guest_id not in self._heard:
            self._heard.add(guest_id)
            guest.listeners.append(lambda commit: self.judge_guest(guest, commit))
        self._put(("namespaces", "", guest_id))
        self._put_management_cluster(guest_id, called or name, workspace, provider, connected=connected)
        server = f"{RANCHER}/k8s/clusters/{guest_id}"
        kubeconfig = base64.b64encode(json.dumps(_kubeconfig(server)).encode()).decode()
        self._put(("secrets", workspace, f"{name}-kubeconfig"), data={"value": kubeconfig})
        machines = {"rkeConfig": {"machinePools": [] if custom else [{"name": "machines"}]}}
        self._put(
            (CLUSTERS, workspace, name),
            annotations={names.ANNOTATION_FLOATING_IP: "true" if is_served else "false"},
            labels=labels,
            spec={} if imported else machines,
            status={"clusterName": guest_id},
        )
        return guest

    def add_harvester(self, harvester: str) -> None:
        """Register a Harvester cluster in Rancher, by that name."""
        self._put(
            (CLUSTERS, "", f"c-{harvester}"),
            spec={"displayName": harvester},
            status={"provider": "harvester"},
        )

    def write_credential(self, harvester: str, *, cluster_id: str = "", leads_to: str = "") -> None:
        """Write the cloud credential of a Harvester cluster, with the fields that are given."""
        server = f"{RANCHER}/k8s/clusters/{leads_to}" if "/" not in leads_to else leads_to
        texts = {"clusterId": cluster_id, "kubeconfigContent": leads_to and json.dumps(_kubeconfig(server))}
        data = {
            f"harvestercredentialConfig-{name}": base64.b64encode(text.encode()).decode()
            for name, text in texts.items()
            if text
        }
        self._put(("secrets", "cattle-global-data", f"cc-{harvester}"), data=data)

    def write_network(self, guest_id: str, network: str) -> None:
        """Write the HarvesterConfig of the machines of a guest cluster, in place."""
        self._put(("harvesterconfigs", WORKSPACE, f"nodes-{guest_id}"), networkName=network)

    def put_on_harvester(self, guest_id: str, harvester: str) -> None:
        """Have a guest cluster's machines on network "vlan1" of a Harvester cluster, registered by that name."""
        self.add_harvester(harvester)
        self.write_network(guest_id, "vlan1")
        self.write_credential(harvester, cluster_id=f"c-{harvester}")
        pool = {
            "controlPlaneRole": True,
            "machineConfigRef": {"kind": "HarvesterConfig", "name": f"nodes-{guest_id}"},
        }
        spec = {
            "cloudCredentialSecretName": f"cattle-global-data:cc-{harvester}",
            "rkeConfig": {"machinePools": [pool]},
        }
        self._change((CLUSTERS, WORKSPACE, f"cluster-{guest_id}"), spec, is_all=True)

    def rename_harvester(self, harvester: str, name: str) -> None:
        """Rename a Harvester cluster in Rancher; its id stays."""
        self._change((CLUSTERS, "", f"c-{harvester}"), {"displayName": name}, is_all=True)

    def label_guest(
        self, guest_id: str, *, workspace: str = WORKSPACE, named: str = "", **labels: str
    ) -> None:
        """Give a guest cluster's provisioning Cluster these labels and no others."""
        key = (CLUSTERS, workspace, named or f"cluster-{guest_id}")
        found = self.memory.objects[key]
        self.memory.put(key, {**found, "metadata": {**found["metadata"], "labels": labels}})

    def opt_in(self, guest_id: str, **labels: str) -> None:
        """Label a guest cluster so that fipop installs kube-vip there."""
        key = (CLUSTERS, WORKSPACE, f"cluster-{guest_id}")
        found = self.memory.objects[key]
        kept = found["metadata"].get("labels") or {}
        metadata = {**found["metadata"], "labels": {**kept, names.LABEL_OPT_IN: "true", **labels}}
        self.memory.put(key, {**found, "metadata": metadata})

    def connect(self, guest_id: str) -> None:
        """Have the agent of a guest cluster connect to Rancher."""
        self._set_condition(guest_id, "Connected", "True")

    def disconnect(self, guest_id: str) -> None:
        """Have the agent of a guest cluster lose Rancher."""
        self._set_condition(guest_id, "Connected", "False")

    def provision(self, guest_id: str, status: str = "True") -> None:
        """Have Rancher provision the machines of a guest cluster; "Unknown" while it is at it."""
        self._set_condition(guest_id, "Provisioned", status)

    def remove_guest(self, guest_id: str, *, workspace: str = WORKSPACE, named: str = "") -> None:
        """Take a guest cluster out of Rancher. Whether it still runs, nobody there knows then."""
        self.carries(guest_id, set())
        self.memory.remove((CLUSTERS, workspace, named or f"cluster-{guest_id}"))
        self.memory.remove((CLUSTERS, "", guest_id))

    # Time that costs nothing, replicas, the predecessor, parts of Rancher

    async def skip_time(self, seconds: float) -> None:
        """Let hours pass at once, as on a machine that is suspended; only without leader election.

        Whatever was due meanwhile is done once, afterwards.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.jump(seconds)
        await self.settle()

    @property
    def leader(self) -> Running:
        """The operator that the Lease names."""
        (lease,) = self.memory.of_kind("leases").values()
        holder = lease["spec"]["holderIdentity"]
        return next(each for each in self.operators if each.name == holder)

    def scale_predecessor(self, replicas: int, *, name: str = names.PREDECESSOR_DEPLOYMENT) -> None:
        """Have a Deployment of kube-fip-operator with so many replicas."""
        key = ("deployments", NAMESPACE, name)
        container = {"image": "registry.lan:5000/mirror/kube-fip-operator:v0.3@sha256:0"}
        pod = {"spec": {"containers": [container]}}
        self._put(key, spec={"replicas": replicas, "template": pod}, status={"replicas": replicas})

    def take_away(self, key: Key) -> Callable[[], None]:
        """Delete an object; the function that is returned creates it again as it was."""
        found = self.memory.objects[key]
        self.memory.remove(key)
        kept = ("name", "namespace", "annotations", "labels")
        metadata = {name: value for name, value in found["metadata"].items() if name in kept}
        return lambda: self._write_by_people(key, {**found, "metadata": metadata})

    def range_condition(self, name: str = "pool", kind: str = "Ready") -> tuple[str, str]:
        """Return status and reason of a condition of a range; two empty texts if there is none."""
        return condition(self.memory.objects[RANGES, "", name], kind)

    def range_message(self, name: str = "pool", kind: str = "Ready") -> str:
        """Return the message of a condition of a range; "" if there is none."""
        conditions = (self.memory.objects[RANGES, "", name].get("status") or {}).get("conditions") or ()
        return next((str(each["message"]) for each in conditions if each["type"] == kind), "")

    # What is stored

    def problems_on_lease(self) -> list[Json]:
        """Return what the leader noted on its Lease: what is wrong with the links of guest clusters."""
        (lease,) = self.memory.of_kind("leases").values()
        text = (lease["metadata"].get("annotations") or {}).get(names.ANNOTATION_GUEST_PROBLEMS)
        return list(json.loads(text)) if text else []

    @property
    def problems(self) -> list[str]:
        """The invariants that did not hold at any revision so far."""
        return [*map(str, self.judge.found), *self._crashes]

    def floating_ip(self, guest_id: str, name: str = "web") -> Json:
        """Return a floating IP as it is stored."""
        return self.memory.objects[FLOATING_IPS, guest_id, name]

    def status(self, guest_id: str, name: str = "web") -> Json:
        """Return the status of a floating IP; {} before the first."""
        found: Json = self.floating_ip(guest_id, name).get("status") or {}
        return found

    def range_status(self) -> Json:
        """Return the status of range "pool"; {} before the first."""
        found: Json = self.memory.objects[RANGES, "", "pool"].get("status") or {}
        return found

    def addresses(self, guest_id: str, name: str = "web") -> list[str]:
        """Return the addresses that the status of a floating IP names."""
        return list(self.status(guest_id, name).get("addresses") or ())

    def condition(self, guest_id: str, kind: str = "Allocated", name: str = "web") -> tuple[str, str]:
        """Return status and reason of a condition of a floating IP; two empty texts if there is none."""
        return condition(self.floating_ip(guest_id, name), kind)

    def message(self, guest_id: str, kind: str = "Allocated", name: str = "web") -> str:
        """Return the message of a condition of a floating IP; "" if there is none."""
        conditions = self.status(guest_id, name).get("conditions") or ()
        return next((str(each["message"]) for each in conditions if each["type"] == kind), "")

    def asked_for(self, guest_id: str, name: str = "web") -> str:
        """Return what the spec of a floating IP names."""
        return str(self.floating_ip(guest_id, name)["spec"]["ipaddress"])

    def holders(self, address: str) -> set[str]:
        """Return the guest clusters that have an address, in any space: by a reservation, or by a status."""
        found = set()
        for (plural, namespace, _), each in self.memory.objects.items():
            spec = each.get("spec") or {}
            if plural == RESERVATIONS and spec["address"] == address and is_held(each):
                found.add(spec["owner"]["namespace"])
            if plural == FLOATING_IPS and address in (each.get("status") or {}).get("addresses", ()):
                found.add(namespace)
        return found

    def quarantined(self) -> set[str]:
        """Return the names of the reservations in quarantine."""
        return {key[2] for key, each in self.memory.of_kind(RESERVATIONS).items() if not is_held(each)}

    def held(self) -> dict[str, str]:
        """Return the guest cluster of every held reservation, by its name."""
        return {
            key[2]: each["spec"]["owner"]["namespace"]
            for key, each in self.memory.of_kind(RESERVATIONS).items()
            if is_held(each)
        }

    def events(self, about: str = "") -> list[tuple[str, str, str]]:
        """Return kind and name of the object, reason and message of each event, in their order."""
        found = []
        for each in sorted(
            self.memory.of_kind("events").values(),
            key=lambda event: int(event["metadata"]["resourceVersion"]),
        ):
            regarding = each.get("regarding") or each.get("involvedObject") or {}
            what = f"{regarding.get('kind')}/{regarding.get('name')}"
            if about in what:
                found.append((what, each["reason"], each.get("note") or each.get("message") or ""))
        return found

    def commits_since(self, version: int) -> list[Commit]:
        """Return what was written after a version, but for Leases, which are renewed for ever, and events."""
        return [
            each
            for each in self.memory.commits
            if each.version > version and each.key[0] not in {"leases", "events"}
        ]

    # How

    def _install(self) -> None:
        for namespace in (NAMESPACE, WORKSPACE, "cattle-global-data"):
            self._put(("namespaces", "", namespace))
        plural = f"{RESERVATIONS}.kubefip.k8s.binbash.org"
        self._put(("customresourcedefinitions", "", plural), spec={})

    def _link_to(self, server: str) -> Link:
        guest = self._guest_behind(server)
        self.sessions[guest.id] += 1
        return Link(guest, before=guest.before, after=guest.after, instead=guest.instead)

    def _guest_behind(self, server: str) -> Guest:
        return self.guests[server.rpartition("/")[2]]

    def _judge(self, commit: Commit) -> None:
        plural, namespace, name = commit.key
        self.judge.take(
            Change(
                revision=commit.version,
                at=commit.at.timestamp(),
                plural=plural,
                namespace=namespace,
                name=name,
                obj=commit.obj,
            )
        )

    def _judge_guest(self, guest: Guest, commit: Commit) -> None:
        if commit.key[0] in {"configmaps", "services"}:
            self.carries(guest.id, used_by(guest), by_owner=not guest.is_asked)

    def carries(self, guest_id: str, texts: set[str], *, by_owner: bool = True) -> None:
        """Have the judge know which addresses a guest cluster uses now."""
        self.judge.take_carried(
            Carried(
                revision=self.memory.version,
                at=self.now.timestamp(),
                guest=guest_id,
                addresses=frozenset(texts),
                by_admin=by_owner,
            )
        )

    def _set_condition(self, guest_id: str, kind: str, status: str) -> None:
        found = self.memory.objects[CLUSTERS, "", guest_id]
        kept = [each for each in found["status"]["conditions"] if each["type"] not in {kind, "Ready"}]
        conditions = [*kept, self._condition(kind, status)]
        made = {**found["status"], "conditions": conditions}
        self.memory.put((CLUSTERS, "", guest_id), {**found, "status": made})

    def _put_management_cluster(
        self, guest_id: str, name: str, workspace: str, provider: str, *, connected: bool
    ) -> None:
        statuses = {"Provisioned": "True", "Connected": str(connected), "Ready": "True"}
        self._put(
            (CLUSTERS, "", guest_id),
            spec={"displayName": name, "fleetWorkspaceName": workspace},
            status={
                "provider": provider,
                "conditions": [self._condition(kind, status) for kind, status in statuses.items()],
            },
        )

    def _condition(self, kind: str, status: str) -> Json:
        return {"type": kind, "status": status, "lastUpdateTime": self.memory.timestamp()}

    def _put(
        self,
        key: Key,
        *,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **fields: object,
    ) -> None:
        made = _object(key)
        made["metadata"] |= {"annotations": dict(annotations or {}), "labels": dict(labels or {})}
        self._write_by_people(key, {**made, **fields})

    def _change(self, key: Key, spec: Mapping[str, object], *, is_all: bool = False) -> None:
        found = self.memory.objects[key]
        kept = {} if is_all else found.get("spec") or {}
        self._write_by_people(key, {**found, "spec": {**kept, **spec}})

    def _write_by_people(self, key: Key, obj: Json) -> None:
        self.judge.by_people.add(self.memory.version + 1)
        self.memory.put(key, obj)


def build_fleet(*guest_ids: str, **spec: Any) -> Fleet:
    """Return a fleet with a range of this spec, and these guest clusters."""
    fleet = Fleet()
    fleet.add_range(**spec)
    for guest_id in guest_ids:
        fleet.add_guest(guest_id)
    return fleet


def _object(key: Key) -> Json:
    metadata: Json = {"name": key[2]}
    if key[1]:
        metadata["namespace"] = key[1]
    return {"metadata": metadata}


def _kubeconfig(server: str) -> Json:
    """Return a kubeconfig as Rancher writes it."""
    cluster = {"server": server}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "guest", "cluster": cluster}],
        "users": [{"name": "guest", "user": {"token": "token"}}],
        "contexts": [{"name": "guest", "context": {"cluster": "guest", "user": "guest"}}],
        "current-context": "guest",
    }
