import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from fipop.addresses.guests import GuestRecords
from fipop.addresses.inventory import Inventory
from fipop.addresses.reports import News
from fipop.guests.discovery import GuestDirectory
from fipop.guests.record import GuestRecord
from fipop.kube.resources import (
    HARVESTER_CONFIGS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.rancher.links import Discovery, NotAGuest, Waiting
from fipop.rancher.matching import Guest
from tests.harness.objects import Json

GUEST = "c-m-1"
POOL = {
    "name": "pool1",
    "controlPlaneRole": True,
    "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc-demo"},
}
ON_HARVESTER = {"cloudCredentialSecretName": "cattle-global-data:cc-1", "rkeConfig": {"machinePools": [POOL]}}


class NothingToRead:
    """Neither the HarvesterConfig nor the credential can be had."""

    async def get(self, _resource: Resource, _name: str, **_: object) -> Json | None:
        return None


class HeldReads:
    """Shows a guest's HarvesterConfig as it is when it is asked for, and hands the answer out when a test lets it.

    `meanwhile` is done before an answer arrives, with the number of the question.
    """

    def __init__(self, meanwhile: Callable[[int], None] = lambda _number: None) -> None:
        self.network = "default/vlan-1"
        self.meanwhile = meanwhile
        self.asked = 0
        self.held: list[asyncio.Event] = []

    async def get(self, resource: Resource, _name: str, **_: object) -> Json | None:
        if resource != HARVESTER_CONFIGS:
            return {"data": {}}
        self.asked += 1
        answer = {"networkInfo": f'{{"interfaces": [{{"networkName": "{self.network}"}}]}}'}
        self.meanwhile(self.asked)
        if self.held:
            await self.held.pop(0).wait()
        return answer


_versions = itertools.count(7)


class Forgetful(dict[Any, Any]):
    """A memory that keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def _observe(inventory: Inventory, resource: Resource, name: str, namespace: str = "", **parts: Any) -> None:
    version = str(next(_versions))
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": version}
    inventory.observe(resource, {"metadata": metadata, **parts})


def _connect(inventory: Inventory, *, connected: bool) -> None:
    conditions = [{"type": "Connected", "status": str(connected)}]
    status = {"conditions": conditions, "provider": "rke2"}
    _observe(inventory, MANAGEMENT_CLUSTERS, GUEST, spec={"displayName": "demo"}, status=status)


def _directory(spec: Mapping[str, Any], client: object | None = None) -> GuestDirectory:
    directory = empty_directory(client)
    inventory = directory.inventory
    _connect(inventory, connected=True)
    _observe(inventory, NAMESPACES, GUEST)
    _observe(
        inventory, PROVISIONING_CLUSTERS, "demo", "fleet-default", spec=spec, status={"clusterName": GUEST}
    )
    return directory


def empty_directory(client: object | None = None) -> GuestDirectory:
    records = GuestRecords(GuestRecord)
    inventory = Inventory(records)
    return GuestDirectory(inventory=inventory, records=records, client=client or NothingToRead())  # type: ignore[arg-type]


async def test_a_guest_whose_network_cannot_be_found_out_is_known_for_passes() -> None:
    directory = _directory({"rkeConfig": {"machinePools": [POOL]}})
    found = (await directory.discover(GUEST))[0]
    assert isinstance(found, Waiting)
    known = directory.inventory.known(GUEST)
    assert known is not None
    assert known.connected
    assert [each.id for each in directory.inventory.known_guests()] == [GUEST]


async def begin_slow_lookup(
    directory: GuestDirectory, client: HeldReads
) -> tuple[asyncio.Task[tuple[Discovery | None, News]], asyncio.Event]:
    """Begin a lookup whose first request is answered when the event is set."""
    answer = asyncio.Event()
    client.held.append(answer)
    slow = asyncio.create_task(directory.discover(GUEST))
    async with asyncio.timeout(5):
        while not client.asked:  # noqa: ASYNC110 - a number has no event for that
            await asyncio.sleep(0)
    return slow, answer


async def test_what_changed_while_a_slow_lookup_was_under_way_is_known_at_its_end() -> None:
    """Nothing would have resolved the links again before Rancher's next change."""
    client = HeldReads()
    directory = _directory(ON_HARVESTER, client)
    slow, answer = await begin_slow_lookup(directory, client)
    _connect(directory.inventory, connected=False)
    quick = (await directory.discover(GUEST))[0]
    assert isinstance(quick, Guest)
    assert not quick.connected
    answer.set()
    assert (await slow)[0] == quick
    assert directory.inventory.known(GUEST) == quick


async def test_a_lookup_that_changes_overtook_again_and_again_says_nothing() -> None:
    """The last of the changes brings another one about."""
    client = HeldReads()
    directory = _directory(ON_HARVESTER, client)
    directory._reader._known = Forgetful()
    before = (await directory.discover(GUEST))[0]
    client.asked = 0
    client.meanwhile = lambda number: _connect(directory.inventory, connected=number % 2 == 0)
    (await directory.discover(GUEST))[0]
    assert 1 < client.asked < 10
    assert directory.inventory.known(GUEST) == before


async def test_a_guest_that_goes_while_its_links_are_looked_up_is_not_known_afterwards() -> None:
    client = HeldReads()
    directory = _directory(ON_HARVESTER, client)
    (cluster,) = directory.inventory.guest_clusters(GUEST)
    client.meanwhile = lambda _number: directory.inventory.forget(PROVISIONING_CLUSTERS, cluster)
    assert (await directory.discover(GUEST))[0] is None
    assert directory.inventory.known(GUEST) is None


async def test_a_slow_answer_does_not_undo_what_a_later_question_found() -> None:
    """Nobody tells of a changed HarvesterConfig: it is not watched."""
    client = HeldReads()
    directory = _directory(ON_HARVESTER, client)
    directory._reader._known = Forgetful()
    slow, answer = await begin_slow_lookup(directory, client)
    client.network = "default/vlan-2"
    later = (await directory.discover(GUEST))[0]
    answer.set()
    await slow
    assert directory.inventory.known(GUEST) == later
    assert isinstance(later, Guest)
    assert later.networks == ("default/vlan-2",)


async def test_a_guest_cluster_that_is_none_any_more_is_dropped_and_counts_as_new_when_it_is_back() -> None:
    directory = _directory({"rkeConfig": {}})
    await directory.discover(GUEST)
    state = directory.record(GUEST)
    state.failed_lookups = 7
    status = {"provider": "harvester"}
    _observe(directory.inventory, MANAGEMENT_CLUSTERS, GUEST, spec={"displayName": "demo"}, status=status)
    assert isinstance((await directory.discover(GUEST))[0], NotAGuest)
    assert directory.inventory.known(GUEST) is None
    state.failed_lookups = 8
    _connect(directory.inventory, connected=True)
    assert isinstance((await directory.discover(GUEST))[0], Guest)
    assert directory.record(GUEST).failed_lookups == 0


def test_nothing_is_kept_about_a_guest_cluster_that_does_not_exist() -> None:
    directory = empty_directory()
    directory.record(GUEST).failed_lookups = 7
    assert list(directory.records.items()) == []
    assert directory.record(GUEST).failed_lookups == 0
