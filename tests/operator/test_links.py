"""What a guest cluster stands on: a reason that is known is told at its Cluster, at what waits, and to `status`.

And what is corrected in place, without an event, is read again: once a minute where it is waited for, else at visits.
"""

import pytest

from fipop.interfaces import ApiRequest
from fipop.metrics.counters import GUEST_EVENTS, RECONCILE_SECONDS
from fipop.runtime.queues import WAITING
from tests.harness.fleet import CLUSTERS, EVERY_GUEST, WORKSPACE, Fleet

A, B = "c-m-a", "c-m-b"
X, Y = "10.0.0.10", "10.0.1.10"
MINUTE = 60.0
VISITED = 150.0
"""Every guest cluster was visited twice in that time."""
CONFIG, CREDENTIAL = (
    ("harvesterconfigs", WORKSPACE, f"nodes-{A}"),
    ("secrets", "cattle-global-data", "cc-hv1"),
)


def build(*networks: str, is_served: bool = True) -> Fleet:
    """Have A on network vlan1 of the Harvester cluster "hv1", and ranges of it, one for each network."""
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval="60")
    for number, network in enumerate(networks or ("",)):
        addresses = f"10.0.{number}.10-10.0.{number}.13"
        fleet.add_range(f"range-{number}", addresses, harvester="hv1", network=network)
    fleet.add_guest(A, is_served=is_served)
    fleet.put_on_harvester(A, "hv1")
    return fleet


def break_config(fleet: Fleet) -> None:
    fleet.memory.remove(CONFIG)


def break_network(fleet: Fleet) -> None:
    found = fleet.memory.objects[CONFIG]
    fleet.memory.put(CONFIG, {**found, "networkInfo": "{secret"})


def break_credential(fleet: Fleet) -> None:
    fleet.memory.remove(CREDENTIAL)


def register_again(fleet: Fleet) -> None:
    fleet.write_credential("hv1", cluster_id="c-former")


def register_both_again(fleet: Fleet) -> None:
    fleet.write_credential("hv1", cluster_id="c-former", leads_to="c-other")


def forget_config(fleet: Fleet) -> None:
    key = (CLUSTERS, WORKSPACE, f"cluster-{A}")
    found = fleet.memory.objects[key]
    pool = {"controlPlaneRole": True, "machineConfigRef": {"kind": "HarvesterConfig"}}
    spec = {**found["spec"], "rkeConfig": {"machinePools": [pool]}}
    fleet.memory.put(key, {**found, "spec": spec})


def forget_credential(fleet: Fleet) -> None:
    key = (CLUSTERS, WORKSPACE, f"cluster-{A}")
    found = fleet.memory.objects[key]
    fleet.memory.put(key, {**found, "spec": {**found["spec"], "cloudCredentialSecretName": ""}})


