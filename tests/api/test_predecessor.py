"""Coming from kube-fip-operator or an older version: nothing is touched too early, everybody keeps what is theirs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from localfleet.rancher_plan import Guest
from localfleet.simulated import SimulatedGuest
from localfleet.stack import (
    ALL_FLOATING_IPS,
    RANGES,
    RESERVATIONS,
    SETTINGS,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.emptying import clear
from tests.api.predecessor import make_reservations_younger
from tests.api.proxied import read_log
from tests.api.tenant import open_tenant
from tests.api.test_crd_existing_objects import old_crd, replace_crd

pytestmark = pytest.mark.xdist_group("bare")

DEPLOYMENTS = "/apis/apps/v1/namespaces/kube-fip/deployments"


@pytest_asyncio.fixture
async def stack(bare_stack: Stack) -> AsyncIterator[Stack]:
    stack = bare_stack
    yield stack
    await clear(stack)
    await stack.operators[-1].stop()


@pytest.fixture
def inside() -> SimulatedGuest:
    """What is in the guest cluster."""
    return SimulatedGuest(latency_seconds=0.0)


@pytest_asyncio.fixture
async def guest(stack: Stack, inside: SimulatedGuest) -> Guest:
    return await stack.player.create_guest(stack.player.plan_guest("demo"), inside)


def _deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "kube-fip-operator"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kube-fip-operator", "namespace": "kube-fip"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "operator", "image": "example"}]},
            },
        },
    }


async def test_the_predecessors_objects_are_left_alone_until_it_is_gone_then_adopted_oldest_first(
    stack: Stack, guest: Guest, inside: SimulatedGuest
) -> None:
    own = floating_ips(guest.cluster_id)
    await stack.client.create(RANGES, build_range("guest-vlan", "10.135.10.192/26"))
    names: dict[str, Any] = {"range_name": "guest-vlan", "cluster": "demo", "ipaddress": "10.135.10.200"}
    await stack.client.create(own, build_floating_ip(guest.cluster_id, "older", **names))
    await asyncio.sleep(1.1)  # "older" must be so by a whole second
    await stack.client.create(own, build_floating_ip(guest.cluster_id, "a-younger", **names))
    await stack.client.create(
        own, build_floating_ip(guest.cluster_id, "outside", **(names | {"ipaddress": "10.9.9.9"}))
    )
    left = {"metadata": {"name": "kubevip", "namespace": "kube-system"}}
    inside.put("configmaps", {**left, "data": {"cidr-global": "10.135.10.200/32"}})
    await make_reservations_younger(stack)
    await stack.client.create(DEPLOYMENTS, _deployment(1))
    if await stack.client.find(SETTINGS) is None:
        body = {"metadata": {"name": SETTINGS.rpartition("/")[2]}}
        await stack.client.create(SETTINGS.rpartition("/")[0], body)
    await stack.set_options(logLevel="Trace")
    before = await stack.client.items(ALL_FLOATING_IPS)

    operator = await stack.start_operator()

    async def has_looked_on() -> bool:
        """Whether the operator saw a second time that the predecessor works: it is at rest between."""
        paths = [line["path"] for line in read_log(operator) if line["message"] == "Request"]
        return len([path for path in paths if path.endswith("/kube-fip-operator")]) > 1

    await eventually(has_looked_on, seconds=30)
    assert await stack.client.items(ALL_FLOATING_IPS) == before
    assert await stack.client.items(RESERVATIONS) == []
    assert stack.proxy.requests_of(guest.cluster_id) == []

    await stack.client.patch(f"{DEPLOYMENTS}/kube-fip-operator", {"spec": {"replicas": 0}})

    async def is_settled() -> bool:
        older, younger, outside = [
            await stack.floating_ip(guest.cluster_id, name) for name in ("older", "a-younger", "outside")
        ]
        assert older["status"]["addresses"] == ["10.135.10.200"]
        assert outside["status"]["addresses"] == ["10.9.9.9"]
        refusal = condition(younger, "Ready")
        assert (refusal["status"], refusal["reason"]) == ("False", "AddressInUse")
        assert f"{guest.cluster_id}/older" in refusal["message"]
        return condition(older, "Ready")["status"] == "True"

    await eventually(is_settled, seconds=30)
    found = inside.get("configmaps", "kube-system", "kubevip")
    assert found is not None
    assert found["data"] == {"cidr-global": "10.135.10.200/32,10.9.9.9/32"}

    async def is_counted() -> bool:
        capacity = (await stack.client.get(f"{RANGES}/guest-vlan"))["status"]["capacity"]
        assert (capacity["used"], capacity["outOfRange"]) == (1, 1)
        return True

    await eventually(is_counted)
    await stack.client.delete(f"{DEPLOYMENTS}/kube-fip-operator")


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
