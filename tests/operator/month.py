"""What happens in an ordinary month to a fleet: acts of administrators, of Rancher, and of owners of guest clusters."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

from fipop.api import names
from fipop.interfaces import ApiRequest
from tests.harness.api_in_memory import Json, Key, copy_json
from tests.harness.fleet import CLUSTERS, WORKSPACE, Fleet, Guest, services_of, written_to
from tests.harness.history import FLOATING_IPS, RANGES, RESERVATIONS
from tests.harness.invariants.uses import LATE_SECONDS, SENT_AT, Oracle
from tests.harness.provider_stand_in import ProviderStandIn
from tests.harness.stored import is_held, of_kind

FIRST = ("c-m-a", "c-m-b", "c-m-c")
MOST_GUESTS = 5
WORKSPACES = (WORKSPACE, "fleet-other")
FLOATING_IP_NAMES = ("web", "api", "mail")
RANGE_NAMES = ("pool", "other", "third")
POOLS = (
    "10.0.0.10-10.0.0.13,fd00::10-fd00::12",
    "10.0.0.13-10.0.0.16",
    "10.0.0.10-10.0.0.16,fd00::10-fd00::12",
    "10.0.0.15-10.0.0.18,fd00::11-fd00::13",
)
"""Any two of them may overlap."""
PER_GUEST: tuple[Json, ...] = (
    {"minAllocate": 1, "preAllocate": 0, "maxAllocate": 3, "releaseAfterSeconds": 60},
    {"minAllocate": 1, "preAllocate": 1, "maxAllocate": 2, "releaseAfterSeconds": 120},
)
POLICIES = ("SingleStack", "PreferDualStack", "RequireDualStack")
LABELS: tuple[Mapping[str, str], ...] = ({}, {"net": "blue"}, {"net": "red"})
SELECTORS: tuple[Json, ...] = ({"matchLabels": {}}, {"matchLabels": {}}, {"matchLabels": {"net": "blue"}})
INTERVALS = ("480", "30")
MISTYPED = "clutser-0"
NO_MACHINES: Json = {"machinePools": []}
"""Of a custom cluster, whose machines an administrator registered."""


@dataclass(slots=True, kw_only=True)
class GuestAtWork(Guest):
    """A guest cluster whose owner works, whose writes may arrive late, and whose answers the oracle hears."""

    chance: Random
    oracle: Oracle
    is_gone: bool = False
    """Whether Rancher has no connection to it, for ever."""
    is_over: bool = False
    """Whether the trouble is over."""

    async def before(self, request: ApiRequest) -> None:
        """Answer as this guest cluster does; a few writes arrive when their sender has given up."""
        SENT_AT.set(asyncio.get_running_loop().time())
        if self.is_gone:
            raise ConnectionError("gone")
        await Guest.before(self, request)
        if request.method != "GET" and not self.is_over and self.chance.random() < 0.03:
            loop = asyncio.get_running_loop()
            loop.call_later(self.chance.uniform(0.0, LATE_SECONDS), self.answer, request)
            raise ConnectionError("late")

    async def after(self, request: ApiRequest) -> None:
        """Have the oracle know what the operator is told now."""
        target = self.parse(request.path)
        is_list = request.method == "GET" and target is not None and not target.name
        if target is not None and is_list and target.plural in {"configmaps", "services"} - self.forbidden:
            self.oracle.note_answer(self, target.plural)
        await Guest.after(self, request)


@dataclass
class Month:
    """The acts, and the `chance` that decides among them."""

    fleet: Fleet
    oracle: Oracle
    chance: Random
    restart_all: Callable[[], None]
    """Ends all operators as SIGKILL does; others are started in their place."""
    snapshot: dict[Key, Json] = field(default_factory=dict)
    made: int = 0
    has_demand: bool = False
    """Whether Services wait for addresses, and range `pool` has fipop make floating IPs for them."""
    providers: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self) -> None:
        """Have a fleet."""
        self.fleet.write(("namespaces", "", WORKSPACES[1]), {"metadata": {"name": WORKSPACES[1]}})
        for number, guest_id in enumerate(FIRST):
            self._add_guest(guest_id, f"cluster-{number}", is_served=number == 0, imported=number == 2)
        # Frequent visits are what shows an operator that acts on what it knows no more.
        self.fleet.set_options(operateGuestClusterInterval=self.chance.choice(INTERVALS))
        self.fleet.add_range("pool", POOLS[0], quarantineSeconds=0, clusterSelector={"matchLabels": {}})
        if self.has_demand:
            self.fleet.change_range("pool", perGuest=PER_GUEST[0])

    def act(self) -> None:
        """Do one thing that an administrator, Rancher or the owner of a guest cluster may do."""
        if not self.clusters():
            self._add_again("cluster-0", WORKSPACE, is_served=True)
        acts: tuple[tuple[Callable[[], None], int], ...] = (
            (self._ask, 22),
            (self._give_up, 8),
            (self._edit, 14),
            (self._use_key, 12),
            (self._stop_using, 8),
            (self._use_by_hand, 8),
            (self._extend_key, 1),
            (self._replace, 3),
            (self._rename, 3),
            (self._mistype, 2),
            (self._pause, 3),
            (self._edit_range, 5),
            (self._remove_range, 1),
            (self._make_range, 2),
            (self._rebuild, 3),
            (self._connect, 4),
            (self._relabel, 2),
            (self._leave_without, 1),
            (self._free_by_hand, 2),
            (self._forbid, 1),
            (self._restore, 1),
            (self._restart_without_rancher, 2),
            *(((self._need_an_address, 40), (self._change_demand, 2)) if self.has_demand else ()),
        )
        self.chance.choices([each for each, _ in acts], [weight for _, weight in acts])[0]()

    def calm(self) -> None:
        """Have everything connected, and correct what keeps fipop from its work."""
        self.fleet.set_options(operateGuestClusterInterval=INTERVALS[0])
        for guest in self._guests():
            guest.silent, guest.seconds, guest.lost_answers, guest.status, guest.is_over = (
                False,
                0.0,
                0,
                0,
                True,
            )
            guest.forbidden.clear()
        for each in of_kind(self.fleet.memory.objects, CLUSTERS):
            if not each["metadata"].get("namespace"):
                if not self._guest(each["metadata"]["name"]).is_gone:
                    self.fleet.connect(each["metadata"]["name"])
            else:
                self._annotate(CLUSTERS, each, names.ANNOTATION_PAUSED)
        for each in of_kind(self.fleet.memory.objects, FLOATING_IPS):
            self._annotate(FLOATING_IPS, each, names.ANNOTATION_PAUSED, names.ANNOTATION_CLUSTER)

    def _guests(self) -> list[GuestAtWork]:
        return [each for each in self.fleet.guests.values() if isinstance(each, GuestAtWork)]

    def clusters(self) -> list[Json]:
        """Return the provisioning Clusters of guest clusters."""
        return [
            each for each in of_kind(self.fleet.memory.objects, CLUSTERS) if each["metadata"].get("namespace")
        ]

    # Floating IPs

    def _ask(self) -> None:
        guest_id, name = self._guest_id(), self.chance.choice(FLOATING_IP_NAMES)
        if (FLOATING_IPS, guest_id, name) in self.fleet.memory.objects or not self._has_namespace(guest_id):
            return
        spec: dict[str, object] = {}
        if self.chance.random() < 0.3:
            spec["ipFamilyPolicy"] = self.chance.choice(POLICIES[1:])
        ipaddress = self._address() if self.chance.random() < 0.4 else ""
        range_name = self.chance.choice(("pool", "pool", "other", "third", ""))
        self.fleet.ask(guest_id, ipaddress, name=name, range_name=range_name, **spec)

    def _give_up(self) -> None:
        if found := self._any_floating_ip():
            self.fleet.give_up(*_names(found))

    def _edit(self) -> None:
        found = self._any_floating_ip()
        if found is None:
            return
        spec, metadata = dict(found.get("spec") or {}), dict(found["metadata"])
        draw = self.chance.random()
        if draw < 0.5:
            spec["ipaddress"] = self._address() if self.chance.random() < 0.8 else ""
        elif draw < 0.7:
            spec["ipFamilyPolicy"] = self.chance.choice(POLICIES)
        else:
            kept = metadata.get("annotations") or {}
            metadata["annotations"] = {**kept, names.ANNOTATION_RANGE: self.chance.choice(RANGE_NAMES)}
        self.fleet.write((FLOATING_IPS, *_names(found)), {**found, "metadata": metadata, "spec": spec})

    def _replace(self) -> None:
        """Replace a floating IP by one of the same name, as Flux does with force: with what Git has of it."""
        found = self._any_floating_ip()
        if found is None:
            return
        self.fleet.give_up(*_names(found))
        seconds = self.chance.choice((0.0, 0.0, 3.0, 100.0))
        keeps_address = self.chance.random() < 0.5
        asyncio.get_running_loop().call_later(
            seconds, self._make_again, found, _names(found)[1], keeps_address
        )

    def _rename(self) -> None:
        """Delete a floating IP, and create one of another name that asks for its address."""
        found = self._any_floating_ip()
        if found is None:
            return
        name = self.chance.choice([each for each in FLOATING_IP_NAMES if each != found["metadata"]["name"]])
        if self.chance.random() < 0.5:
            self._make_again(found, name, True)
            self.fleet.give_up(*_names(found))
        else:
            self.fleet.give_up(*_names(found))
            self._make_again(found, name, True)

    def _make_again(self, found: Json, name: str, keeps_address: bool) -> None:
        guest_id = found["metadata"]["namespace"]
        if (FLOATING_IPS, guest_id, name) in self.fleet.memory.objects or not self._has_namespace(guest_id):
            return
        spec = {**found["spec"], **({} if keeps_address else {"ipaddress": ""})}
        metadata = {"annotations": dict(found["metadata"].get("annotations") or {})}
        self.fleet.write((FLOATING_IPS, guest_id, name), {"metadata": metadata, "spec": spec})

    def _mistype(self) -> None:
        """Name a cluster in a floating IP that is not its guest cluster, or correct that."""
        if found := self._any_floating_ip():
            self._toggle(FLOATING_IPS, found, names.ANNOTATION_CLUSTER, MISTYPED)

    def _leave_without(self) -> None:
        """Delete all floating IPs of a guest cluster."""
        guest_id = self._guest_id()
        for each in of_kind(self.fleet.memory.objects, FLOATING_IPS):
            if each["metadata"]["namespace"] == guest_id:
                self.fleet.give_up(*_names(each))

    def _free_by_hand(self) -> None:
        """Delete a reservation in quarantine, to free its address."""
        found = [each for each in of_kind(self.fleet.memory.objects, RESERVATIONS) if not is_held(each)]
        if found:
            self.fleet.remove_reservation(self.chance.choice(found)["metadata"]["name"])

    # Ranges

    def _edit_range(self) -> None:
        name, draw = self.chance.choice(RANGE_NAMES), self.chance.random()
        if (RANGES, "", name) not in self.fleet.memory.objects:
            return
        if draw < 0.4:
            self.fleet.change_range(name, iprange=self.chance.choice(POOLS))
        elif draw < 0.6:
            self.fleet.change_range(name, draining=self.chance.random() < 0.5)
        elif draw < 0.8:
            self.fleet.change_range(name, clusterSelector=self.chance.choice(SELECTORS))
        else:
            self.fleet.change_range(name, restrictToMatching=self.chance.random() < 0.5)

    def _remove_range(self) -> None:
        name = self.chance.choice(RANGE_NAMES)
        if (RANGES, "", name) in self.fleet.memory.objects:
            self.fleet.remove_range(name)

    def _make_range(self) -> None:
        missing = [each for each in RANGE_NAMES if (RANGES, "", each) not in self.fleet.memory.objects]
        if missing:
            name = self.chance.choice(missing)
            spec: dict[str, object] = {"quarantineSeconds": self.chance.choice((0, 0, 120, 300))}
            if self.chance.random() < 0.7:
                spec["clusterSelector"] = self.chance.choice(SELECTORS)
            if name == "other":
                spec["maxPerGuest"] = 2
            self.fleet.add_range(name, self.chance.choice(POOLS), **spec)

    # Rancher

    def _add_guest(
        self,
        guest_id: str,
        name: str,
        *,
        workspace: str = WORKSPACE,
        is_served: bool = False,
        imported: bool = False,
        custom: bool = False,
        former: str = "",
    ) -> None:
        guest = GuestAtWork(id=guest_id, chance=Random(self.chance.random()), oracle=self.oracle)
        self.fleet.guests[guest_id] = guest
        objects = dict(self.fleet.guests[former].objects) if former else {}
        for key, each in objects.items():
            guest.put(key, each)
        # In its pages Rancher imports a cluster under an id, and people know it by another name.
        is_by_id = imported and self.chance.random() < 0.5
        self.fleet.add_guest(
            guest_id,
            named=guest_id if is_by_id else name,
            called=name,
            workspace=workspace,
            is_served=is_served or self.has_demand,
            imported=imported,
            custom=custom,
            labels=self.chance.choice(LABELS),
        )
        if self.has_demand:
            late = Random(self.chance.random())
            provider = ProviderStandIn(guest, lags=lambda: late.random() < 0.7 and not guest.is_over)
            self.providers.append(asyncio.get_running_loop().create_task(provider.run()))
        if former:
            self.oracle.note_joined(guest, former)

    def _rebuild(self) -> None:
        """Take a guest cluster out of Rancher; build it again under its name, here or in another workspace.

        An imported or custom one runs on, and may be registered again with all that it has.
        """
        found = self.chance.choice(self.clusters())
        guest_id, name, workspace = (
            _guest_id(found),
            found["metadata"]["name"],
            found["metadata"]["namespace"],
        )
        called = self.fleet.memory.objects[CLUSTERS, "", guest_id]["spec"]["displayName"]
        machines = found["spec"].get("rkeConfig")
        imported, custom = machines is None, machines == NO_MACHINES
        self.oracle.note_left(guest_id, lives_on=imported or custom)
        self.fleet.remove_guest(guest_id, workspace=workspace, named=name)
        self._guest(guest_id).is_gone = True
        loop = asyncio.get_running_loop()
        loop.call_later(self.chance.choice((0.0, 2.0, 8.0)), self._remove_namespace, guest_id)
        is_again = (imported or custom) and self.chance.random() < 0.7
        add = partial(
            self._add_again,
            called,
            workspace if self.chance.random() < 0.7 else self.chance.choice(WORKSPACES),
            is_served=self.chance.random() < 0.5,
            imported=imported if is_again else self.chance.random() < 0.2,
            custom=custom if is_again else False,
            former=guest_id if is_again else "",
        )
        loop.call_later(self.chance.choice((0.0, 1.0, 10.0, 100.0)), add)

    def _add_again(self, name: str, workspace: str, **options: object) -> None:
        if (CLUSTERS, workspace, name) in self.fleet.memory.objects or len(self.clusters()) >= MOST_GUESTS:
            return
        self.made += 1
        self._add_guest(f"c-m-n{self.made}", name, workspace=workspace, **options)  # type: ignore[arg-type]

    def _remove_namespace(self, guest_id: str) -> None:
        if self._has_namespace(guest_id) and (CLUSTERS, "", guest_id) not in self.fleet.memory.objects:
            self.fleet.memory.delete(("namespaces", "", guest_id))

    def _connect(self) -> None:
        """Have the agent of a guest cluster lose Rancher, or find it again."""
        guest_id = self._guest_id()
        if (CLUSTERS, "", guest_id) not in self.fleet.memory.objects or self._guest(guest_id).is_gone:
            return
        if self._guest(guest_id).silent:
            self._guest(guest_id).silent = False
            self.fleet.connect(guest_id)
        else:
            self._guest(guest_id).silent = True
            self.fleet.disconnect(guest_id)

    def _relabel(self) -> None:
        found = self.chance.choice(self.clusters())
        workspace, name = found["metadata"]["namespace"], found["metadata"]["name"]
        labels = self.chance.choice(LABELS)
        self.fleet.label_guest(_guest_id(found), workspace=workspace, named=name, **labels)

    def _pause(self) -> None:
        """Pause a floating IP or a cluster, or let it go on."""
        plural, found = FLOATING_IPS, self._any_floating_ip()
        if found is None or self.chance.random() < 0.3:
            plural, found = CLUSTERS, self.chance.choice(self.clusters())
        self._toggle(plural, found, names.ANNOTATION_PAUSED, "true")

    def _restore(self) -> None:
        """Restore the store of the management cluster from a snapshot, or make one.

        Versions go on (the revision is bumped, as Kubernetes wants it). Watches show nothing of it. In half of the
        cases all operators end: a leader that nobody succeeds for so long left a Lease that tells nothing any more.
        """
        if not self.snapshot or self.chance.random() < 0.5:
            self.snapshot = dict(self.fleet.memory.objects)
            return
        memory, before = self.fleet.memory, {_guest_id(each): _lives_on(each) for each in self.clusters()}
        memory.objects.clear()
        memory.objects.update({key: copy_json(each) for key, each in self.snapshot.items()})
        memory.version += 1000
        self.oracle.note_restored()
        for guest_id in before.keys() - set(map(_guest_id, self.clusters())):
            self.oracle.note_left(guest_id, lives_on=before[guest_id])
        for guest in self._guests():
            if guest.is_gone and (CLUSTERS, "", guest.id) in memory.objects:
                self.fleet.disconnect(guest.id)  # Rancher has the objects of a cluster that is gone
        if self.chance.random() < 0.5:
            for key in memory.of_kind("leases"):
                memory.remove(key)
            self.restart_all()

    def _restart_without_rancher(self) -> None:
        """Have all operators start while Rancher's proxy is away."""
        loop, seconds = asyncio.get_running_loop(), self.chance.choice((10.0, 50.0, 100.0))
        for guest in self._guests():
            guest.status = 503
            loop.call_later(seconds, setattr, guest, "status", 0)
        self.restart_all()

    # Owners of guest clusters

    def _use_key(self) -> None:
        """Have a Service take an address from fipop's key, as the cloud provider or a user does."""
        guest = self._guest(self._guest_id())
        free = written_to(guest) - services_of(guest)
        if free:
            self._add_service(guest, self.chance.choice(sorted(free)))

    def _need_an_address(self) -> None:
        """Have a Service that the provider serves once it can, or delete one."""
        guest = self._guest(self._guest_id())
        found = sorted(key for key in guest.of_kind("services") if key[2].startswith("need-"))
        if found and self.chance.random() < 0.4:
            guest.remove(self.chance.choice(found))
            return
        self.made += 1
        families = self.chance.choice((["IPv4"], ["IPv4"], ["IPv6"], ["IPv4", "IPv6"]))
        policy = self.chance.choice(POLICIES) if len(families) > 1 else "SingleStack"
        guest.add_service(name=f"need-{self.made}", ipFamilies=families, ipFamilyPolicy=policy)

    def _change_demand(self) -> None:
        if (RANGES, "", "pool") in self.fleet.memory.objects:
            self.fleet.change_range("pool", perGuest=self.chance.choice(PER_GUEST))

    def _stop_using(self) -> None:
        guest = self._guest(self._guest_id())
        found = sorted(guest.of_kind("services"))
        if found:
            guest.remove(self.chance.choice(found))

    def _use_by_hand(self) -> None:
        """Have a Service use an address that nobody assigned to this guest cluster."""
        guest, text = self._guest(self._guest_id()), self._address().partition(",")[0]
        if text not in services_of(guest):
            self._add_service(guest, text)

    def _add_service(self, guest: Guest, text: str) -> None:
        name, draw = f"web-{text.replace(':', '-').replace('.', '-')}", self.chance.random()
        if draw < 0.8:
            guest.add_service(text, name=name)
        else:
            guest.add_service(name=name, loadBalancerIP=text)

    def _extend_key(self) -> None:
        """Have the owner of a guest cluster extend fipop's key by an address."""
        guest = self._guest(self._guest_id())
        found = guest.config_map
        if not found:
            return
        name = self.chance.choice(sorted(found))
        text = self._address().partition(",")[0]
        length = "128" if ":" in text else "32"
        guest.write_config_map(**{name: f"{found[name]},{text}/{length}"})

    def _forbid(self) -> None:
        """Have a guest cluster refuse to show its Services, or show them again."""
        guest = self._guest(self._guest_id())
        guest.forbidden.symmetric_difference_update({"services"})

    # How

    def _guest_id(self) -> str:
        return self.chance.choice([_guest_id(each) for each in self.clusters()] or [*FIRST])

    def _guest(self, guest_id: str) -> GuestAtWork:
        found = self.fleet.guests[guest_id]
        assert isinstance(found, GuestAtWork)
        return found

    def _has_namespace(self, guest_id: str) -> bool:
        return ("namespaces", "", guest_id) in self.fleet.memory.objects

    def _any_floating_ip(self) -> Json | None:
        found = of_kind(self.fleet.memory.objects, FLOATING_IPS)
        return self.chance.choice(found) if found else None

    def _address(self) -> str:
        named = f"10.0.0.{self.chance.randrange(10, 19)}", f"fd00::1{self.chance.randrange(4)}"
        return self.chance.choice((named[0], named[0], named[1], ",".join(named)))

    def _toggle(self, plural: str, found: Json, annotation: str, value: str) -> None:
        """Give an object an annotation, or take it away."""
        is_set = annotation in (found["metadata"].get("annotations") or {})
        self._annotate(plural, found, annotation, **({} if is_set else {annotation: value}))

    def _annotate(self, plural: str, found: Json, *without: str, **more: str) -> None:
        """Take annotations away from an object, and set others."""
        before = found["metadata"].get("annotations") or {}
        wanted = {name: each for name, each in before.items() if name not in without} | more
        if wanted != before:
            self.fleet.annotate((plural, *_names(found)), wanted, is_all=True)


def _guest_id(cluster: Json) -> str:
    return str(cluster["status"]["clusterName"])


def _lives_on(cluster: Json) -> bool:
    """Return whether a guest cluster runs on when it left Rancher: imported and custom ones do."""
    return cluster["spec"].get("rkeConfig") in (None, NO_MACHINES)


def _names(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
