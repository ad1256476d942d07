"""Which pool serves a namespace, what it assigns, and what a change of the ConfigMap does."""

import asyncio

import pytest

from fipop.interfaces import ApiRequest
from tests.harness.service_cluster import CONFIG_MAP, INTERFACE, ServiceCluster

POOL = {"cidr-global": "10.0.0.1-10.0.0.4"}


async def test_the_first_key_of_a_namespace_that_is_there_is_its_pool() -> None:
    cluster = ServiceCluster(
        {
            "cidr-shop": "10.1.0.8/30",
            "range-shop": "10.9.0.1-10.9.0.9",
            "range-lab": "10.2.0.5-10.2.0.9",
            "cidr-dmz": "10.4.0.8/30",
            "namespaces-dmz": "bank, club",
            "cidr-global": "10.3.0.8/30",
            "range-global": "10.9.1.1-10.9.1.9",
            "interface-lab": "eth1",
            "interface-global": "eth0",
        }
    )
    namespaces = ("shop", "lab", "bank", "club", "home")
    for namespace in namespaces:
        cluster.add(namespace=namespace)
    await cluster.start()
    assert [cluster.addresses(namespace=each) for each in namespaces] == [
        "10.1.0.8",
        "10.2.0.5",
        "10.4.0.8",
        "10.4.0.9",
        "10.3.0.8",
    ]
    assert cluster.annotation(INTERFACE, namespace="lab") == "eth1"
    assert cluster.annotation(INTERFACE, namespace="home") == "eth0"


async def test_a_full_pool_is_not_left_for_the_global_one() -> None:
    cluster = ServiceCluster({"cidr-shop": "10.1.0.1-10.1.0.1", **POOL})
    cluster.add("first")
    await cluster.start()
    cluster.add("second")
    await cluster.settle()
    assert (cluster.addresses("second"), cluster.condition("second")) == ("", ("False", "PoolFull"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"cidr-global": "10.0.0.0/24"}, ["10.0.0.1", "10.0.0.2"]),
        ({"cidr-global": "10.0.0.0/24", "search-order": "desc"}, ["10.0.0.254", "10.0.0.253"]),
        ({"cidr-global": "10.0.0.8/30", "skip-end-ips-in-cidr": "true"}, ["10.0.0.9", "10.0.0.10"]),
        ({"range-global": "10.0.0.8-10.0.0.11", "exclude-global": "10.0.0.9"}, ["10.0.0.8", "10.0.0.10"]),
        ({"range-global": "10.0.0.0-10.0.0.1"}, ["10.0.0.0", "10.0.0.1"]),
        ({"cidr-global": " 10.0.0.7 - 10.0.0.7 , 10.0.1.0/31 "}, ["10.0.0.7", "10.0.1.0"]),
        ({"cidr-global": "0.0.0.0/32"}, ["0.0.0.0", "0.0.0.0"]),
    ],
    ids=lambda value: ",".join(value.values()) if isinstance(value, dict) else "",
)
async def test_a_pool_is_assigned_in_its_order(data: dict[str, str], expected: list[str]) -> None:
    cluster = ServiceCluster(data)
    await cluster.start()
    for number in range(2):
        cluster.add(f"web-{number}")
        await cluster.settle()
    assert [cluster.addresses(name) for name in cluster.names()] == expected


async def test_no_address_that_a_service_has_in_any_way_is_assigned() -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.1-10.0.0.9"})
    cluster.add("annotated", a="10.0.0.1", namespace="lab")
    cluster.add("requested", loadBalancerIP="10.0.0.2")
    cluster.add("theirs", loadBalancerClass="example.org/other", has=["10.0.0.3"])
    cluster.add("mixed", a="lb.example.org, 10.0.0.4 ,0.0.0.0")
    cluster.add()
    await cluster.start()
    assert cluster.addresses() == "10.0.0.5"


async def test_a_pool_that_is_changed_drained_or_removed_moves_no_service() -> None:
    cluster = ServiceCluster(POOL)
    cluster.add()
    await cluster.start()
    version = cluster.memory.version
    for data in ({"cidr-global": "10.9.0.0/24"}, {**POOL, "draining-global": "true"}, {}):
        cluster.set_keys(data)
        await cluster.settle()
    assert cluster.addresses() == "10.0.0.1"
    assert cluster.writes_of_services(version) == []


