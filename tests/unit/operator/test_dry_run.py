"""A dry run decides as the operator does at a start, and writes nothing."""

from datetime import timedelta
from typing import Any

from fipop.errors import ApiNotFoundError
from fipop.ipam.addresses import parse_address
from fipop.kube.client import Listing
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, PROVISIONING_CLUSTERS, Resource
from fipop.operator.dry_run import DryRun
from fipop.state.cache import ClusterCache
from tests.harness.memory import Json, Memory
from tests.harness.small_operator import PromptClient, SmallOperator
from tests.harness.virtual_time import in_virtual_time

A, B, C = "c-m-a", "c-m-b", "c-m-c"


class ListingClient(PromptClient):
    """Lists what is stored, too."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.stored = memory

    async def list(self, resource: Resource) -> Listing[Json]:
        is_namespaced = resource == PROVISIONING_CLUSTERS
        found = [
            each
            for (plural, namespace, _), each in self.stored.objects.items()
            if plural == resource.plural
            and (plural != PROVISIONING_CLUSTERS.plural or bool(namespace) is is_namespaced)
        ]
        return Listing(items=tuple(found), resource_version=self.stored.version)


def addresses(cache: ClusterCache) -> dict[tuple[str, str], tuple[str, ...]]:
    return {each.meta.key: each.status.addresses for each in cache.floating_ips.all()}


def reasons(cache: ClusterCache) -> dict[tuple[str, str], list[str]]:
    return {
        each.meta.key: [condition.reason for condition in each.status.conditions]
        for each in cache.floating_ips.all()
    }


async def test_what_a_dry_run_shows_comes_true_and_nothing_is_written() -> None:
    operator = SmallOperator(client=ListingClient)
    operator.add_range(iprange="10.0.0.10-10.0.0.14", clusterSelector={"matchLabels": {}})
    for guest_id in (A, B, C):
        operator.add_guest(guest_id, is_served=guest_id == C)
    operator.ask(A, "10.0.0.10")
    operator.memory.pass_time(2.0)
    operator.ask(B, "10.0.0.10")  # a duplicate: the older floating IP keeps it
    operator.ask(B, "10.9.9.9", name="outside")
    operator.ask(A, name="new")
    operator.carried.services[B] = "10.0.0.11"
    operator.memory.pass_time(2.0)
    born = operator.memory.now + timedelta(seconds=1)
    operator.cache.inheritance.ours_since = born
    before = operator.memory.version
    client: Any = operator.client
    shown = await DryRun(client, born).run({B: [parse_address("10.0.0.11")]})
    assert operator.memory.version == before
    assert addresses(shown)[A, "web"] == ("10.0.0.10",)
    assert addresses(shown)[B, "web"] == ()
    assert addresses(shown)[A, "new"] == ("10.0.0.12",), "a guest cluster carries 10.0.0.11"
    await operator.start()
    assert addresses(shown) == addresses(operator.cache)
    assert reasons(shown) == reasons(operator.cache)


async def test_the_last_address_goes_to_the_oldest_floating_ip_as_it_does_in_the_operator() -> None:
    operator = SmallOperator(client=ListingClient)
    operator.add_range(iprange="10.0.0.10", clusterSelector={"matchLabels": {}})
    for guest_id in (A, B):
        operator.add_guest(guest_id)
    operator.ask(B)
    operator.memory.pass_time(2.0)
    operator.ask(A)
    client: Any = operator.client
    shown = await DryRun(client, operator.memory.now).run({})
    await operator.start()
    assert operator.held() == {"default.10.0.0.10": B}
    assert addresses(shown) == addresses(operator.cache)


async def test_what_a_guest_cluster_on_another_harvester_cluster_carries_is_kept_from_nobody() -> None:
    operator = SmallOperator(client=ListingClient)
    operator.add_range(harvester="hv1")
    for guest_id, harvester in ((A, "hv1"), (B, "hv2")):
        operator.add_guest(guest_id)
        operator.put_on_harvester(guest_id, harvester)
    operator.ask(A)
    operator.carried.services[B] = "10.0.0.10"
    client: Any = operator.client
    shown = await DryRun(client, operator.memory.now).run({B: [parse_address("10.0.0.10")]})
    await operator.start()
    assert operator.held() == {"default.10.0.0.10": A}
    assert addresses(shown) == addresses(operator.cache)


async def test_a_dry_run_shows_no_new_floating_ip_where_the_option_says_so() -> None:
    operator = SmallOperator(client=ListingClient)
    operator.add_range(clusterSelector={"matchLabels": {}})
    operator.add_guest(A, is_served=True)
    client: Any = operator.client
    assert addresses(await DryRun(client, operator.memory.now).run({})).keys() == {
        (A, f"cluster-{A}-kubevip")
    }
    assert addresses(await DryRun(client, operator.memory.now, creates=False).run({})) == {}


@in_virtual_time
async def test_a_dry_run_shows_what_an_imported_cluster_of_unknown_kind_gets() -> None:
    operator = SmallOperator(client=ListingClient)
    operator.add_range(clusterSelector={"matchLabels": {}})
    operator.add_guest("c-m-a", imported=True, provider="")
    operator.ask("c-m-a", has="10.0.0.10")
    operator.ask("c-m-a", name="more", range_name="")
    operator.memory.pass_time(120.0)
    client: Any = operator.client
    shown = await DryRun(client, operator.memory.now).run({})
    await operator.start()
    await operator.pass_time(120)
    assert addresses(shown) == addresses(operator.cache), reasons(shown)


async def test_before_the_crds_of_fipop_are_there_a_dry_run_knows_no_reservations() -> None:
    class BeforeTheSwitch(ListingClient):
        async def list(self, resource: Resource) -> Listing[Json]:
            if resource == FLOATING_IP_RESERVATIONS:
                raise ApiNotFoundError(verb="list", kind=resource.kind, name="", status=404)
            return await super().list(resource)

    operator = SmallOperator(client=BeforeTheSwitch)
    operator.add_range(iprange="10.0.0.10", clusterSelector={"matchLabels": {}})
    operator.add_guest(A)
    operator.ask(A, "10.0.0.10")
    client: Any = operator.client
    assert addresses(await DryRun(client, None).run({})) == {(A, "web"): ("10.0.0.10",)}
