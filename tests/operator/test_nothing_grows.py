"""What the operator remembers does not grow while guest clusters come and go, hang, opt in and out (limits)."""

from collections.abc import Sequence

from fipop.api import names
from tests.harness.fleet import Fleet
from tests.harness.history import FLOATING_IPS
from tests.harness.object_graph import collection_sizes

BOUNDED = {
    "Store._deleted": "the uids of the last 10,000 deleted objects of a kind",
    "LinkReader._known": "what links said within the last minute, 10,000 at most",
}
"""Collections that grow up to a number of their own."""
AFTER_QUARANTINE_SECONDS = 100_000
"""An imported guest cluster counts as using its addresses for 24 h after its removal from Rancher."""
ROUNDS, COMING = 2, 8
STAYING = [f"c-m-stays-{number}" for number in range(6)]


def _add_guests(fleet: Fleet, guest_ids: Sequence[str]) -> None:
    for number, guest_id in enumerate(guest_ids):
        guest = fleet.add_guest(
            guest_id,
            imported=number % 5 == 0,
            connected=number % 7 != 0,
            provider="" if number % 9 == 0 else "k3s",
            is_served=number % 4 != 0,
        )
        if number % 4 == 0:
            guest.add_service(f"10.0.9.{number}")
        if number % 3 == 0:
            fleet.opt_in(guest_id)
        if number % 6 == 5:
            fleet.put_on_harvester(guest_id, "elsewhere")


def _remove_guests(fleet: Fleet, guest_ids: Sequence[str]) -> None:
    for guest_id in guest_ids:
        fleet.remove_guest(guest_id)
        fleet.memory.remove(("namespaces", "", guest_id))
    for key in list(fleet.memory.objects):
        if key[0] == FLOATING_IPS and key[1] in guest_ids:
            fleet.give_up(key[1], key[2])


async def _live(fleet: Fleet, coming: Sequence[str]) -> None:
    """Have guest clusters come, hang, opt in and out, and leave, beside those that stay."""
    _add_guests(fleet, coming)
    await fleet.pass_time(60)
    for guest_id in [*STAYING, *coming][::4]:
        fleet.guests[guest_id].hanging = True
    fleet.change_range(exclude=["10.0.8.1"])
    await fleet.pass_time(1)
    early, late = coming[: len(coming) // 3], coming[len(coming) // 3 :]
    _remove_guests(fleet, early)
    for guest_id in [*STAYING, *late]:
        fleet.label_guest(guest_id)
    await fleet.pass_time(60)
    for guest in fleet.guests.values():
        guest.hanging = False
    fleet.change_range(exclude=[])
    _remove_guests(fleet, late)
    for guest_id in STAYING[::3]:
        fleet.label_guest(guest_id, **{names.LABEL_OPT_IN: "true"})
    await fleet.pass_time(60)
    fleet.jump(AFTER_QUARANTINE_SECONDS)
    await fleet.pass_time(700)


async def test_no_collection_grows_while_guest_clusters_come_and_go() -> None:
    fleet = Fleet()
    fleet.add_range(iprange="10.0.0.0/20", clusterSelector={"matchLabels": {}})
    _add_guests(fleet, STAYING)
    running = await fleet.start(leader_election=False)
    for number in range(2):
        await _live(fleet, [f"c-m-warm-{number}-{each}" for each in range(COMING)])
    before = collection_sizes(running.operator)
    for number in range(ROUNDS):
        await _live(fleet, [f"c-m-{number}-{each}" for each in range(COMING)])
    after = collection_sizes(running.operator)
    assert running.is_alive
    assert before["Store._objects"] or len(before) > 20, "the walk found the parts of the operator"
    grown = [
        f"{name}: {before[name]} -> {size}"
        for name, size in sorted(after.items())
        if size > before[name] and name.partition("[")[0] not in BOUNDED
    ]
    assert not grown, "\n".join(grown)
