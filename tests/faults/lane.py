"""One real control plane with all that a plan needs around it; several lanes run side by side."""

import asyncio
import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from localfleet.assets import ensure
from localfleet.certificates import build_authority
from localfleet.controlplane import ControlPlane
from localfleet.crds import OUR_CRDS, RANCHER_CRDS, load_crds
from localfleet.faultproxy import FaultProxy, Schedule
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.installation import (
    ENDED,
    NAMESPACE,
    RELEASE,
    Installation,
    OperatorProcess,
    has_lost_lease,
)
from localfleet.kubeconfigs import build_kubeconfig, token_credential, write_kubeconfig
from localfleet.proxy import RancherProxy
from localfleet.rancher import RancherPlayer
from localfleet.rancher_plan import Guest, GuestKind
from localfleet.waiting import eventually
from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS, Json, RecordedGuest, Recorder
from tests.harness.provider_stand_in import ProviderStandIn

GROUP = "/apis/kubefip.k8s.binbash.org/v1"
HARVESTER = "harvester-1"
_NAMESPACES = "/api/v1/namespaces"
_CONFIG = f"{_NAMESPACES}/{NAMESPACE}/configmaps/kube-fip-config"
_PREDECESSOR = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/kube-fip-operator"
_RESERVATION_CRD = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/floatingipreservations.kubefip.k8s.binbash.org"
)
_NOT_BY_ITSELF = {"kubefip.k8s.binbash.org/floating-ip": "false"}
_TOKEN_SECONDS = 24 * 3600
LONG_SECONDS = 600
"""What is released stays in quarantine until a plan is judged, so that its end depends on no clock.

It is what fipop takes for a range that is gone, too.
"""