FAULTS = {
    "no HarvesterConfig": (break_config, f"HarvesterConfig {WORKSPACE}/nodes-{A} does not exist."),
    "odd network": (
        break_network,
        f"The networkInfo of HarvesterConfig {WORKSPACE}/nodes-{A} is not JSON.",
    ),
    "no credential": (break_credential, "Secret cattle-global-data/cc-hv1 does not exist."),
    "registered again": (
        register_again,
        "The Harvester cluster c-former of cloud credential cattle-global-data/cc-hv1 is not in Rancher. If it was",
    ),
    "both unknown": (
        register_both_again,
        (
            "The Harvester cluster c-former of cloud credential cattle-global-data/cc-hv1 is not in Rancher, nor is "
            "c-other, to which its kubeconfig leads."
        ),
    ),
    "pool without config": (forget_config, "The machine pool names no HarvesterConfig."),
    "no credential named": (forget_credential, "The cluster names no cloud credential."),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_keeps_a_range_from_being_chosen_is_told_wherever_people_look_until_it_is_over(
    fault: str,
) -> None:
    do, told = FAULTS[fault]
    fleet = build()
    do(fleet)
    fleet.ask(A, range_name="")
    await fleet.start()
    await fleet.pass_time(MINUTE)
    assert fleet.condition(A) == ("False", "GuestUnresolved")
    assert told in fleet.message(A)
    (event,) = fleet.events("Cluster/")
    assert event[1] == "GuestUnresolved"
    assert told in event[2]
    (problem,) = fleet.problems_on_lease()
    assert (problem["reason"], problem["guests"]) == ("GuestUnresolved", [A])
    assert told in problem["message"]
    fleet.put_on_harvester(A, "hv1")
    await fleet.pass_time(MINUTE)
    assert (fleet.problems_on_lease(), fleet.held()) == ([], {f"default.{X}": A})


async def test_an_api_server_that_fails_to_serve_a_link_is_told_of_if_that_lasts() -> None:
    fleet = build()
    is_failing = True

    async def fail(request: ApiRequest) -> None:
        if is_failing and "/harvesterconfigs/" in request.path:
            raise ConnectionError("the conversion webhook is away")

    fleet.begin().link.before = fail
    await fleet.pass_time(MINUTE)
    (event,) = fleet.events("Cluster/")
    told = f"Could not get HarvesterConfig {WORKSPACE}/nodes-{A}"
    assert (event[1], told in event[2]) == ("GuestUnresolved", True)
    (problem,) = fleet.problems_on_lease()
    assert (problem["guests"], told in problem["message"]) == ([A], True)
    is_failing = False
    await fleet.pass_time(MINUTE)
    assert fleet.problems_on_lease() == []
    assert fleet.held() == {f"default.{X}": A}


async def test_a_link_that_is_missing_for_a_moment_beside_a_new_cluster_is_no_fault() -> None:
    fleet = build()
    bring_back = fleet.take_away(CONFIG)
    await fleet.start(seconds=2)
    bring_back()
    await fleet.pass_time(MINUTE)
    assert fleet.events("Cluster/") == []


async def test_guest_clusters_with_one_cause_are_noted_as_one_problem() -> None:
    fleet = build()
    fleet.add_guest(B, is_served=True)
    fleet.put_on_harvester(B, "hv1")
    register_again(fleet)
    await fleet.start()
    await fleet.pass_time(MINUTE)
    (problem,) = fleet.problems_on_lease()
    assert problem["guests"] == [A, B]


async def test_no_guest_cluster_is_left_out_if_each_has_a_cause_of_its_own() -> None:
    fleet = Fleet()
    guest_ids = [f"c-m-{number:02}" for number in range(40)]
    for each in guest_ids:
        fleet.add_guest(each)
        fleet.put_on_harvester(each, "hv1")
        fleet.memory.remove(("harvesterconfigs", WORKSPACE, f"nodes-{each}"))
    await fleet.start()
    await fleet.pass_time(MINUTE)
    problems = fleet.problems_on_lease()
    assert sorted(guest for each in problems for guest in each["guests"]) == guest_ids
    assert len(problems) > 2


async def test_an_address_that_is_held_stays_when_its_harvester_is_registered_again() -> None:
    fleet = build()
    await fleet.start()
    await fleet.pass_time(MINUTE)
    held = fleet.held()
    assert held == {f"default.{X}": A}
    fleet.memory.remove((CLUSTERS, "", "c-hv1"))
    fleet.add_harvester("hv1-again")
    await fleet.restart()
    await fleet.pass_time(MINUTE)
    assert (fleet.held(), fleet.guests[A].addresses) == (held, {X})
    assert [each["reason"] for each in fleet.problems_on_lease()] == ["GuestUnresolved"]


# A credential that contradicts itself


@pytest.mark.parametrize("cluster_id", ["c-former", "c-hv1"], ids=["gone", "another"])
async def test_machines_are_where_the_kubeconfig_of_their_credential_leads_to(cluster_id: str) -> None:
    fleet = build()
    fleet.add_range("of-hv2", f"{Y}-{Y}", harvester="hv2")
    fleet.add_harvester("hv2")
    fleet.write_credential("hv1", cluster_id=cluster_id, leads_to="c-hv2")
    await fleet.start()
    await fleet.pass_time(MINUTE)
    assert fleet.held() == {f"default.{Y}": A}
    (problem,) = fleet.problems_on_lease()
    assert problem["reason"] == "CredentialMismatch"
    assert f"its clusterId is {cluster_id}, and its kubeconfig leads to c-hv2" in problem["message"]
    assert [reason for _, reason, _ in fleet.events("Cluster/")] == ["CredentialMismatch"]


@pytest.mark.parametrize(
    "leads_to", ["c-hv1", "local", "https://192.168.2.5/k8s/clusters/local", "https://hv:6443"]
)
async def test_a_kubeconfig_that_harvester_itself_wrote_contradicts_nothing(leads_to: str) -> None:
    fleet = build()
    fleet.write_credential("hv1", cluster_id="c-hv1", leads_to=leads_to)
    await fleet.start()
    await fleet.pass_time(MINUTE)
    assert fleet.held() == {f"default.{X}": A}
    assert (fleet.problems_on_lease(), fleet.events("Cluster/")) == ([], [])


# What is corrected in place


@pytest.mark.parametrize("is_served", [True, False], ids=["without a floating IP", "with one that waits"])
async def test_a_network_that_is_corrected_in_place_serves_what_waits_for_it_a_minute_later(
    is_served: bool,
) -> None:
    fleet = build("vlan2", is_served=is_served)
    if not is_served:
        fleet.ask(A, range_name="")
    await fleet.start()
    await fleet.pass_time(MINUTE)
    assert fleet.held() == {}
    fleet.write_network(A, "vlan2")
    await fleet.pass_time(MINUTE + 15)
    assert fleet.held() == {f"default.{X}": A}


async def test_a_credential_that_is_corrected_in_place_serves_what_waits_for_it_a_minute_later() -> None:
    fleet = build()
    fleet.add_harvester("hv2")
    fleet.write_credential("hv1", cluster_id="c-hv2")
    await fleet.start()
    await fleet.pass_time(MINUTE)
    assert fleet.held() == {}
    fleet.write_credential("hv1", cluster_id="c-hv1")
    await fleet.pass_time(MINUTE + 15)
    assert fleet.held() == {f"default.{X}": A}


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_address_of_another_network_than_its_guest_cluster_is_told_of_as_long_as_that_is_so(
    *, restarts: bool
) -> None:
    fleet = build("vlan1", "vlan2")
    await fleet.start()
    await fleet.pass_time(MINUTE)
    name = f"cluster-{A}-kubevip"
    assert fleet.condition(A, "Ready", name) == ("True", "Ready")
    fleet.write_network(A, "vlan2")
    await fleet.pass_time(VISITED)
    if restarts:
        await fleet.restart()
        await fleet.pass_time(VISITED)
    assert fleet.condition(A, "GuestConfigured", name) == ("False", "NetworkMismatch")
    assert 'Range "range-0" is of network vlan1, and the guest cluster is on vlan2.' in fleet.message(
        A, "GuestConfigured", name
    )
    assert (fleet.held(), fleet.guests[A].addresses) == ({f"default.{X}": A}, {X})
    assert [reason for _, reason, _ in fleet.events(name)].count("NetworkMismatch") == 1
    version = fleet.memory.version
    await fleet.pass_time(600)
    assert fleet.commits_since(version) == []
    fleet.write_network(A, "vlan1")
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, "GuestConfigured", name) == ("True", "Configured")


