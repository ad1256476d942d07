"""What a range counts, in its status and in the metrics."""

import pytest

from localfleet.stack import Stack, condition
from localfleet.waiting import eventually
from tests.api.tenant import Json, Tenant

INT64_MAX = 2**63 - 1


pytestmark = pytest.mark.xdist_group("shared-stack")


async def ready(tenant: Tenant, name: str, status: str, *, words: str = "", kind: str = "Ready") -> Json:
    """Wait until a range says this of its present spec; the condition."""

    async def says_so() -> Json:
        found = await tenant.range(name)
        said = condition(found, kind)
        assert said.get("status") == status, found.get("status")
        assert words in said["message"], said
        assert said["observedGeneration"] == found["metadata"]["generation"], said
        return said

    return await eventually(says_so)


async def test_the_counts_add_up_for_the_whole_and_for_each_family_in_status_and_metrics(
    stack: Stack, tenant: Tenant
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/28,{tenant.net6}/124")
    for name in ("a", "b", "c"):
        await tenant.ask(name, pool, ipFamilyPolicy="RequireDualStack")
        await tenant.served(name)
    await tenant.delete("b")
    await tenant.quarantined(f"{tenant.net}2")
    counts = await tenant.capacity(pool, total=29, used=4, free=23, quarantined=2)
    assert counts["ipv4"] == {"total": 14, "used": 2, "free": 11, "quarantined": 1, "outOfRange": 0}
    assert counts["ipv6"] == {"total": 15, "used": 2, "free": 12, "quarantined": 1, "outOfRange": 0}
    for part in (counts, counts["ipv4"], counts["ipv6"]):
        assert part["total"] == part["used"] + part["free"] + part["quarantined"]
    scraped = [line for line in (await stack.operators[-1].metrics()).splitlines() if f'"{pool}"' in line]
    assert any(
        line.startswith("kubefipoperator_fipranges_capacity{") and line.endswith(" 29.0") for line in scraped
    )
    assert any(
        line.startswith("kubefipoperator_fipranges_reserved{") and line.endswith(" 6.0") for line in scraped
    )


async def test_a_count_beyond_what_a_status_holds_is_clamped_and_said_so(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net6}/48")
    await ready(tenant, pool, "True", words=str(INT64_MAX))
    await tenant.ask("web", pool)
    assert await tenant.served("web") == [f"{tenant.net6}1"]
    await tenant.capacity(pool, total=INT64_MAX, used=1, free=INT64_MAX)