async def test_a_draining_pool_assigns_nothing_until_it_drains_no_more() -> None:
    cluster = ServiceCluster({**POOL, "draining-global": "true"})
    cluster.add()
    await cluster.start()
    assert (cluster.addresses(), cluster.condition()[0]) == ("", "False")
    assert "draining-global" in cluster.message()
    cluster.set_keys(POOL)
    await cluster.settle()
    assert (cluster.addresses(), cluster.condition()) == ("10.0.0.1", ("True", "Assigned"))


async def test_the_keys_of_a_named_pool_count_for_its_namespaces_and_their_own_win() -> None:
    cluster = ServiceCluster(
        {
            "cidr-edge": "10.4.0.1-10.4.0.9",
            "namespaces-edge": "shop\nlab, bank club\n",
            "interface-edge": "enp2s0",
            "interface-global": "enp1s0",
            "interface-bank": "bond0",
            "allow-share-edge": "true",
            "allow-share-club": "false",
            "exclude-edge": "10.4.0.1",
            "cidr-global": "10.3.0.1-10.3.0.9",
        }
    )
    for number, namespace in enumerate(("shop", "lab", "bank", "club", "home")):
        cluster.add(namespace=namespace, ports=[80 + number])
    await cluster.start()
    found = {
        each: (cluster.addresses(namespace=each), cluster.annotation(INTERFACE, namespace=each))
        for each in ("shop", "lab", "bank", "home")
    }
    assert found == {
        "shop": ("10.4.0.2", "enp2s0"),
        "lab": ("10.4.0.2", "enp2s0"),
        "bank": ("10.4.0.2", "bond0"),
        "home": ("10.3.0.1", "enp1s0"),
    }
    assert cluster.addresses(namespace="club") == "10.4.0.3"


async def test_the_pool_of_a_namespace_drains_by_the_key_of_the_pool_that_serves_it() -> None:
    keys = {"cidr-edge": "10.4.0.1-10.4.0.9", "namespaces-edge": "shop", "draining-edge": " true\n"}
    cluster = ServiceCluster({**keys, **POOL})
    cluster.add()
    await cluster.start()
    assert cluster.condition() == ("False", "PoolUnusable")
    assert "draining-edge" in cluster.message()
    cluster.set_keys({**keys, "draining-shop": "false"})
    await cluster.settle()
    assert cluster.addresses() == "10.4.0.1"


@pytest.mark.parametrize(
    ("key", "value", "reason", "words"),
    [
        ("search-order", "Desc", "KeyInvalid", "asc or desc"),
        ("cidr-shop", "0.0.0.0/32, 10.0.0.0/29", "KeyInvalid", "DHCP"),
        ("allow-share-shop", "yes", "KeyInvalid", "true or false"),
        ("cidr-shop", "192.168.77.200/28", "KeyUnusual", "192.168.77.200/28 means 192.168.77.192/28"),
        ("cidr_shop", "10.0.0.0/24", "KeyUnusual", "cidr-shop"),
        ("ranges-global", "10.0.0.0/24", "KeyUnusual", "range-global"),
        ("Search-Order", "desc", "KeyUnusual", "search-order"),
    ],
)
async def test_a_key_that_is_not_what_was_meant_has_one_event(
    key: str, value: str, reason: str, words: str
) -> None:
    cluster = ServiceCluster({**POOL, key: value})
    await cluster.start()
    cluster.set_keys({**POOL, key: value, "note": "hello"})
    await cluster.settle()
    ((_, found, text),) = cluster.events("kubevip")
    assert found == reason
    assert words in text


async def test_line_ends_and_blanks_around_values_do_not_matter() -> None:
    cluster = ServiceCluster(
        {"cidr-global": "10.0.0.1-10.0.0.2\n", "allow-share-global": "true\n", "search-order": "desc\n"}
    )
    cluster.add("one", ports=[80])
    cluster.add("two", ports=[81])
    await cluster.start()
    assert (cluster.addresses("one"), cluster.addresses("two")) == ("10.0.0.2", "10.0.0.2")
    assert cluster.events("kubevip") == []


async def test_a_running_service_whose_pool_was_replaced_keeps_its_address_and_is_told_so() -> None:
    cluster = ServiceCluster(POOL)
    cluster.add()
    await cluster.start()
    cluster.set_keys({"cidr-global": "10.9.0.0/24"})
    await cluster.settle()
    assert cluster.addresses() == "10.0.0.1"
    assert "AddressOutsidePools" in cluster.reasons("web")
    cluster.change(a="", loadBalancerIP=None)
    await cluster.settle()
    assert cluster.addresses() == "10.9.0.1"