async def test_a_range_that_is_named_and_of_another_network_is_told_of_from_the_first_status_on() -> None:
    fleet = build("vlan2", is_served=False)
    fleet.ask(A, range_name="range-0")
    await fleet.start()
    assert fleet.held() == {f"default.{X}": A}
    assert fleet.condition(A, "GuestConfigured") == ("False", "NetworkMismatch")


async def test_what_is_not_on_harvester_is_compared_with_no_network() -> None:
    fleet = Fleet()
    fleet.add_range(network="vlan2", clusterSelector=EVERY_GUEST)
    fleet.add_guest(B)
    fleet.ask(B)
    await fleet.start()
    await fleet.pass_time(MINUTE)
    assert fleet.condition(B, "Ready") == ("True", "Ready")


async def test_the_name_of_a_cluster_that_is_no_harvester_has_no_links_of_others_read_again() -> None:
    fleet = build()
    fleet.add_guest(B)
    link = fleet.begin().link
    await fleet.pass_time(VISITED)
    counts = []
    for name in ("", "berlin"):
        before = link.requests["get", "harvesterconfigs"]
        for number in range(30):
            if name:
                fleet.rename_harvester(B.removeprefix("c-"), f"{name}-{number}")
            await fleet.pass_time(MINUTE / 5)
        counts.append(link.requests["get", "harvesterconfigs"] - before)
    assert counts[1] <= counts[0] + 1


def count_wakings() -> float:
    """Return how often all floating IPs that wait were looked at."""
    (metric,) = RECONCILE_SECONDS.collect()
    samples = [each for each in metric.samples if each.name.endswith("_count")]
    return sum(each.value for each in samples if each.labels["kind"] == WAITING)


async def test_what_people_call_a_guest_cluster_wakes_nothing_that_waits() -> None:
    fleet = build()
    fleet.add_guest(B)
    await fleet.start(leader_election=False)
    await fleet.pass_time(VISITED)
    counts = []
    for name in ("", "berlin"):
        before = count_wakings()
        for number in range(30):
            if name:
                fleet.rename_harvester(B.removeprefix("c-"), f"{name}-{number}")
            await fleet.pass_time(MINUTE / 5)
        counts.append(count_wakings() - before)
    assert counts[1] <= counts[0] + 1
    fleet.disconnect(B)
    before = count_wakings()
    await fleet.pass_time(5)
    assert count_wakings() > before


async def test_links_that_stay_broken_are_read_ever_more_rarely_also_of_a_new_guest_cluster() -> None:
    fleet = build()
    break_config(fleet)
    link = fleet.begin().link
    await fleet.pass_time(10 * MINUTE)
    assert 15 <= link.requests["get", "harvesterconfigs"] <= 40


async def test_metrics_of_a_guest_cluster_keep_no_former_name_of_its_harvester() -> None:
    fleet = build()
    await fleet.start(leader_election=False)
    for number in range(3):
        fleet.rename_harvester("hv1", f"hv-{number}")
        await fleet.pass_time(VISITED)
    (metric,) = GUEST_EVENTS.collect()
    labels = [each.labels for each in metric.samples if each.labels["guestclustername"] == f"cluster-{A}"]
    assert {each["harvesterclustername"] for each in labels} == {"hv-2"}
