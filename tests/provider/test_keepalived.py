"""In keepalived mode one ConfigMap says who has which address, and statuses follow it."""

import json
from typing import Any

import pytest

from tests.harness.service_cluster import KEEPALIVED_MAP, ServiceCluster

NETWORK = "10.210.38.64/29"
FIRST, SECOND = "10.210.38.65", "10.210.38.66"
SIZE = 6
ANNOTATION = "k8s.co/cloud-provider-config"
METHOD = "k8s.co/keepalived-forward-method"


async def start(**services: dict[str, Any]) -> ServiceCluster:
    """Start a provider in a cluster with these Services, created one after the other."""
    cluster = ServiceCluster()
    for name, options in services.items():
        cluster.add(name, **options)
        await cluster.pass_time(1)
    await cluster.start(network=NETWORK)
    return cluster


async def test_the_config_map_names_each_service_and_its_status_has_the_address() -> None:
    cluster = await start(web={}, other={})
    assert cluster.keepalived_map["data"] == {FIRST: "shop/web", SECOND: "shop/other"}
    assert [
        (each["ip"], each["serviceNamespace"], each["serviceName"]) for each in cluster.keepalived_plan
    ] == [
        (FIRST, "shop", "web"),
        (SECOND, "shop", "other"),
    ]
    assert [cluster.announced(name) for name in ("web", "other")] == [[FIRST], [SECOND]]


async def test_a_restart_changes_nothing() -> None:
    cluster = await start(web={}, other={"loadBalancerIP": "192.0.2.1"})
    before, version = cluster.keepalived_map, cluster.memory.version
    await cluster.restart(network=NETWORK)
    await cluster.pass_time(600)
    assert cluster.keepalived_map == before
    assert cluster.writes_of_services(version) == []


async def test_a_requested_address_is_granted_changed_and_kept() -> None:
    cluster = await start(web={"loadBalancerIP": "192.0.2.1"})
    assert cluster.announced() == ["192.0.2.1"]
    cluster.change(loadBalancerIP="192.0.2.2")
    await cluster.settle()
    assert cluster.announced() == ["192.0.2.2"]
    cluster.change(loadBalancerIP=None)
    await cluster.settle()
    assert cluster.announced() == ["192.0.2.2"]
    assert cluster.keepalived_map["data"] == {"192.0.2.2": "shop/web"}


async def test_an_address_that_another_service_has_is_refused_until_it_is_free() -> None:
    cluster = await start(web={})
    cluster.add("other", loadBalancerIP=FIRST)
    await cluster.settle()
    assert (cluster.announced("other"), cluster.reasons("other")) == ([], ["AddressInUse"])
    cluster.delete()
    await cluster.settle()
    assert cluster.announced("other") == [FIRST]


async def test_a_service_that_finds_no_address_waits_and_is_told_once() -> None:
    cluster = await start(**{f"web-{number}": {} for number in range(SIZE + 1)})
    last = f"web-{SIZE}"
    await cluster.pass_time(600)
    assert cluster.announced(last) == []
    assert cluster.reasons(last) == ["PoolFull"]
    cluster.delete("web-2")
    await cluster.settle()
    assert cluster.announced(last) == ["10.210.38.67"]


async def test_a_service_that_is_deleted_or_is_no_load_balancer_leaves_the_config_map() -> None:
    cluster = await start(web={}, other={}, third={})
    cluster.delete()
    cluster.change("other", type="ClusterIP")
    await cluster.pass_time(600)
    assert cluster.keepalived_map["data"] == {"10.210.38.67": "shop/third"}


async def test_the_forward_method_is_that_of_the_annotation() -> None:
    cluster = await start(web={"metadata": {"annotations": {METHOD: "DR"}}})
    assert cluster.keepalived_map["data"] == {FIRST: "shop/web:DR"}
    cluster.change(annotations={METHOD: "PROXY"})
    await cluster.settle()
    assert cluster.keepalived_map["data"] == {FIRST: "shop/web:PROXY"}
    cluster.change(annotations={METHOD: "odd"})
    await cluster.settle()
    assert cluster.keepalived_map["data"] == {FIRST: "shop/web:PROXY"}
    assert "InvalidForwardMethod" in cluster.reasons("web")


async def test_keys_of_others_stay_and_their_addresses_are_in_use() -> None:
    cluster = ServiceCluster()
    cluster.memory.put(KEEPALIVED_MAP, {"metadata": {}, "data": {FIRST: "default/foreign"}})
    cluster.add()
    await cluster.start(network=NETWORK)
    assert cluster.keepalived_map["data"] == {FIRST: "default/foreign", SECOND: "shop/web"}


async def test_what_keepalived_cloud_provider_left_is_kept() -> None:
    cluster = ServiceCluster()
    cluster.add(has=["10.210.38.69"])
    entry = {
        "uid": cluster.service()["metadata"]["uid"],
        "ip": "10.210.38.69",
        "serviceNamespace": "shop",
        "serviceName": "web",
    }
    metadata = {"annotations": {ANNOTATION: json.dumps({"services": [entry]})}}
    cluster.memory.put(KEEPALIVED_MAP, {"metadata": metadata, "data": {"10.210.38.69": "shop/web"}})
    cluster.add("new")
    await cluster.start(network=NETWORK)
    assert cluster.announced() == ["10.210.38.69"]
    assert cluster.announced("new") == [FIRST]


@pytest.mark.parametrize("data", [{}, {SECOND: "shop/web"}, {FIRST: "odd"}], ids=str)
async def test_data_that_was_damaged_is_written_again(data: dict[str, str]) -> None:
    cluster = await start(web={})
    found = cluster.keepalived_map
    cluster.memory.put(KEEPALIVED_MAP, {**found, "data": data})
    await cluster.settle()
    assert cluster.keepalived_map["data"][FIRST] == "shop/web"
    assert cluster.announced() == [FIRST]


async def test_a_config_map_that_was_deleted_is_written_again() -> None:
    cluster = await start(web={"loadBalancerIP": "192.0.2.1"}, other={})
    cluster.memory.remove(KEEPALIVED_MAP)
    await cluster.settle()
    assert cluster.keepalived_map["data"] == {"192.0.2.1": "shop/web", FIRST: "shop/other"}


async def test_a_service_of_a_class_belongs_to_another_provider() -> None:
    cluster = await start(theirs={"loadBalancerClass": "example.org/other"}, web={})
    assert (cluster.announced("theirs"), cluster.announced()) == ([], [FIRST])


@pytest.mark.parametrize(
    "text", ['{"services":[{"uid":', '{"services": 7}', '{"services":[{"uid":"u","ip":"odd"}]}', "[" * 9000]
)
async def test_an_annotation_that_cannot_be_read_changes_nothing_and_is_reported(text: str) -> None:
    cluster = await start(web={}, other={})
    before = cluster.keepalived_map
    damaged = {**before["metadata"], "annotations": {ANNOTATION: text}}
    cluster.memory.put(KEEPALIVED_MAP, {**before, "metadata": damaged})
    cluster.add("later")
    await cluster.pass_time(600)
    assert cluster.keepalived_map["data"] == before["data"]
    assert cluster.keepalived_map["metadata"]["annotations"] == {ANNOTATION: text}
    assert [cluster.announced(name) for name in ("web", "other", "later")] == [[FIRST], [SECOND], []]
    assert cluster.reasons("vip-configmap") == ["AnnotationUnreadable"]
    repaired = {**cluster.keepalived_map, "metadata": before["metadata"]}
    cluster.memory.put(KEEPALIVED_MAP, repaired)
    await cluster.settle()
    assert cluster.announced("later") == ["10.210.38.67"]
