"""The ConfigMap `kubevip` in a real guest: our keys, and everybody else's."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fipop.api import names
from fipop.errors import ApiError, ForbiddenError, GuestError, UnavailableError
from fipop.guest.errors import PassTimeoutError
from fipop.guest.in_use import InUseAddresses
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import ConfigMapOutcome, EventResult
from fipop.ipam.addresses import parse_address
from fipop.metrics.samples import GuestEvent
from localfleet.chartrepo import ChartRepository
from localfleet.proxy import Fault
from tests.api.guest.guest_bench import CONFIG_MAP, TOKEN, GuestBench, settings_with
from tests.harness.rollout_world import guest_of
from tests.harness.tasks import asking

pytestmark = pytest.mark.xdist_group("guest-charts")


@pytest.fixture(autouse=True)
def not_opted_in(bench: GuestBench) -> None:
    bench.opted_in = False


async def test_a_guest_gets_its_address_opted_in_or_not(bench: GuestBench) -> None:
    report = await bench.run()
    assert report.config_map.outcome is ConfigMapOutcome.WRITTEN
    assert await bench.data() == {"cidr-global": "10.0.0.1/32"}
    assert EventResult(event=GuestEvent.CONFIG_MAP, success=True) in report.events


async def test_a_quiet_visit_is_two_requests_and_no_write(bench: GuestBench) -> None:
    await bench.run()
    version = (await bench.client.get(CONFIG_MAP.format("kube-system")))["metadata"]["resourceVersion"]
    for _ in range(3):
        seen = await bench.requests_of_a_pass()
        assert [request.method for request in seen] == ["GET", "GET"]
    found = await bench.client.get(CONFIG_MAP.format("kube-system"))
    assert found["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("update", [True, False])
async def test_a_foreign_key_is_untouched_after_ten_passes(bench: GuestBench, update: bool) -> None:
    await bench.put_config_map(cidr_prod="192.168.0.0/24", interface_prod="eth9", note="mine")
    bench.update_config_map = update
    for number in range(10):
        bench.addresses = (f"10.0.0.{number + 1}",)
        bench.retired = frozenset({f"10.0.0.{number}"})
        await bench.run()
    assert await bench.data() == {
        "cidr-prod": "192.168.0.0/24",
        "interface-prod": "eth9",
        "note": "mine",
        "cidr-global": "10.0.0.10/32",
    }


@pytest.mark.parametrize("update", [True, False])
async def test_a_predecessors_config_map_is_taken_over_and_nothing_stale_stays_after_a_move(
    bench: GuestBench, update: bool
) -> None:
    await bench.put_config_map(cidr_global="10.0.0.1/32")
    bench.update_config_map = update
    await bench.run()
    bench.addresses, bench.retired = ("10.0.0.2",), frozenset({"10.0.0.1"})
    await bench.run()
    assert await bench.data() == {"cidr-global": "10.0.0.2/32"}


@pytest.mark.parametrize("update", [True, False])
async def test_after_a_move_without_a_word_of_the_old_address_what_was_written_is_known(
    bench: GuestBench, update: bool
) -> None:
    bench.update_config_map = update
    await bench.run()
    bench.addresses = ("10.0.0.2",)
    await bench.run()
    assert await bench.data() == {"cidr-global": "10.0.0.2/32"}


async def test_what_the_predecessor_wrote_for_an_empty_floating_ip_is_replaced(bench: GuestBench) -> None:
    await bench.put_config_map(cidr_global="/32")
    bench.update_config_map = False
    await bench.run()
    assert await bench.data() == {"cidr-global": "10.0.0.1/32"}


async def test_an_edit_of_our_key_is_repaired_by_one_write(bench: GuestBench) -> None:
    await bench.run()
    await bench.client.patch(CONFIG_MAP.format("kube-system"), {"data": {"cidr-global": "10.9.9.9/32"}})
    seen = await bench.requests_of_a_pass()
    assert len([request for request in seen if request.is_write]) == 1
    assert await bench.data() == {"cidr-global": "10.0.0.1/32"}


async def test_an_edit_of_our_key_stays_and_is_told_where_the_floating_ip_does_not_update(
    bench: GuestBench,
) -> None:
    bench.update_config_map = False
    await bench.run()
    await bench.client.patch(CONFIG_MAP.format("kube-system"), {"data": {"cidr-global": "10.9.9.9/32"}})
    report = await bench.run()
    assert [blocked.name for blocked in report.config_map.blocked] == ["cidr-global"]
    assert (await bench.data())["cidr-global"] == "10.9.9.9/32"


async def test_a_deleted_config_map_is_made_again(bench: GuestBench) -> None:
    await bench.run()
    await bench.client.delete(CONFIG_MAP.format("kube-system"))
    await bench.run()
    assert await bench.data() == {"cidr-global": "10.0.0.1/32"}


async def test_a_guest_whose_floating_ip_is_gone_is_cleaned_of_our_keys_alone(bench: GuestBench) -> None:
    await bench.run()
    await bench.client.patch(CONFIG_MAP.format("kube-system"), {"data": {"cidr-prod": "192.168.0.0/24"}})
    bench.addresses, bench.retired = (), frozenset({"10.0.0.1"})
    await bench.run()
    assert await bench.data() == {"cidr-prod": "192.168.0.0/24"}
    found = await bench.config_map()
    assert found is not None
    assert names.ANNOTATION_APPLIED not in found["metadata"].get("annotations", {})


async def test_two_floating_ips_of_a_guest_are_merged_in_a_fixed_order(bench: GuestBench) -> None:
    second = asking(
        "another",
        namespace=bench.guest_id,
        created=datetime(2026, 2, 1, tzinfo=UTC),
        addresses=("10.0.0.7", "fd00::7"),
        allow_share=True,
        interface="eth1",
    )
    third = replace(
        second,
        metadata=replace(second.metadata, name="third"),
        spec=replace(second.spec, service_namespace="prod"),
    )
    bench.more_floating_ips = (second, third)
    await bench.run()
    assert await bench.data() == {
        "cidr-global": "10.0.0.1/32,10.0.0.7/32,fd00::7/128",
        "allow-share-global": "true",
        "interface-global": "eth1",
        "cidr-prod": "10.0.0.7/32,fd00::7/128",
        "allow-share-prod": "true",
        "interface-prod": "eth1",
    }
    bench.more_floating_ips = ()
    await bench.run()
    assert await bench.data() == {"cidr-global": "10.0.0.1/32"}


async def test_nothing_is_written_that_is_not_permitted_at_the_last_moment(bench: GuestBench) -> None:
    asked_after: list[int] = []

    async def refuse() -> bool:
        asked_after.append(len(bench.proxy.requests_of(bench.guest_id)))
        return False

    bench.before_write = refuse
    report = await bench.run()
    assert report.config_map.outcome is ConfigMapOutcome.WITHHELD
    assert asked_after == [2], "it is asked after the guest was read"
    assert await bench.config_map() is None


async def test_an_edit_between_our_read_and_our_write_is_not_overwritten(bench: GuestBench) -> None:
    await bench.put_config_map(cidr_global="10.0.0.1/32")

    async def edit_meanwhile() -> bool:
        await bench.client.patch(CONFIG_MAP.format("kube-system"), {"data": {"note": "new"}})
        return True

    bench.before_write = edit_meanwhile
    bench.addresses, bench.retired = ("10.0.0.2",), frozenset({"10.0.0.1"})
    report = await bench.run()
    assert report.config_map.outcome is ConfigMapOutcome.FAILED
    assert report.retry_after_seconds is not None
    assert await bench.data() == {"cidr-global": "10.0.0.1/32", "note": "new"}


async def test_another_namespace_is_made_and_what_stands_in_the_former_ones_is_removed(
    bench: GuestBench, repository: ChartRepository
) -> None:
    await bench.put_config_map(cidr_global="10.0.0.1/32", cidr_prod="192.168.0.0/24")
    bench.settings = settings_with(kubevipChartRepoUrl=repository.url, kubevipNamespace="first-home")
    await bench.run()
    assert await bench.data("first-home") == {"cidr-global": "10.0.0.1/32"}
    assert await bench.data() == {"cidr-prod": "192.168.0.0/24"}, (
        "the predecessor's key is gone, others are not"
    )
    bench.settings = settings_with(kubevipChartRepoUrl=repository.url, kubevipNamespace="second-home")
    await bench.run()
    assert await bench.data("second-home") == {"cidr-global": "10.0.0.1/32"}
    assert await bench.data("first-home") == {}


@pytest.mark.parametrize("opted_in", [False, True])
async def test_while_no_good_value_of_the_namespace_is_known_the_config_map_stays_where_it_is(
    bench: GuestBench, opted_in: bool
) -> None:
    """fipop-last-settings was deleted, and the option has a typing error: the default is nobody's wish."""
    bench.opted_in = False
    bench.settings = settings_with(kubevipNamespace="first-home")
    await bench.run()
    unknown = frozenset({"kubevipNamespace"})
    bench.settings = replace(bench.settings, kubevip_namespace="kube-system", unknown_options=unknown)
    bench.opted_in, bench.gate = opted_in, ReleaseGate(is_open=False)
    bench.addresses, bench.retired = ("10.0.0.2",), frozenset({"10.0.0.1"})
    await bench.run()
    assert await bench.data("first-home") == {"cidr-global": "10.0.0.2/32"}
    assert not await bench.data()


