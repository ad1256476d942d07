"""An API server in memory with what people and Rancher make there, and guests that are what a test says they carry."""

import asyncio
import base64
from datetime import datetime
from typing import Any

from fipop.api import names
from fipop.api.conditions import format_time
from fipop.api.models import ReleaseStatus
from fipop.deadlines import GUEST_SESSION_SECONDS
from fipop.errors import ApiUnreachableError, FipopError, PassTimeoutError
from fipop.guest.helm.charts import Role
from fipop.guest.in_use import InUseAddresses, addresses_in
from fipop.guest.reports import (
    ConfigMapOutcome,
    ConfigMapReport,
    EventResult,
    GuestTask,
    PassReport,
    ReleaseReport,
)
from fipop.guest.workloads import Readiness
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    HARVESTER_CONFIGS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PROVISIONING_CLUSTERS,
    SECRETS,
    Resource,
)
from fipop.metrics.samples import GuestEvent
from tests.harness.memory import Json, Memory
from tests.harness.objects import build_reservation
from tests.harness.stored import is_held

WORKSPACE = "fleet-default"


class Guests:
    """What the guests carry, each by its id; those that are `silent` cannot be asked.

    One of `slow` takes so many seconds to tell. A pass over one of `hanging` ends without an answer. Each other pass
    writes what the ledger grants to the ConfigMap, if it is permitted. It installs the `releases` of a guest that is
    opted in, and uninstalls those of one that is left, if its task says so. `looks` are the guests that were asked, in
    their order.
    """

    def __init__(self) -> None:
        self.config_maps: dict[str, str] = {}
        self.services: dict[str, str] = {}
        self.silent: set[str] = set()
        self.slow: dict[str, float] = {}
        self.hanging: set[str] = set()
        self.harvesters: set[str] = set()
        self.releases: dict[str, set[tuple[str, str]]] = {}
        self.looks: list[str] = []

    async def is_harvester(self, guest_id: str, kubeconfig: bytes) -> bool:
        await self.look(guest_id, kubeconfig)
        return guest_id in self.harvesters

    async def look(self, guest_id: str, _kubeconfig: bytes, **_: object) -> InUseAddresses:
        self.looks.append(guest_id)
        await asyncio.sleep(self.slow.get(guest_id, 0.0))
        if guest_id in self.silent:
            raise ApiUnreachableError(verb="list", kind="ConfigMap", name="", reason="no answer")
        config_map = {
            "metadata": {"name": "kubevip", "namespace": "kube-system"},
            "data": {"cidr-global": self.config_maps.get(guest_id, "")},
        }
        service = {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [{"ip": self.services.get(guest_id, "")}]}},
        }
        return addresses_in([config_map], [service])

    async def run_pass(self, task: GuestTask, **_: object) -> PassReport:
        if task.guest.id in self.hanging:
            await asyncio.sleep(GUEST_SESSION_SECONDS)
            report = _unanswered()
            task.memory.note_failure(Role.KUBE_VIP, "digest", report.error)
            return report
        error: FipopError | None = None
        outcome = ConfigMapOutcome.WITHHELD
        try:
            if await task.before_write():
                granted = (f"{each}/{128 if ':' in each else 32}" for each in sorted(task.granted))
                self.config_maps[task.guest.id] = ",".join(granted)
                outcome = ConfigMapOutcome.WRITTEN
        except FipopError as refusal:
            error, outcome = refusal, ConfigMapOutcome.FAILED
        installed = self.releases.setdefault(task.guest.id, set())
        if task.opted_in:
            installed |= {("kube-system", role.value) for role in Role}
        if task.may_remove:
            installed -= task.reported
        return PassReport(
            reachable=True,
            error=error,
            config_map=ConfigMapReport(outcome=outcome, error=error),
            releases=tuple(_release(role) for role in Role) if task.opted_in else (),
            has_ours=bool(installed & task.reported) if task.leaving else None,
            events=(),
            retry_after_seconds=2.0 if outcome is ConfigMapOutcome.WITHHELD else None,
        )


