"""The management cluster's store is set back while guests carry addresses that it knows nothing of any more."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from localfleet.etcd import Etcd
from localfleet.rancher_plan import Guest
from localfleet.stack import (
    RANGES,
    Json,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.emptying import clear
from tests.harness.history import History, RecordedGuest, Recorder

pytestmark = pytest.mark.xdist_group("bare")

TENANT = "restored"
LABELS = {"net": "restored"}
INHERITED = "10.0.0.1"
"""What the restored store says is one guest's, and another carries by now."""
CARRIED = {
    INHERITED: "heir",
    "10.0.0.2": "late",
    "10.0.0.3": "later",
    "10.0.0.4": "asking",
}
"""Which guest carries what when the store is set back."""
LEFT = "10.0.0.6"
"""What one guest carries beside that, in a key that fipop takes out: its floating IP has another address then."""
REPORTED = {"10.0.0.2", "10.0.0.3", "10.0.0.4"}
"""What guests carry that the restored store does not know of."""
UNUSED = {"10.0.0.5", "10.0.0.7"}
QUARANTINE_SECONDS = 2
RESYNC = "--resync-seconds=4"
BUMP = 3000


async def bump_revision(etcd: Etcd, by: int) -> None:
    body = {"key": base64.b64encode(b"/bumped").decode(), "value": ""}
    async with aiohttp.ClientSession() as session:
        for _ in range(by):
            async with session.post(f"{etcd.url}/v3/kv/put", json=body) as answer:
                answer.raise_for_status()


def service(address: str) -> Json:
    """What a user of the guest has: it keeps its address whatever stands in the ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ingress", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "loadBalancerIP": address},
        "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
    }


class Fleet:
    """Guests that get their addresses before the snapshot (`early`) or after it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.targets: dict[str, RecordedGuest] = {}
        self.guests: dict[str, Guest] = {}

    async def create_guest(self, name: str) -> None:
        plan = self.stack.player.plan_guest(
            name, labels=LABELS, annotations={"kubefip.k8s.binbash.org/floating-ip": "false"}
        )
        self.targets[name] = RecordedGuest(latency_seconds=0.0, guest_id=plan.cluster_id)
        self.guests[name] = await self.stack.player.create_guest(plan, self.targets[name])

    async def give(self, name: str, address: str = "") -> None:
        """Make a floating IP for a guest and wait until the guest carries the address."""
        namespace = self.guests[name].cluster_id
        wish = {"ipaddress": address} if address else {}
        await self.stack.client.create(
            floating_ips(namespace),
            build_floating_ip(namespace, name, cluster=name, range_name="pool", **wish),
        )

    def config_map(self, name: str) -> Json:
        """The data of a guest's ConfigMap."""
        held = self.targets[name].get("configmaps", "kube-system", "kubevip")
        return dict(held["data"]) if held is not None else {}

    async def carries(self, name: str, address: str) -> None:
        async def is_so() -> bool:
            return self.config_map(name).get("cidr-global") == f"{address}/32"

        await eventually(is_so, seconds=120, what=f"guest {name} to carry {address}")
        self.targets[name].put("services", service(address))

    @asynccontextmanager
    async def recorded(self) -> AsyncIterator[Recorder]:
        """Hear of every revision from here on, and of every write into a guest."""
        recorder = Recorder(self.stack.plane.etcd.url, self.stack.plane.name)
        try:
            await recorder.start()
            for target in self.targets.values():
                target.recorder = recorder
            yield recorder
        finally:
            for target in self.targets.values():
                target.recorder = None
            await recorder.close()


def promised(history: History) -> set[tuple[str, str]]:
    """All addresses that a status named or a reservation kept for somebody, each with the namespace of whom."""
    found = set()
    for change in history.changes:
        if change.obj is not None and change.plural == "floatingips":
            named = (change.obj.get("status") or {}).get("addresses") or ()
            found |= {(address, change.namespace) for address in named}
        elif change.obj is not None and change.plural == "floatingipreservations":
            spec = change.obj["spec"]
            if "owner" in spec:
                found.add((spec["address"], spec["owner"]["namespace"]))
    return found


def written(history: History) -> set[tuple[str, str]]:
    """All addresses that stood in a guest's ConfigMap after a write of the operator's, each with the guest's id."""
    return {(address, each.guest) for each in history.carried for address in each.addresses}


def given_to_another(
    there: Fleet, given: set[tuple[str, str]], carried: Mapping[str, str]
) -> set[tuple[str, str]]:
    """What of it a guest carries that is another."""
    return {
        (address, whom)
        for address, whom in given
        if address in carried and whom != there.guests[carried[address]].cluster_id
    }


async def allocated(stack: Stack) -> set[str]:
    """The addresses that the tenant's floating IPs have got."""
    return {
        address
        for each in await stack.client.items(floating_ips(TENANT))
        for address in (each.get("status") or {}).get("addresses") or ()
    }