async def test_a_config_map_of_that_name_elsewhere_that_is_not_ours_is_left_alone(bench: GuestBench) -> None:
    await bench.put_config_map("default", cidr_global="10.0.0.1/32")
    await bench.run()
    assert await bench.data("default") == {"cidr-global": "10.0.0.1/32"}


async def test_our_own_mark_in_the_guest_is_not_trusted_blindly(bench: GuestBench) -> None:
    await bench.run()
    mark = json.dumps({"note": "mine", "cidr-global": ["not a text"]})
    patch = {"metadata": {"annotations": {names.ANNOTATION_APPLIED: mark}}, "data": {"note": "mine"}}
    await bench.client.patch(CONFIG_MAP.format("kube-system"), patch)
    await bench.run()
    assert await bench.data() == {"cidr-global": "10.0.0.1/32", "note": "mine"}


async def test_services_and_config_maps_that_carry_an_address_are_named(bench: GuestBench) -> None:
    await bench.put_config_map("default", range_prod="10.1.0.1-10.1.0.9")
    ports = [{"port": 80}]
    services = "/api/v1/namespaces/default/services"
    held = {"annotations": {"kube-vip.io/loadbalancerIPs": "10.2.0.1,fd00::2"}}
    for manifest in (
        {"metadata": {"name": "annotated", **held}, "spec": {"type": "LoadBalancer", "ports": ports}},
        {"metadata": {"name": "internal", **held}, "spec": {"type": "ClusterIP", "ports": ports}},
        {
            "metadata": {"name": "legacy"},
            "spec": {"type": "LoadBalancer", "ports": ports, "loadBalancerIP": "10.2.0.3"},
        },
    ):
        await bench.client.create(services, manifest)
    await bench.client.patch(
        f"{services}/legacy/status", {"status": {"loadBalancer": {"ingress": [{"ip": "10.2.0.4"}]}}}
    )
    bench.proxy.forget_requests()
    found: list[InUseAddresses] = []
    await bench.room.look(
        bench.guest_id, bench.kubeconfig(), on_objects=found.append, on_machines=found.append
    )
    carried, _ = found
    named = {
        address: str(carried.carrier_of(parse_address(address)) or "")
        for address in ("10.1.0.5", "10.2.0.1", "fd00::2")
    }
    assert named == {
        "10.1.0.5": "ConfigMap default/kubevip",
        "10.2.0.1": "Service default/annotated",
        "fd00::2": "Service default/annotated",
    }
    assert [str(carried.carrier_of(parse_address(address))) for address in ("10.2.0.3", "10.2.0.4")] == [
        "Service default/legacy"
    ] * 2
    assert carried.carrier_of(parse_address("10.1.0.10")) is None
    paths = sorted(each.path for each in bench.proxy.requests_of(bench.guest_id))
    endpoints = "/api/v1/namespaces/default/endpoints/kubernetes"
    assert paths == ["/api/v1/configmaps", endpoints, "/api/v1/nodes", "/api/v1/services"]
    for name in ("annotated", "internal", "legacy"):
        await bench.client.delete(f"{services}/{name}")