def _unanswered() -> PassReport:
    return PassReport(
        reachable=False,
        error=PassTimeoutError(seconds=GUEST_SESSION_SECONDS),
        config_map=ConfigMapReport(),
        releases=(),
        events=(EventResult(event=GuestEvent.API_CONNECTION, success=False),),
        retry_after_seconds=None,
    )


def _release(role: Role) -> ReleaseReport:
    return ReleaseReport(
        release=ReleaseStatus(
            role=role.value,
            name=role.value,
            namespace="kube-system",
            revision=1,
            digest="digest",
            version="1.0.0",
            status="deployed",
        ),
        readiness=Readiness(ready=True, message=""),
    )


class SmallCluster:
    """What is there, and what people do to it. Floating IPs are named "web" unless a test says otherwise."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.carried = Guests()

    def add_range(
        self, name: str = "pool", iprange: str = "10.0.0.10-10.0.0.13", *, harvester: str = "", **spec: object
    ) -> None:
        annotations = {names.ANNOTATION_HARVESTER_CLUSTER: harvester} if harvester else {}
        self.put(FLOATING_IP_RANGES, "", name, annotations=annotations, spec={"iprange": iprange, **spec})

    def change_range(self, name: str = "pool", **spec: object) -> None:
        self.change(FLOATING_IP_RANGES, "", name, spec)

    def add_guest(
        self,
        guest_id: str,
        *,
        imported: bool = False,
        connected: bool = True,
        named: str = "",
        workspace: str = WORKSPACE,
        provider: str = "k3s",
        is_served: bool = False,
        custom: bool = False,
    ) -> None:
        """Have a guest in Rancher that is Ready from now on; `named` is its cluster's name.

        An administrator made the machines of a `custom` one, and registered them. Of one that `is_served` a floating IP
        is made by itself.
        """
        name = named or f"cluster-{guest_id}"
        annotations = {names.ANNOTATION_FLOATING_IP: "true" if is_served else "false"}
        ready = {"type": "Ready", "status": "True", "lastUpdateTime": format_time(self.memory.now)}
        conditions = [{"type": "Connected", "status": "True" if connected else "False"}, ready]
        self.put(NAMESPACES, "", guest_id)
        self.put(
            MANAGEMENT_CLUSTERS,
            "",
            guest_id,
            spec={"displayName": name, "fleetWorkspaceName": workspace},
            status={"provider": provider, "conditions": conditions},
        )
        self.put(
            SECRETS,
            workspace,
            f"{name}-kubeconfig",
            data={"value": base64.b64encode(b"kubeconfig").decode()},
        )
        self.put(
            PROVISIONING_CLUSTERS,
            workspace,
            name,
            annotations=annotations,
            spec={}
            if imported
            else {"rkeConfig": {"machinePools": [] if custom else [{"name": "machines"}]}},
            status={"clusterName": guest_id},
        )

    def put_on_harvester(self, guest_id: str, harvester: str) -> None:
        """Have a guest's machines on a Harvester cluster, which Rancher knows by that name."""
        self.put(
            MANAGEMENT_CLUSTERS,
            "",
            f"c-{harvester}",
            spec={"displayName": harvester},
            status={"provider": "harvester"},
        )
        # Nobody watches this kind: it is only read.
        self.memory.objects[HARVESTER_CONFIGS.plural, WORKSPACE, f"nodes-{guest_id}"] = {
            "metadata": {"name": f"nodes-{guest_id}", "resourceVersion": "1"},
            "networkName": "vlan1",
        }
        secret = base64.b64encode(f"c-{harvester}".encode()).decode()
        self.put(
            SECRETS,
            "cattle-global-data",
            f"cc-{harvester}",
            data={"harvestercredentialConfig-clusterId": secret},
        )
        pool = {
            "controlPlaneRole": True,
            "machineConfigRef": {"kind": "HarvesterConfig", "name": f"nodes-{guest_id}"},
        }
        key = (PROVISIONING_CLUSTERS.plural, WORKSPACE, f"cluster-{guest_id}")
        spec = {
            "cloudCredentialSecretName": f"cattle-global-data:cc-{harvester}",
            "rkeConfig": {"machinePools": [pool]},
        }
        self.memory.put(key, {**self.memory.objects[key], "spec": spec})

    def rename_harvester(self, harvester: str, name: str) -> None:
        """Rename a Harvester cluster in Rancher; its id stays."""
        key = (MANAGEMENT_CLUSTERS.plural, "", f"c-{harvester}")
        self.memory.put(key, {**self.memory.objects[key], "spec": {"displayName": name}})

    def label_guest(self, guest_id: str, **labels: str) -> None:
        """Put labels on a guest's provisioning Cluster."""
        key = (PROVISIONING_CLUSTERS.plural, WORKSPACE, f"cluster-{guest_id}")
        found = self.memory.objects[key]
        self.memory.put(key, {**found, "metadata": {**found["metadata"], "labels": labels}})

    def connect(self, guest_id: str) -> None:
        self._set_connected(guest_id, "True")

    def disconnect(self, guest_id: str) -> None:
        self._set_connected(guest_id, "False")

    def _set_connected(self, guest_id: str, status: str) -> None:
        key = (MANAGEMENT_CLUSTERS.plural, "", guest_id)
        connected = {"provider": "k3s", "conditions": [{"type": "Connected", "status": status}]}
        self.memory.put(key, {**self.memory.objects[key], "status": connected})

    def remove_guest(self, guest_id: str) -> None:
        """Take a guest out of Rancher; whether it still runs, nobody there knows then."""
        self.memory.remove((PROVISIONING_CLUSTERS.plural, WORKSPACE, f"cluster-{guest_id}"))
        self.memory.remove((MANAGEMENT_CLUSTERS.plural, "", guest_id))

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
        """Make a floating IP for a guest, of no range if `range_name` is ""; `has` is what its status names already.

        `guest` is what the status says of the guest.
        """
        status = {"addresses": [has], "range": "pool", "addressSpace": space, "observedGeneration": 1}
        status |= {"guest": guest} if guest is not None else {}
        self.put(
            FLOATING_IPS,
            guest_id,
            name,
            annotations={names.ANNOTATION_RANGE: range_name} if range_name else {},
            spec={"ipaddress": ipaddress or has, **spec},
            **({"status": status} if has else {}),
        )

    def ask_for_another(self, guest_id: str, ipaddress: str) -> None:
        self.change(FLOATING_IPS, guest_id, "web", {"ipaddress": ipaddress})

    def ask_for_range(self, guest_id: str, range_name: str) -> None:
        """Have the floating IP of a guest name another range."""
        key = (FLOATING_IPS.plural, guest_id, "web")
        found = self.memory.objects[key]
        metadata = {**found["metadata"], "annotations": {names.ANNOTATION_RANGE: range_name}}
        self.memory.put(key, {**found, "metadata": metadata})

    def ignore_claims(self, guest_id: str, *claimants: str) -> None:
        """Have the floating IP of a guest name guests whose reports do not count, as an administrator does."""
        key = (FLOATING_IPS.plural, guest_id, "web")
        found = self.memory.objects[key]
        ignored = {names.ANNOTATION_IGNORE_CLAIM: ",".join(claimants)}
        annotations = found["metadata"]["annotations"] | ignored
        self.memory.put(key, {**found, "metadata": {**found["metadata"], "annotations": annotations}})

    def move_to_space(self, *guest_ids: str, iprange: str, space: str = "lab", **spec: object) -> None:
        """Make a range of a name of its own in another space, and have these guests' floating IPs name it."""
        self.add_range(space, iprange, addressSpace=space, **spec)
        for guest_id in guest_ids:
            self.ask_for_range(guest_id, space)

    def pause(self, guest_id: str) -> None:
        """Pause the floating IP of a guest."""
        key = (FLOATING_IPS.plural, guest_id, "web")
        found = self.memory.objects[key]
        annotations = {**found["metadata"]["annotations"], names.ANNOTATION_PAUSED: "true"}
        self.memory.put(key, {**found, "metadata": {**found["metadata"], "annotations": annotations}})

    def give_up(self, guest_id: str, name: str = "web") -> None:
        """Delete a floating IP of a guest."""
        self.memory.remove((FLOATING_IPS.plural, guest_id, name))

    def reserve(
        self,
        address: str,
        guest_id: str,
        *,
        until: datetime | None = None,
        space: str = "default",
        before: str = "",
        range_name: str = "pool",
    ) -> None:
        """Have a reservation, of the guest's floating IP if there is one; `before` is a guest that had it once."""
        owner = self.memory.objects.get((FLOATING_IPS.plural, guest_id, "web"))
        made = build_reservation(
            address,
            "web",
            range_name=range_name,
            namespace=guest_id,
            uid=owner["metadata"]["uid"] if owner else "dead",
            cluster=f"cluster-{guest_id}",
            space=space,
            since=self.memory.timestamp(),
            quarantined_until=until.strftime("%Y-%m-%dT%H:%M:%SZ") if until is not None else None,
            history=[{"namespace": before, "name": "web", "releasedAt": self.memory.timestamp()}]
            if before
            else None,
        )
        self.put(FLOATING_IP_RESERVATIONS, "", made["metadata"]["name"], spec=made["spec"])

    def remove_reservation(self, name: str) -> None:
        """Delete a reservation by hand."""
        self.memory.remove((FLOATING_IP_RESERVATIONS.plural, "", name))

    # What is so

    def asked_for(self, guest_id: str) -> str:
        """Give what the spec of a guest's floating IP names."""
        return str(self.memory.objects[FLOATING_IPS.plural, guest_id, "web"]["spec"]["ipaddress"])

    def holders(self, address: str) -> set[str]:
        """Give the guests that have an address, in whatever space: by a reservation, or by a status."""
        found = set()
        for (plural, namespace, _), each in self.memory.objects.items():
            spec = each.get("spec") or {}
            if plural == FLOATING_IP_RESERVATIONS.plural and spec["address"] == address and is_held(each):
                found.add(spec["owner"]["namespace"])
            if plural == FLOATING_IPS.plural and address in (each.get("status") or {}).get("addresses", ()):
                found.add(namespace)
        return found

    def quarantined(self) -> set[str]:
        """Give the names of the reservations that are in quarantine."""
        return {
            key[2]
            for key, each in self.memory.objects.items()
            if key[0] == FLOATING_IP_RESERVATIONS.plural and not is_held(each)
        }

    def held(self) -> dict[str, str]:
        """Give the guest of every reservation that is held, by its name."""
        return {
            key[2]: each["spec"]["owner"]["namespace"]
            for key, each in sorted(self.memory.objects.items())
            if key[0] == FLOATING_IP_RESERVATIONS.plural and is_held(each)
        }

    # How

    def put(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        annotations: dict[str, str] | None = None,
        **fields: object,
    ) -> None:
        metadata: Json = {"name": name, "annotations": annotations or {}}
        if namespace:
            metadata["namespace"] = namespace
        self.memory.put((resource.plural, namespace, name), {"metadata": metadata, **fields})

    def change(self, resource: Resource, namespace: str, name: str, spec: dict[str, Any]) -> None:
        key = (resource.plural, namespace, name)
        found = self.memory.objects[key]
        self.memory.put(key, {**found, "spec": {**found["spec"], **spec}})