async def test_a_key_that_cannot_be_read_makes_no_address_one_outside_of_all_pools() -> None:
    cluster = ServiceCluster({"cidr-global": "10.0.0.0/24"})
    cluster.add()
    await cluster.start()
    cluster.set_keys({"cidr-global": "10.0.0.0/33"})
    await cluster.settle()
    assert "KeyInvalid" in cluster.reasons("kubevip")
    assert "AddressOutsidePools" not in cluster.reasons("web")


async def test_a_config_map_is_created_only_if_a_service_asks_for_an_address() -> None:
    cluster = ServiceCluster()
    cluster.add("static", a="192.0.2.1")
    await cluster.start()
    assert CONFIG_MAP not in cluster.memory.objects
    cluster.add()
    await cluster.settle()
    assert CONFIG_MAP in cluster.memory.objects
    cluster.memory.remove(CONFIG_MAP)
    cluster.set_keys(POOL)
    await cluster.settle()
    assert cluster.addresses() == "10.0.0.1"


async def test_a_config_map_that_is_missing_is_created_and_one_that_comes_serves_at_once() -> None:
    cluster = ServiceCluster()
    cluster.add()
    await cluster.start()
    assert ("configmaps", "kube-system", "kubevip") in cluster.memory.objects
    assert cluster.condition() == ("False", "NoPool")
    cluster.set_keys(POOL)
    await cluster.settle()
    assert cluster.addresses() == "10.0.0.1"


async def test_a_config_map_that_is_deleted_moves_no_service() -> None:
    cluster = ServiceCluster(POOL)
    cluster.add()
    await cluster.start()
    cluster.memory.remove(("configmaps", "kube-system", "kubevip"))
    await cluster.settle()
    cluster.add("later")
    await cluster.settle()
    assert (cluster.addresses(), cluster.condition("later")) == ("10.0.0.1", ("False", "NoPool"))


async def test_an_invalid_key_is_reported_once_for_each_fault_and_harms_no_other() -> None:
    cluster = ServiceCluster({"cidr-shop": "nonsense", **POOL})
    cluster.add()
    cluster.add(namespace="lab")
    await cluster.start()
    assert cluster.addresses(namespace="lab") == "10.0.0.1"
    assert (cluster.addresses(), cluster.condition()[0]) == ("", "False")
    assert "cidr-shop" in cluster.message()
    cluster.set_keys({"cidr-shop": "nonsense", **POOL, "search-order": "desc"})
    await cluster.settle()
    assert cluster.reasons("kubevip") == ["KeyInvalid"]
    cluster.set_keys({"cidr-shop": "10.0.0.0/99", **POOL})
    await cluster.settle()
    assert cluster.reasons("kubevip") == ["KeyInvalid", "KeyInvalid"]
    assert all("cidr-shop" in message for _, _, message in cluster.events("kubevip"))


async def test_data_of_any_shape_stops_no_provider() -> None:
    cluster = ServiceCluster(POOL)
    running = await cluster.start()
    for data in (["no", "mapping"], None, {"cidr-global": 7}):
        cluster.memory.put(("configmaps", "kube-system", "kubevip"), {"metadata": {}, "data": data})
        await cluster.settle()
    cluster.set_keys(POOL)
    cluster.add()
    await cluster.settle()
    assert running.is_alive
    assert cluster.addresses() == "10.0.0.1"


async def test_five_thousand_pools_serve_their_namespaces() -> None:
    data = {f"cidr-n{number}": f"10.{number // 250}.{number % 250}.0/24" for number in range(5000)}
    cluster = ServiceCluster(data)
    cluster.add(namespace="n0")
    cluster.add(namespace="n4999")
    await cluster.start()
    assert cluster.addresses(namespace="n0") == "10.0.0.1"
    assert cluster.addresses(namespace="n4999") == "10.19.249.1"


async def test_keys_that_change_while_a_leader_begins_count() -> None:
    cluster = ServiceCluster()
    cluster.add()

    async def be_slow(request: ApiRequest) -> None:
        if request.path.endswith("/nodes"):
            await asyncio.sleep(2.0)

    cluster.begin().link.before = be_slow
    await cluster.pass_time(1.0)
    cluster.set_keys(POOL)
    await cluster.settle()
    assert cluster.addresses() == "10.0.0.1"
