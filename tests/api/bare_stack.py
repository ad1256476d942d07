"""A stack for files that start operators of their own, kill them and cut them off.

They name this module as a plugin of theirs.
"""

from collections.abc import AsyncIterator

import pytest_asyncio

from localfleet.fleet import LocalFleet
from localfleet.stack import SETTINGS, Stack, open_stack


@pytest_asyncio.fixture(scope="session")
async def bare_stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    """A management cluster with the chart installed and kube-fip-config, in which no operator runs.

    The files that use it are of the group "bare-stack". Each stops its operators and leaves no guest, no floating IP
    and no range.
    """
    async with open_stack(fleet, "bare") as stack:
        body = {"metadata": {"name": "kube-fip-config"}, "data": dict(stack.installation.settings)}
        await stack.client.create(SETTINGS.rpartition("/")[0], body)
        yield stack
