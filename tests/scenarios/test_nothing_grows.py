"""What the operator remembers does not grow while guest clusters come and go, hang, opt in and out."""

import asyncio

from fipop.api import names
from fipop.kube.resources import FLOATING_IPS, NAMESPACES
from tests.harness.object_graph import collection_sizes
from tests.harness.small_operator import SmallOperator, leading
from tests.harness.virtual_time import in_virtual_time

BOUNDED = {
    "Store._deleted": "the uids of the last 10,000 deleted objects of a kind",
    "LinkReader._known": "what links said within the last minute, 10,000 at most",
}
"""Collections that grow up to a number of their own."""
AFTER_QUARANTINE_SECONDS = 100_000
"""An imported guest cluster lives on for 24 h after its removal from Rancher, as far as is known."""
PASSES, COMING = 1_500, 270
STAYING = [f"c-m-stays-{number}" for number in range(30)]


def _add_guests(operator: SmallOperator, guest_ids: list[str]) -> None:
    for number, guest_id in enumerate(guest_ids):
        operator.add_guest(
            guest_id,
            imported=number % 7 == 0,
            connected=number % 11 != 0,
            provider="" if number % 14 == 0 else "k3s",
            is_served=number % 5 != 0,
        )
        operator.carried.services[guest_id] = f"10.0.9.{number % 200}" if number % 4 == 0 else ""
        if number % 3 == 0:
            operator.label_guest(guest_id, **{names.LABEL_OPT_IN: "true"})
        if number % 13 == 0:
            operator.put_on_harvester(guest_id, "elsewhere")


def _remove_guests(operator: SmallOperator, guest_ids: list[str]) -> None:
    for guest_id in guest_ids:
        operator.remove_guest(guest_id)
        operator.memory.remove((NAMESPACES.plural, "", guest_id))
    for plural, namespace, name in list(operator.memory.objects):
        if plural == FLOATING_IPS.plural and namespace in guest_ids:
            operator.give_up(namespace, name)


async def _visit(operator: SmallOperator, guest_ids: list[str]) -> None:
    passes = operator.manager.passes
    await asyncio.gather(*map(passes.visit, guest_ids), *map(passes.install, guest_ids[::2]))
    await operator.settle()


async def _live(operator: SmallOperator, coming: list[str]) -> int:
    """Have guests come, hang, opt in and out, and go, beside those that stay; return how many passes were asked for."""
    everybody = [*STAYING, *coming]
    hanging = set(everybody[::6])
    leaving_early, leaving_late = coming[: len(coming) // 3], coming[len(coming) // 3 :]
    _add_guests(operator, coming)
    await operator.settle()
    await operator.pass_time(10)
    await asyncio.sleep(10)
    await operator.settle()
    await _visit(operator, everybody)
    operator.carried.hanging, operator.carried.silent = hanging, hanging
    operator.change_range(exclude=["10.0.8.1"])
    visiting = asyncio.create_task(_visit(operator, everybody))
    await asyncio.sleep(1)
    _remove_guests(operator, leaving_early)
    for guest_id in [*STAYING, *leaving_late]:
        operator.label_guest(guest_id)
    await operator.settle()
    await visiting
    operator.carried.hanging, operator.carried.silent = set(), set()
    operator.change_range(exclude=[])
    await asyncio.sleep(100)
    _remove_guests(operator, leaving_late)
    for guest_id in STAYING[::3]:
        operator.label_guest(guest_id, **{names.LABEL_OPT_IN: "true"})
    await operator.settle()
    await operator.pass_time(AFTER_QUARANTINE_SECONDS)
    await asyncio.sleep(100)
    await operator.refresh()
    await _visit(operator, everybody)
    return 3 * (len(everybody) + len(everybody[::2]))


@in_virtual_time
async def test_no_collection_grows_in_1500_passes_over_300_guest_clusters() -> None:
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.0/20", clusterSelector={"matchLabels": {}})
    _add_guests(operator, STAYING)
    async with leading(operator):
        await operator.set_options(kubevipGuestRemove="true")
        for warm_up in range(2):
            await _live(operator, [f"c-m-warm-{warm_up}-{number}" for number in range(COMING)])
        before = collection_sizes(operator.manager, operator.cache)
        passes = 0
        while passes < PASSES:
            passes += await _live(operator, [f"c-m-{passes}-{number}" for number in range(COMING)])
        after = collection_sizes(operator.manager, operator.cache)
    grown = [
        f"{name}: {before[name]} -> {size}"
        for name, size in sorted(after.items())
        if size > before[name] and name.partition("[")[0] not in BOUNDED
    ]
    assert not grown, "\n".join(grown)
