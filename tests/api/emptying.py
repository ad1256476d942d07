"""A stack emptied by the file that filled it, for the file that uses it next."""

from localfleet.controlplane import ControlPlane
from localfleet.rancher_steps import delete
from localfleet.stack import ALL_FLOATING_IPS, RANGES, RESERVATIONS, Stack, floating_ips
from localfleet.waiting import eventually

ALLOW = {"metadata": {"annotations": {"kubefip.k8s.binbash.org/allow-delete": "true"}}}


async def clear(stack: Stack) -> None:
    """Delete all guests, floating IPs and ranges, and wait until an operator has let them go."""
    client = stack.client
    for guest in list(stack.player.guests.values()):
        await stack.player.delete_guest(guest)
    for each in await client.items(ALL_FLOATING_IPS):
        # One whose namespace is being deleted can vanish at any time.
        await delete(client, f"{floating_ips(each['metadata']['namespace'])}/{each['metadata']['name']}")
    await is_empty(stack, ALL_FLOATING_IPS)
    # Before their ranges go: what is released afterwards would wait as long as an absent range says.
    await let_go(stack)
    for each in await client.items(RANGES):
        path = f"{RANGES}/{each['metadata']['name']}"
        await client.patch(path, ALLOW)
        await client.delete(path)
    await is_empty(stack, RANGES)


async def wipe(plane: ControlPlane) -> None:
    """Delete all objects of our kinds where no operator runs."""
    for each in await plane.client.items(ALL_FLOATING_IPS):
        await delete(
            plane.client, f"{floating_ips(each['metadata']['namespace'])}/{each['metadata']['name']}"
        )
    for collection in (RANGES, RESERVATIONS):
        for each in await plane.client.items(collection):
            path = f"{collection}/{each['metadata']['name']}"
            await plane.client.patch(path, ALLOW)
            await delete(plane.client, path)


async def let_go(stack: Stack) -> None:
    """Wait until no floating IP holds an address, and free those that are in quarantine, as an admin may."""

    async def nothing_is_held() -> bool:
        held = await stack.held()
        assert held == {}, held
        return True

    await eventually(nothing_is_held, seconds=60, what="no address to be held")
    for each in await stack.client.items(RESERVATIONS):
        await delete(stack.client, f"{RESERVATIONS}/{each['metadata']['name']}")


async def is_empty(stack: Stack, collection: str) -> None:
    """Wait until there is no object of a kind any more."""

    async def nothing_is_left() -> bool:
        left = [each["metadata"]["name"] for each in await stack.client.items(collection)]
        assert left == [], left
        return True

    await eventually(nothing_is_left, seconds=60, what=f"no object in {collection}")
