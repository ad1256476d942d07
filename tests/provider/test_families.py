"""A Service gets addresses of the families that the API server granted it, IPv6 first if that is its first family."""

from typing import Any

import pytest

from tests.harness.service_cluster import ServiceCluster

FOUR, SIX = "10.0.0.1", "2001:db8::1"
BOTH = {"cidr-global": "10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9"}
ONLY_FOUR = {"cidr-global": "10.0.0.1-10.0.0.9"}
ONLY_SIX = {"cidr-global": "2001:db8::1-2001:db8::9"}


def wanted(policy: str, *families: str) -> dict[str, Any]:
    return {"ipFamilyPolicy": policy, "ipFamilies": list(families)}


@pytest.mark.parametrize(
    ("data", "spec", "expected"),
    [
        (BOTH, {}, FOUR),
        (BOTH, wanted("SingleStack", "IPv6"), SIX),
        (BOTH, wanted("PreferDualStack", "IPv4", "IPv6"), f"{FOUR},{SIX}"),
        (BOTH, wanted("PreferDualStack", "IPv6", "IPv4"), f"{SIX},{FOUR}"),
        (BOTH, wanted("RequireDualStack", "IPv6", "IPv4"), f"{SIX},{FOUR}"),
        (ONLY_FOUR, wanted("PreferDualStack", "IPv4", "IPv6"), FOUR),
        (ONLY_FOUR, wanted("PreferDualStack", "IPv6", "IPv4"), FOUR),
        (ONLY_SIX, wanted("PreferDualStack", "IPv4", "IPv6"), SIX),
        (ONLY_FOUR, wanted("RequireDualStack", "IPv4", "IPv6"), ""),
        (ONLY_SIX, wanted("SingleStack", "IPv4"), ""),
    ],
)
async def test_the_policy_decides_which_families_it_gets(
    data: dict[str, str], spec: dict[str, Any], expected: str
) -> None:
    cluster = ServiceCluster(data)
    cluster.add(**spec)
    await cluster.start()
    assert cluster.addresses() == expected
    assert cluster.service()["spec"].get("loadBalancerIP", "") == expected.partition(",")[0]


async def test_a_service_of_a_cluster_with_one_family_gets_one_address() -> None:
    cluster = ServiceCluster(ONLY_FOUR, families=("IPv4",))
    cluster.add(ipFamilyPolicy="PreferDualStack")
    await cluster.start()
    assert cluster.addresses() == FOUR


async def test_a_preferred_second_family_comes_with_its_pool() -> None:
    cluster = ServiceCluster(ONLY_FOUR)
    cluster.add(**wanted("PreferDualStack", "IPv4", "IPv6"))
    await cluster.start()
    cluster.set_keys(BOTH)
    await cluster.settle()
    assert cluster.addresses() == f"{FOUR},{SIX}"


async def test_a_required_second_family_comes_with_its_pool() -> None:
    cluster = ServiceCluster(ONLY_FOUR)
    cluster.add(**wanted("RequireDualStack", "IPv4", "IPv6"))
    await cluster.start()
    cluster.set_keys(BOTH)
    await cluster.settle()
    assert cluster.addresses() == f"{FOUR},{SIX}"


async def test_a_service_may_ask_for_dhcp_beside_others() -> None:
    cluster = ServiceCluster(BOTH)
    for name in ("web", "other"):
        cluster.add(name)
    await cluster.start()
    for name in ("web", "other"):
        cluster.change(name, loadBalancerIP="0.0.0.0")
    await cluster.settle()
    assert [cluster.addresses(name) for name in ("web", "other")] == ["0.0.0.0", "0.0.0.0"]
    assert "AddressInUse" not in cluster.reasons()