@pytest_asyncio.fixture
async def stack(bare_stack: Stack) -> AsyncIterator[Stack]:
    stack = bare_stack
    await stack.plane.create_namespace(TENANT)
    # No floating IP of the restored store names the range for some of the guests: its selector does.
    pool = build_range(
        "pool",
        "10.0.0.1-10.0.0.7",
        clusterSelector={"matchLabels": LABELS},
        quarantineSeconds=QUARANTINE_SECONDS,
    )
    await stack.client.create(RANGES, pool)
    yield stack
    await clear(stack)
    await stack.operators[-1].stop()
    await stack.set_options(operateGuestClusterInterval=None)


@pytest.mark.timeout(600)
@pytest.mark.slow
async def test_what_guests_carry_is_not_given_out_again_after_the_store_was_set_back(
    stack: Stack, tmp_path: Path
) -> None:
    """Revisions go on, as with `etcdutl snapshot restore --bump-revision`: no list is ever older than one seen."""
    there, plane = Fleet(stack), stack.plane
    operator = await stack.start_operator(RESYNC)
    for name in ("early", "late", "later", "asking", "heir"):
        await there.create_guest(name)
    await there.give("early")
    await there.carries("early", INHERITED)
    await stack.set_options(operateGuestClusterInterval="5")
    await plane.etcd.snapshot(tmp_path / "snapshot")

    await there.give("late")
    await there.carries("late", "10.0.0.2")
    await there.give("later")
    await there.carries("later", "10.0.0.3")
    await there.give("asking", "10.0.0.4")
    await there.carries("asking", "10.0.0.4")
    await stack.client.patch(
        f"{floating_ips(there.guests['early'].cluster_id)}/early", {"spec": {"ipaddress": "10.0.0.6"}}
    )
    await there.carries("early", "10.0.0.6")
    await there.give("heir", INHERITED)
    await there.carries("heir", INHERITED)

    await plane.stop_api()
    await plane.etcd.restore(tmp_path / "snapshot")
    async with there.recorded() as recorder:
        await bump_revision(plane.etcd, BUMP)
        await plane.restart()
        await ask_for_everything(stack)
        await nothing_is_given_out_twice(there, recorder)
    assert operator.ended, "a restored store ends the process"


async def ask_for_everything(stack: Stack) -> None:
    """Want more addresses than there are, and one by name that a guest carries."""
    for number in range(6):
        await stack.client.create(
            floating_ips(TENANT), build_floating_ip(TENANT, f"new-{number}", range_name="pool")
        )
    asks = build_floating_ip(TENANT, "asks", range_name="pool", ipaddress="10.0.0.3")
    await stack.client.create(floating_ips(TENANT), asks)


async def nothing_is_given_out_twice(there: Fleet, recorder: Recorder) -> None:
    stack, guests = there.stack, there.guests

    async def unused_are_given() -> bool:
        return await allocated(stack) >= UNUSED

    await eventually(unused_are_given, seconds=120, what="what nobody carries to be given out")
    await uses_are_shown(stack)
    assert await allocated(stack) <= UNUSED | {LEFT}
    told = condition(await stack.floating_ip(TENANT, "asks"), "Ready")["message"]
    assert guests["later"].cluster_id in told
    assert "10.0.0.3" in told

    async def early_is_told() -> bool:
        found = condition(await stack.floating_ip(guests["early"].cluster_id, "early"), "GuestConfigured")
        assert found["reason"] == "AddressConflict", found
        return guests["heir"].cluster_id in found["message"] and INHERITED in found["message"]

    await eventually(early_is_told, seconds=90, what="the owner to learn who has its address")
    assert there.config_map("heir")["cidr-global"] == f"{INHERITED}/32"
    await nothing_was_given_in_between(there, recorder, CARRIED)
    there.targets["heir"].objects.clear()
    # The former state is that of the store: who had an address in it has it again when it can be had.
    await there.carries("early", INHERITED)
    still = {address: name for address, name in CARRIED.items() if name not in {"heir", "early"}}
    await nothing_was_given_in_between(there, recorder, still)
    assert (INHERITED, guests["early"].cluster_id) in written(recorder.history), "nothing was recorded"


async def nothing_was_given_in_between(there: Fleet, recorder: Recorder, carried: Mapping[str, str]) -> None:
    """Since the restore nobody got, for however short, what a guest carries that is another."""
    async with asyncio.timeout(120):
        await recorder.catch_up()
    given = promised(recorder.history)
    assert {address for address, whom in given if whom == TENANT} >= UNUSED, "nothing was recorded"
    # What the store itself says of `early` is older than the restore.
    of_old = {(INHERITED, there.guests["early"].cluster_id)}
    assert given_to_another(there, given, carried) - of_old == set()
    assert given_to_another(there, written(recorder.history), carried) == set()


async def uses_are_shown(stack: Stack) -> None:
    """Wait until the status of the range names what guest clusters use and no floating IP of theirs has."""

    async def are_shown() -> bool:
        status = (await stack.client.get(f"{RANGES}/pool"))["status"]
        assert {each["address"] for each in status.get("reported", [])} >= REPORTED, status
        return True

    await eventually(are_shown, seconds=120, what="the uses to be in the status of the range")
