"""A Service whose write the API server refuses says so: by a Warning, and by its condition if that can be written."""

from collections.abc import Callable
from typing import Any

import pytest

from fipop.interfaces import ApiRequest
from localfleet.simulated import Target
from tests.harness.service_cluster import FINALIZER, KEEPALIVED_MAP, Running, ServiceCluster

POOL = {"cidr-global": "10.0.0.1-10.0.0.9"}
X = "10.0.0.1"
NETWORK = "10.210.38.64/29"
FIRST = "10.210.38.65"
CAUSE = "403 Forbidden by ValidatingAdmissionPolicy pinned. Exempt fipop from it."
TEXT = f"fipop could not replace Service shop/web: {CAUSE}"
CONFIG_MAP_TEXT = f"fipop could not replace ConfigMap kube-system/vip-configmap: {CAUSE}"
REFUSED = ("False", "WriteRefused")

Refuse = Callable[[str, Target, ApiRequest], bool]


def refuse(*what: tuple[str, str]) -> Refuse:
    """Have a policy refuse writes of web, or of another object of that name: by plural and subresource."""

    def is_refused(verb: str, target: Target, _request: ApiRequest) -> bool:
        is_write = verb in {"create", "replace"} and target.name in {"web", "vip-configmap", ""}
        return is_write and (target.plural, target.subresource) in what

    return is_refused


SPEC, STATUS = ("services", ""), ("services", "status")


async def start(*what: tuple[str, str], **options: Any) -> tuple[ServiceCluster, Running]:
    cluster = ServiceCluster(POOL)
    running = await cluster.start(**options)
    running.link.refuse = refuse(*what)
    return cluster, running


@pytest.mark.parametrize(
    "service", [{}, {"loadBalancerIP": "192.0.2.1"}, {"a": "192.0.2.1"}], ids=["nothing", "L", "A"]
)
async def test_a_service_that_a_policy_refuses_to_have_written_names_the_policy_and_the_remedy(
    service: dict[str, Any],
) -> None:
    cluster, running = await start(SPEC)
    cluster.add(**service)
    await cluster.pass_time(600)
    assert cluster.condition() == (REFUSED if "a" not in service else ("True", "WriteRefused"))
    assert cluster.message() == TEXT
    version = cluster.memory.version
    await cluster.pass_time(600)
    assert cluster.events("web")[-1:] == [("web", "SyncLoadBalancerFailed", TEXT)]
    assert cluster.writes_of_services(version) == []
    running.link.refuse = refuse()
    await cluster.pass_time(310)
    assert cluster.addresses()
    assert cluster.condition() in {("True", "Assigned"), ("", "")}
    running.link.refuse = refuse(SPEC)
    cluster.change(a="")
    await cluster.pass_time(60)
    assert cluster.message() == TEXT


async def test_if_the_status_is_refused_too_the_warning_remains_and_is_recorded_once() -> None:
    cluster, running = await start(SPEC, STATUS)
    cluster.add()
    await cluster.pass_time(900)
    assert cluster.events("web") == [("web", "SyncLoadBalancerFailed", TEXT)]
    assert cluster.condition() == ("", "")
    running.link.refuse = refuse()
    await cluster.pass_time(310)
    assert cluster.addresses() == X


async def test_a_service_that_waits_is_warned_of_if_its_status_is_refused() -> None:
    cluster = ServiceCluster({"cidr-global": f"{X}-{X}"})
    cluster.add("first")
    running = await cluster.start()
    running.link.refuse = refuse(STATUS)
    cluster.add()
    await cluster.pass_time(60)
    assert cluster.reasons("web") == ["SyncLoadBalancerFailed"]


async def clear(cluster: ServiceCluster) -> None:
    cluster.change(type="ClusterIP")


async def delete(cluster: ServiceCluster) -> None:
    cluster.delete()


@pytest.mark.parametrize("end", [clear, delete])
async def test_a_service_that_cannot_be_released_is_warned_of(end: Callable[..., Any]) -> None:
    cluster, running = await start()
    cluster.add()
    await cluster.settle()
    running.link.refuse = refuse(SPEC)
    await end(cluster)
    await cluster.pass_time(60)
    assert cluster.events("web")[-1] == ("web", "SyncLoadBalancerFailed", TEXT)
    assert cluster.condition() == ("", "")
    running.link.refuse = refuse()
    await cluster.pass_time(120)
    assert not cluster.exists() or FINALIZER not in cluster.service()["metadata"]["finalizers"]


# keepalived


async def test_services_wait_while_the_config_map_of_keepalived_is_refused_and_others_keep_theirs() -> None:
    cluster = ServiceCluster()
    cluster.add("old")
    running = await cluster.start(network=NETWORK)
    running.link.refuse = refuse(("configmaps", ""))
    cluster.add()
    await cluster.pass_time(600)
    assert (cluster.announced("old"), cluster.condition("old")) == ([FIRST], ("", ""))
    assert (cluster.announced(), cluster.condition()) == ([], REFUSED)
    assert cluster.message() == CONFIG_MAP_TEXT
    assert cluster.events("web") == [("web", "SyncLoadBalancerFailed", CONFIG_MAP_TEXT)]
    assert cluster.reasons("vip-configmap") == ["WriteRefused"]
    running.link.refuse = refuse()
    await cluster.pass_time(310)
    assert (cluster.announced(), cluster.condition()) == (["10.210.38.66"], ("True", "Assigned"))
    cluster.change(type="ClusterIP")
    await cluster.settle()
    assert cluster.condition() == ("", "")


async def test_services_say_why_if_the_config_map_of_keepalived_cannot_be_created() -> None:
    cluster = ServiceCluster()
    running = cluster.begin(network=NETWORK)
    running.link.refuse = refuse(("configmaps", ""))
    cluster.add()
    await cluster.pass_time(60)
    assert KEEPALIVED_MAP not in cluster.memory.objects
    assert cluster.condition() == REFUSED
    running.link.refuse = refuse()
    await cluster.pass_time(310)
    assert (cluster.announced(), cluster.condition()) == ([FIRST], ("True", "Assigned"))


async def test_a_service_whose_status_is_refused_is_warned_of_once_in_keepalived_mode() -> None:
    cluster, _ = await start(STATUS, network=NETWORK)
    cluster.add()
    cluster.add("next")
    await cluster.pass_time(900)
    assert cluster.events("web") == [("web", "SyncLoadBalancerFailed", TEXT)]
    assert (cluster.announced(), bool(cluster.announced("next"))) == ([], True)


async def test_a_service_that_waits_says_why_in_keepalived_mode() -> None:
    cluster = ServiceCluster()
    cluster.add("first", loadBalancerIP="192.0.2.1")
    cluster.add(loadBalancerIP="192.0.2.1")
    await cluster.start(network=NETWORK)
    assert cluster.condition() == ("False", "AddressInUse")
    cluster.delete("first")
    await cluster.settle()
    assert (cluster.announced(), cluster.condition()) == (["192.0.2.1"], ("True", "Assigned"))
