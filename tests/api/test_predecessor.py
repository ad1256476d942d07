"""Coming from an older version: the operator brings the schemas up to date, and serves what was stored under them."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from localfleet.stack import (
    RANGES,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.emptying import clear
from tests.api.tenant import open_tenant
from tests.api.test_crd_existing_objects import old_crd, replace_crd

pytestmark = pytest.mark.xdist_group("bare")


@pytest_asyncio.fixture
async def stack(bare_stack: Stack) -> AsyncIterator[Stack]:
    stack = bare_stack
    yield stack
    await clear(stack)
    await stack.operators[-1].stop()


async def test_objects_of_the_old_schemas_are_served_once_the_operator_has_brought_the_schemas_up_to_date(
    stack: Stack, numbers: Iterator[int]
) -> None:
    async with open_tenant(stack, numbers) as tenant:
        for kind in ("FloatingIPRange", "FloatingIP"):
            crd = old_crd(kind)
            del crd["metadata"]["annotations"]
            await replace_crd(stack.plane, crd)
        pool = f"pool-{tenant.number}"
        bare = build_floating_ip(tenant.namespace, "bare", range_name=pool)
        del bare["spec"]

        async def is_stored_without_spec() -> bool:
            made = await stack.client.create(f"{floating_ips(tenant.namespace)}?dryRun=All", bare)
            return "spec" not in made

        await eventually(is_stored_without_spec, what="the old schema to be served")
        await stack.client.create(floating_ips(tenant.namespace), bare)
        await tenant.ask("static", pool, ipaddress=f"{tenant.net}9")
        await tenant.offer("pool", f"{tenant.net}0/24")
        nothing = {**build_range("nothing", ""), "spec": None}
        await stack.client.create(RANGES, {key: value for key, value in nothing.items() if value is not None})

        await stack.start_operator()
        assert await tenant.served("bare") == [f"{tenant.net}1"]
        assert (await tenant.read("bare"))["spec"] == {"ipaddress": f"{tenant.net}1"}
        assert await tenant.served("static") == [f"{tenant.net}9"]
        await tenant.capacity(pool, total=254, used=2)

        async def is_told() -> bool:
            return condition(await tenant.range("nothing"), "Ready").get("reason") == "Invalid"

        await eventually(is_told)
        # Only a watch that has begun tells of a deletion before the next list, which is up to five minutes later.
        await tenant.ask("later", pool)
        await tenant.served("later")