class Operator:
    """A real operator process behind a fault proxy of its own; started again whenever it ends.

    `ended` has the exit codes of those that ended by themselves, but for a lost Lease, which `lost` counts.
    """

    def __init__(self, name: str, process: OperatorProcess, proxy: FaultProxy) -> None:
        self.name = name
        self.process = process
        self.proxy = proxy
        self.killed = self.lost = 0
        self.ended: list[int] = []
        self._keeper: asyncio.Task[None] | None = None

    async def start(self, schedule: Schedule) -> None:
        self.proxy.begin(schedule)
        self.killed, self.lost, self.ended = 0, 0, []
        self.process.process.log.unlink(missing_ok=True)
        await self.process.process.start()
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        await self.process.process.stop(grace_seconds=0)

    def send_signal(self, number: signal.Signals) -> None:
        if self.process.process.is_running:
            os.kill(self.process.process.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def _keep(self) -> None:
        while True:
            code = await self.process.process.wait()
            if code == -signal.SIGKILL:
                self.killed += 1
            else:
                if code == ENDED and has_lost_lease(self.process.process.log):
                    self.lost += 1
                else:
                    self.ended.append(code)
                await asyncio.sleep(0.5)
            await self.process.process.start()


class Lane:
    """The control plane, Rancher, guests in memory, operators, and the recorder of all that happens."""

    def __init__(self, fleet: LocalFleet, number: int) -> None:
        self.number = number
        # No program of a lane asks the world outside: reading the system's authorities is a twentieth of each start.
        self._environment = {"SSL_CERT_FILE": os.devnull}
        self.guests: dict[str, RecordedGuest] = {}
        self.clusters: dict[str, str] = {}
        self.operators: dict[str, Operator] = {}
        self.passing: dict[str, Guest] = {}
        self.steady: dict[str, Guest] = {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = defaultdict(list)
        self._fleet = fleet
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.plane: ControlPlane = await self._fleet.management(f"lane-{self.number}", controllers=())
        await load_crds(self.plane.client, OUR_CRDS, RANCHER_CRDS)
        self.recorder = Recorder(self.plane.etcd.url, self.plane.name)
        await self.recorder.start()
        self._exits.push_async_callback(self.recorder.close)
        self._authority = build_authority(f"lane-{self.number}", datetime.now(UTC))
        self.rancher = await self._exits.enter_async_context(RancherProxy(self._authority))
        self.player = RancherPlayer(
            self.plane.client, self.rancher, kubeconfig_delay_seconds=0, token_delay_seconds=0, seed=1
        )
        await self.player.set_up()
        await self.player.create_harvester(HARVESTER)
        folder = self._fleet.folder / f"lane-{self.number}-operators"
        folder.mkdir()
        self._installation = Installation(
            plane=self.plane,
            helm=Helm(program=ensure("helm"), home=folder / "helm"),
            folder=folder,
            settings={
                "metricsPort": str(self._fleet.ports.reserve()),
                "kubevipGuestInstall": "disabled",
                "operateGuestClusterInterval": "30",
                "serviceVisitSeconds": "2",
            },
        )
        await self._installation.install()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in (each for tasks in self._tasks.values() for each in tasks):
            task.cancel()
        for operator in self.operators.values():
            await operator.stop()
        await self._exits.aclose()

    async def operator(self, name: str, *arguments: str) -> Operator:
        """The operator of that name; prepared where it was not yet."""
        if name in self.operators:
            return self.operators[name]
        operator: Operator | None = None

        def send_signal(number: signal.Signals) -> None:
            if operator is not None:
                operator.send_signal(number)

        proxy = await self._exits.enter_async_context(
            FaultProxy(
                self.plane.url,
                trust=self.plane.ca_pem,
                pair=self._authority.issue_server(["127.0.0.1"]),
                send_signal=send_signal,
            )
        )
        token = await self.plane.token_for(NAMESPACE, RELEASE, seconds=_TOKEN_SECONDS)
        kubeconfig = write_kubeconfig(
            self._installation.folder / f"{name}.kubeconfig",
            build_kubeconfig("proxy", proxy.url, self._authority.pem, "user", token_credential(token)),
        )
        process = await self._installation.operator(
            self._fleet.ports,
            f"--kubeconfig={kubeconfig}",
            *arguments,
            name=name,
            environment=self._environment,
        )
        operator = self.operators[name] = Operator(name, process, proxy)
        return operator

    # What an admin and Rancher do

    async def guest(self, number: int) -> str:
        """The id of a guest that lives as long as the lane; fipop makes no floating IP for it by itself."""
        guest_id = f"c-m-steady{number:02d}"
        if guest_id not in self.guests:
            plan = self.player.plan_guest(
                f"steady-{number}",
                kind=GuestKind.OTHER_MACHINES,
                cluster_id=guest_id,
                annotations=_NOT_BY_ITSELF,
            )
            self.steady[guest_id] = await self._bring_up(plan)
        return guest_id

    async def new_guest(self, name: str, *, kind: GuestKind = GuestKind.HARVESTER) -> str:
        """A guest as people make them; gone when the plan is done. Its id is made of its name."""
        guest_id = f"c-m-{name.replace('-', '')[:8]:x<8}"
        self.passing[guest_id] = await self._bring_up(
            self.player.plan_guest(name, cluster_id=guest_id, network="default/vlan10", kind=kind)
        )
        return guest_id

    def serve(self, guest_id: str) -> None:
        """Have a cloud provider work in a guest that is gone when the plan is done."""
        self.live_in(guest_id, ProviderStandIn(self.guests[guest_id]).run(0.1))

    def live_in(self, guest_id: str, life: Coroutine[None, None, None]) -> None:
        """Have something happen in a guest until that is gone."""
        self._tasks[guest_id].append(asyncio.create_task(life))

    async def renew_secret(self, guest_id: str) -> None:
        """Give a guest another kubeconfig Secret and token, as Rancher does when its own address changes."""
        await self.player.recreate_secret(self.steady[guest_id])

    async def set_predecessor(self, replicas: int) -> None:
        """Have a Deployment of kube-fip-operator with that many replicas wanted."""
        if await self.plane.client.find(_PREDECESSOR) is not None:
            await self.plane.client.patch(_PREDECESSOR, {"spec": {"replicas": replicas}})
            return
        labels = {"app": "kube-fip-operator"}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "op", "image": "example"}]},
        }
        await self.plane.client.create(
            _PREDECESSOR.rpartition("/")[0],
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "kube-fip-operator"},
                "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
            },
        )

    async def remove_guest(self, guest_id: str) -> None:
        """Remove a guest as Rancher does, its namespace at last (no controller here does it)."""
        for task in self._tasks.pop(guest_id, ()):
            task.cancel()
        await self.player.delete_guest(self.passing.pop(guest_id))
        gone = self.guests.pop(guest_id)
        gone.objects.clear()
        gone.note(await self.recorder.revision(), by_admin=True)
        await self._finish_namespace(guest_id)

    async def _bring_up(self, plan: Any) -> Guest:
        target = RecordedGuest(guest_id=plan.cluster_id, recorder=self.recorder, latency_seconds=0.0)
        self.guests[plan.cluster_id] = target
        self.clusters[plan.cluster_id] = plan.name
        _furnish(target)
        return await self.player.create_guest(plan, target)

    async def _finish_namespace(self, name: str) -> None:
        for key in [key for key in self.recorder.now if key[1] == name]:
            await self._delete(f"{GROUP}/namespaces/{name}/{key[0]}/{key[2]}")
        found = await self.plane.client.find(f"{_NAMESPACES}/{name}")
        if found is not None:
            found["spec"]["finalizers"] = []
            await self.plane.client.replace(f"{_NAMESPACES}/{name}/finalize", found)

    async def create_range(
        self, name: str, pool: str, *, annotations: Mapping[str, str] | None = None, **spec: Any
    ) -> Json:
        """A range whose quarantines outlast every plan, unless the story says otherwise."""
        return await self._create(
            f"{GROUP}/{RANGES}",
            {
                "apiVersion": "kubefip.k8s.binbash.org/v1",
                "kind": "FloatingIPRange",
                "metadata": {"name": name, "annotations": dict(annotations or {})},
                "spec": {"iprange": pool, "quarantineSeconds": LONG_SECONDS, **spec},
            },
        )

    async def edit_range(self, name: str, **spec: Any) -> None:
        await self._patch(f"{GROUP}/{RANGES}/{name}", None, spec)

    async def delete_range(self, name: str) -> None:
        """Delete a range, in use or not, as an admin who means it."""
        path = f"{GROUP}/{RANGES}/{name}"
        await self._patch(path, {"kubefip.k8s.binbash.org/allow-delete": "true"}, {})
        await self._delete(path)

    async def create_fip(
        self,
        guest: str,
        name: str,
        *,
        range_name: str | None = "r1",
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Json:
        """A floating IP as an admin makes one; `ipaddress` and the rest of the spec as keywords."""
        named = {"fiprange": range_name} if range_name else {}
        return await self._create(
            f"{GROUP}/namespaces/{guest}/{FLOATING_IPS}",
            {
                "apiVersion": "kubefip.k8s.binbash.org/v1",
                "kind": "FloatingIP",
                "metadata": {
                    "name": name,
                    "annotations": {
                        "clustername": self.clusters[guest],
                        "updateConfigMap": "true",
                        **named,
                        **(annotations or {}),
                    },
                },
                "spec": spec,
            },
        )

    async def create_plain_fip(self, namespace: str, name: str, range_name: str) -> None:
        """A floating IP in a namespace that belongs to no guest."""
        await self._create(
            f"{GROUP}/namespaces/{namespace}/{FLOATING_IPS}",
            {
                "apiVersion": "kubefip.k8s.binbash.org/v1",
                "kind": "FloatingIP",
                "metadata": {"name": name, "annotations": {"fiprange": range_name}},
            },
        )

    async def ensure_namespace(self, name: str) -> None:
        """A namespace that may be there already."""
        if await self.plane.client.find(f"{_NAMESPACES}/{name}") is None:
            await self.plane.create_namespace(name)

    async def edit_fip(
        self, guest: str, name: str, *, annotations: Mapping[str, str | None] | None = None, **spec: Any
    ) -> None:
        await self._patch(f"{GROUP}/namespaces/{guest}/{FLOATING_IPS}/{name}", annotations, spec)

    async def delete_fip(self, guest: str, name: str) -> None:
        await self._delete(f"{GROUP}/namespaces/{guest}/{FLOATING_IPS}/{name}")

    async def delete_reservation(self, name: str) -> None:
        await self._delete(f"{GROUP}/{RESERVATIONS}/{name}")

    async def forget_reservation_kind(self) -> None:
        """Be a cluster that fipop has never seen."""
        await self._delete(_RESERVATION_CRD)

        async def is_gone() -> bool:
            return await self.plane.client.find(_RESERVATION_CRD) is None

        await eventually(is_gone, what="the CRD to be gone")

    async def restore_reservation_kind(self) -> None:
        """Install fipop's CRDs, as an admin does before the operator."""
        await load_crds(self.plane.client, OUR_CRDS)

    async def _patch(self, path: str, annotations: Any, spec: Any) -> None:
        body: Json = {"spec": spec} if spec else {}
        if annotations:
            body["metadata"] = {"annotations": annotations}
        self._note_people(await self.plane.client.patch(path, body))

    async def _create(self, path: str, body: Json) -> Json:
        return self._note_people(await self.plane.client.create(path, body))

    def _note_people(self, answer: Json) -> Json:
        self.recorder.history.by_people.add(int(answer["metadata"]["resourceVersion"]))
        return answer

    async def _delete(self, path: str) -> None:
        if await self.plane.client.find(path) is not None:
            await self.plane.client.delete(path)

    async def _empty(self, collection: str) -> None:
        """Delete all there is, a few hundred with each request: after a crowd there are thousands."""
        while await self.plane.client.items(collection, limit="1"):
            await self.plane.client.delete(collection, limit="300")

    # What is seen

    def carried(self) -> dict[str, frozenset[str]]:
        """What each guest carries now."""
        return {guest_id: guest.addresses() for guest_id, guest in sorted(self.guests.items())}

    def bereft(self) -> list[str]:
        """What fipop took from people of the guests, or changed."""
        return [
            f"guest {guest_id} lacks {key}, which is not fipop's"
            for guest_id, guest in sorted(self.guests.items())
            for key in guest.bereft_of()
        ]

    def fip(self, guest: str, name: str) -> Json:
        """A floating IP as it is; empty where there is none."""
        return self.recorder.now.get((FLOATING_IPS, guest, name), {})

    def addresses(self, guest: str, name: str) -> list[str]:
        """The addresses that its status names."""
        return (self.fip(guest, name).get("status") or {}).get("addresses") or []

    def reservation(self, address: str) -> Json:
        """The reservation of an IPv4 address; empty where there is none."""
        return self.recorder.now.get((RESERVATIONS, "", f"default.{address}"), {})

    async def wait(self, is_so: Callable[[], bool], *, seconds: float, pause: float = 0.03) -> bool:
        """Wait until it is so; False where it was not in time. `pause` is for questions that take long."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(pause)
        return True

    async def reset(self) -> None:
        """Bring everything back to where it was before the first plan."""
        left = list(self.recorder.now)
        for namespace in sorted({key[1] for key in left if key[0] == FLOATING_IPS}):
            await self._empty(f"{GROUP}/namespaces/{namespace}/{FLOATING_IPS}")
        if any(key[0] == RESERVATIONS for key in left):
            await self._empty(f"{GROUP}/{RESERVATIONS}")
        for key in left:
            if key[0] == RANGES:
                await self.delete_range(key[2])
        for guest_id in list(self.passing):
            await self.remove_guest(guest_id)
        for guest in self.guests.values():
            guest.objects.clear()
            _furnish(guest)
        await self._delete(_CONFIG)
        await self._delete(_PREDECESSOR)
        await self.recorder.catch_up()
        self.recorder.begin()


def _furnish(guest: RecordedGuest) -> None:
    """Every second guest has a ConfigMap before fipop comes."""
    if guest.guest_id[-1] in "13579":
        guest.furnish()
    else:
        guest.theirs = {}
