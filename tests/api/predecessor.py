"""What makes a management cluster look as if kube-fip-operator had worked there."""

import asyncio

from localfleet.crds import OUR_CRDS
from localfleet.stack import RESERVATIONS, Stack
from localfleet.waiting import eventually


async def make_reservations_younger(stack: Stack) -> None:
    """Make the CRD of reservations anew: in truth it comes with fipop, after the predecessor's objects."""
    await asyncio.sleep(1.1)  # times of creation have whole seconds
    definition = next(path for path in OUR_CRDS.iterdir() if "reservations" in path.name)
    await stack.plane.kubectl("delete", "-f", str(definition), "--wait")
    await stack.plane.kubectl("create", "-f", str(definition))

    async def is_served() -> bool:
        return await stack.client.items(RESERVATIONS) == []

    await eventually(is_served, seconds=20)
