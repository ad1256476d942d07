"""Whatever users write into their Services, the others are served."""

from typing import Any

import pytest

from tests.harness.service_cluster import A, ServiceCluster

POOL = {"cidr-global": "10.0.0.0/8"}
KEY = ("services", "shop", "odd")


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {}, "spec": {"type": "LoadBalancer"}},
        {"metadata": {}, "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv5"], "ipFamilyPolicy": "Odd"}},
        {"metadata": {}, "spec": {"type": "LoadBalancer", "loadBalancerIP": "lb.example.org"}},
        {"metadata": {"annotations": {A: "lb.example.org,,0"}}, "spec": {"type": "LoadBalancer"}},
        {"metadata": {"annotations": {A: " "}}, "spec": {"type": "LoadBalancer"}},
        {"metadata": {}, "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": ["odd"]}}},
        {"metadata": {}, "spec": {"type": "LoadBalancer"}, "status": {"conditions": ["odd", {"type": 7}]}},
    ],
    ids=str,
)
async def test_a_service_of_any_shape_keeps_no_other_without_an_address(body: dict[str, Any]) -> None:
    cluster = ServiceCluster(POOL)
    cluster.memory.put(KEY, body)
    running = await cluster.start()
    cluster.add()
    await cluster.settle()
    assert running.is_alive
    assert cluster.addresses().startswith("10.")


@pytest.mark.parametrize(("first", "expected"), [(10, "10.0.0.17"), (192, "10.0.0.1")])
async def test_of_twenty_thousand_addresses_of_one_service_sixteen_are_in_use(
    first: int, expected: str
) -> None:
    cluster = ServiceCluster(POOL)
    many = [f"{first}.{number // 62500}.{number // 250 % 250}.{number % 250 + 1}" for number in range(20_000)]
    cluster.add("crowd", a=",".join(many))
    cluster.add()
    await cluster.start()
    assert cluster.addresses() == expected
    assert cluster.addresses("crowd") == ",".join(many)


async def test_a_service_with_a_thousand_ports_is_served() -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.2", "allow-share-global": "true"})
    cluster.add("crowd", ports=range(1, 1001))
    await cluster.start()
    cluster.add(ports=[30_000])
    await cluster.settle()
    assert cluster.addresses("crowd") == "10.0.0.1"
    assert cluster.addresses() in {"10.0.0.1", "10.0.0.2"}