async def test_a_guest_that_refuses_hangs_or_is_away_is_told_and_not_reachable(bench: GuestBench) -> None:
    bench.tools.request_seconds = 0.5
    bench.proxy.revoke_token(TOKEN)
    report = await bench.run()
    assert isinstance(report.error, ApiError)
    bench.proxy.issue_token(TOKEN)
    assert isinstance((await bench.run()).error, ForbiddenError)
    bench.proxy.bind_token(TOKEN, bench.guest_id)
    bench.route.fault = Fault(hang=True)
    report = await bench.run()
    assert isinstance(report.error, UnavailableError)
    assert not report.reachable
    assert report.events == (EventResult(event=GuestEvent.API_CONNECTION, success=False),)
    bench.route.fault = None
    assert (await bench.run()).error is None


async def test_a_guest_that_trickles_is_given_up_at_the_deadline_of_the_talk(bench: GuestBench) -> None:
    bench.tools.request_seconds, bench.tools.session_seconds = 60, 0.5
    bench.route.fault = Fault(bytes_per_second=1)
    report = await bench.run()
    assert isinstance(report.error, PassTimeoutError)


async def test_a_slot_is_given_back_however_the_pass_ends(bench: GuestBench) -> None:
    bench.tools.request_seconds = 0.3
    bench.tools.slots = asyncio.Semaphore(1)
    for fault in (Fault(hang=True), Fault(refuse=True), Fault(status=500), Fault(lose_answer=True), None):
        bench.route.fault = fault
        await bench.run()
        assert not bench.tools.slots.locked()


async def test_a_kubeconfig_that_leads_to_another_guest_is_refused_before_a_byte_is_sent(
    bench: GuestBench,
) -> None:
    task = replace(bench.task(), guest=guest_of("c-m-other"))
    report = await bench.room.run_pass(task)
    assert isinstance(report.error, GuestError)
    assert bench.proxy.requests_of(bench.guest_id) == []
