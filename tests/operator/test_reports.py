"""The rules "reports", "what counts" and "two users": what guest clusters use by hand is assigned to no other."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest

from fipop.interfaces import ApiRequest
from tests.harness.api_in_memory import Commit
from tests.harness.fleet import EVERY_GUEST, RANGES, Fleet, build_fleet

A, B, C, D = "c-m-a", "c-m-b", "c-m-c", "c-m-d"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
W = "10.0.0.9"
"""Outside of the range, until it is widened."""
BLUE = {"matchLabels": {"net": "blue"}}
RETRY = 65
A_VISIT = 75
"""Seconds in which every guest cluster is visited."""
AFTER_QUARANTINE = 200


def build(*guest_ids: str, **spec: object) -> Fleet:
    """Have a range that matches every guest cluster, and these guest clusters."""
    fleet = build_fleet(*guest_ids, **{"clusterSelector": EVERY_GUEST, "quarantineSeconds": 90, **spec})
    fleet.set_options(operateGuestClusterInterval="60")
    return fleet


async def start(fleet: Fleet) -> None:
    await fleet.start(leader_election=False)


async def taken_over(*guest_ids: str) -> Fleet:
    """Have X held for the first of these guest clusters, and used by the second, as a new leader finds it."""
    fleet = build(*guest_ids)
    await start(fleet)
    fleet.ask(guest_ids[0], X)
    await fleet.settle()
    fleet.guests[guest_ids[1]].add_service(X)
    await fleet.restart(leader_election=False)
    return fleet


# What is reported


def in_status_of_a_service(fleet: Fleet) -> None:
    fleet.guests[B].add_service(X)


def in_annotation_of_a_service(fleet: Fleet) -> None:
    key = ("services", "default", "web")
    metadata = {"name": "web", "namespace": "default", "annotations": {"kube-vip.io/loadbalancerIPs": X}}
    fleet.guests[B].put(key, {"metadata": metadata, "spec": {"type": "LoadBalancer"}})


def in_load_balancer_ip(fleet: Fleet) -> None:
    fleet.guests[B].add_service(loadBalancerIP=X)


def in_config_map(fleet: Fleet) -> None:
    fleet.guests[B].write_config_map(cidr_default=f"{X}/32")


def in_external_ips(fleet: Fleet) -> None:
    key = ("services", "default", "web")
    fleet.guests[B].put(
        key, {"metadata": {"name": "web", "namespace": "default"}, "spec": {"externalIPs": [X]}}
    )


def as_member_of_a_pool(fleet: Fleet) -> None:
    fleet.guests[B].write_config_map(range_default=f"{X}-{X},10.0.0.200-10.0.0.201")


def as_address_of_a_node(fleet: Fleet) -> None:
    addresses = [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": X}]
    fleet.guests[B].put(("nodes", "", "n1"), {"metadata": {"name": "n1"}, "status": {"addresses": addresses}})


def as_api_server(fleet: Fleet) -> None:
    key = ("endpoints", "default", "kubernetes")
    metadata = {"name": "kubernetes", "namespace": "default"}
    fleet.guests[B].put(key, {"metadata": metadata, "subsets": [{"addresses": [{"ip": X}]}]})


@pytest.mark.parametrize(
    "use",
    [
        in_status_of_a_service,
        in_annotation_of_a_service,
        in_load_balancer_ip,
        in_config_map,
        in_external_ips,
        as_member_of_a_pool,
        as_address_of_a_node,
        as_api_server,
    ],
)
async def test_what_a_guest_cluster_uses_by_hand_is_assigned_to_no_other(
    use: Callable[[Fleet], None],
) -> None:
    fleet = build(A, B)
    use(fleet)
    await start(fleet)
    fleet.ask(A)
    fleet.ask(A, X, name="second")
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{Y}": A}
    assert fleet.condition(A, name="second")[0] == "False"
    assert fleet.problems == []


@pytest.mark.parametrize("how", ["without a floating IP", "paused", "refused"])
async def test_a_use_that_begins_in_a_running_term_is_learnt_within_an_interval_and_forgotten(
    how: str,
) -> None:
    """Also in a guest cluster that gets nothing from fipop."""
    fleet = build(A, B)
    await start(fleet)
    if how != "without a floating IP":
        fleet.ask(B, "192.0.2.1" if how == "refused" else Z)
        await fleet.settle()
    if how == "paused":
        fleet.pause(B)
    fleet.guests[B].add_service(X)
    await fleet.pass_time(A_VISIT)
    fleet.ask(A, X)
    await fleet.pass_time(RETRY)
    assert fleet.holders(X) == set()
    fleet.guests[B].remove_service()
    await fleet.pass_time(A_VISIT)
    assert fleet.holders(X) == {A}
    assert fleet.problems == []


async def test_an_address_that_its_owner_adds_to_a_key_of_fipop_shows_as_used_in_two_guest_clusters() -> None:
    """The key is full, its owner extends it, a Service takes the address; another one had got it meanwhile."""
    fleet = build(A, B)
    await start(fleet)
    fleet.ask(A)
    await fleet.settle()
    fleet.ask(B)
    await fleet.settle()
    assert fleet.addresses(B) == [Y]
    fleet.guests[A].write_config_map(cidr_global=f"{X}/32,{Y}/32")
    fleet.guests[A].add_service(Y)
    await fleet.pass_time(2 * A_VISIT)
    assert fleet.condition(B, "GuestConfigured") == ("False", "AddressConflict")
    assert fleet.condition(B, "Ready")[0] == "False"
    assert A in fleet.message(B, "GuestConfigured")
    assert [reason for _, reason, _ in fleet.events("FloatingIP/")].count("AddressConflict") == 1
    fleet.guests[A].remove_service()
    fleet.guests[A].write_config_map(cidr_global=f"{X}/32")
    await fleet.pass_time(2 * A_VISIT)
    assert fleet.condition(B, "Ready")[0] == "True"


async def test_the_addresses_that_guest_clusters_use_without_a_floating_ip_are_in_the_status_of_their_range() -> (
    None
):
    fleet = build(A, B)
    fleet.guests[B].add_service(X)
    fleet.guests[A].add_service("10.0.0.20")
    await start(fleet)
    fleet.ask(A, "10.0.0.20")
    await fleet.pass_time(2 * RETRY)
    status = fleet.range_status()
    assert (status["reported"], status["reportedCount"]) == ([{"address": X, "guest": B}], 1)
    before = fleet.memory.version
    await fleet.pass_time(A_VISIT)
    assert fleet.commits_since(before) == []
    fleet.guests[B].remove_service()
    await fleet.pass_time(A_VISIT)
    assert "reported" not in fleet.range_status()


async def test_a_use_is_in_the_status_of_its_range_two_seconds_after_a_visit_found_it() -> None:
    fleet = build(A, B)
    await start(fleet)
    await fleet.pass_time(A_VISIT)
    fleet.guests[B].add_service(X)
    asked = fleet.guests[B].asked
    while fleet.guests[B].asked == asked:
        await fleet.pass_time(0.1)
    await fleet.pass_time(2)
    assert fleet.range_status()["reported"] == [{"address": X, "guest": B}]


async def test_further_uses_are_written_every_ten_seconds() -> None:
    """Owners of guest clusters decide how often they change, and cause no more writes than that."""
    guest_ids = [f"c-m-{number}" for number in range(40)]
    fleet = build(*guest_ids, iprange="10.1.0.10-10.1.0.99")
    await start(fleet)
    await fleet.pass_time(3 * A_VISIT)  # visits are spread by then
    written: list[tuple[float, object]] = []

    def note(commit: Commit) -> None:
        reported = ((commit.obj or {}).get("status") or {}).get("reported")
        if commit.key[0] == RANGES and (not written or written[-1][1] != reported):
            written.append((commit.at.timestamp(), reported))

    fleet.memory.listeners.append(note)
    for number, guest_id in enumerate(guest_ids):
        fleet.guests[guest_id].add_service(f"10.1.0.{10 + number}")
    await fleet.pass_time(A_VISIT)
    times = [at for at, _ in written]
    assert len(fleet.range_status()["reported"]) == len(guest_ids)
    assert len(times) >= 3
    assert min(after - before for before, after in pairwise(times)) >= 9.9


async def test_a_status_of_a_new_generation_shows_what_counts_in_the_range_as_it_is_now() -> None:
    fleet = build(A, B)
    fleet.guests[A].add_service(X)
    fleet.guests[B].add_service(W)
    await start(fleet)
    assert fleet.range_status()["reported"] == [{"address": X, "guest": A}]
    shown = []
    fleet.memory.listeners.append(
        lambda commit: commit.key[0] == RANGES and shown.append((commit.obj or {}).get("status"))
    )
    fleet.change_range(iprange=f"{W}-10.0.0.13")
    await fleet.pass_time(5)
    current = [each["reported"] for each in shown if each["observedGeneration"] == 2]
    assert current != []
    assert {"address": W, "guest": B} in current[0]


async def test_what_guest_clusters_use_is_in_the_status_of_their_range_soon_after_a_write_that_failed() -> (
    None
):
    fleet = build(A, B)
    await start(fleet)
    failed: list[str] = []

    async def fail_once(request: ApiRequest) -> None:
        if request.method == "PATCH" and "reported" in json.dumps(request.body) and not failed:
            failed.append(request.path)
            raise ConnectionError("no route")

    fleet.link.before = fail_once
    fleet.guests[B].add_service(X)
    while not failed:
        await fleet.pass_time(1)
    await fleet.pass_time(20)
    assert fleet.range_status()["reportedCount"] == 1


async def test_a_write_of_a_status_whose_answer_is_lost_hides_no_event() -> None:
    fleet = build(A, B)
    await start(fleet)
    lost: list[str] = []

    async def lose_once(request: ApiRequest) -> None:
        if "AddressConflict" in json.dumps(request.body) and "status" in request.path and not lost:
            lost.append(request.path)
            raise ConnectionError("the answer was lost")

    fleet.link.after = lose_once
    fleet.ask(B, Y)
    await fleet.settle()
    fleet.guests[A].add_service(Y)
    await fleet.pass_time(2 * A_VISIT)
    assert lost
    assert [reason for _, reason, _ in fleet.events("FloatingIP/")] == ["AddressConflict"]


@pytest.mark.parametrize("last", [B, C])
async def test_an_address_is_assigned_once_no_guest_cluster_uses_it_any_more(last: str) -> None:
    fleet = build(A, B, C)
    fleet.guests[B].add_service(X)
    fleet.guests[C].add_service(X)
    await start(fleet)
    fleet.ask(A, X)
    fleet.guests[B if last == C else C].remove_service()
    await fleet.pass_time(A_VISIT)
    assert fleet.held() == {}
    fleet.guests[last].remove_service()
    await fleet.pass_time(A_VISIT)
    assert fleet.held() == {f"default.{X}": A}
    assert fleet.problems == []


async def test_a_use_stays_known_while_its_guest_cluster_cannot_be_read() -> None:
    fleet = build(A, B)
    fleet.guests[B].add_service(X)
    await start(fleet)
    fleet.guests[B].silent = True
    fleet.guests[B].remove_service()
    fleet.ask(A, X)
    await fleet.pass_time(2 * AFTER_QUARANTINE)
    assert fleet.held() == {}
    fleet.guests[B].silent = False
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.held() == {f"default.{X}": A}


async def test_a_use_stays_known_over_restarts_while_its_guest_cluster_cannot_be_read() -> None:
    fleet = build(A, B)
    fleet.guests[B].add_service(X)
    await start(fleet)
    await fleet.pass_time(RETRY)
    fleet.guests[B].silent = True
    for _ in range(2):
        await fleet.restart(leader_election=False)
        await fleet.pass_time(2 * RETRY)
    fleet.ask(A)
    fleet.ask(A, X, name="second")
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{Y}": A}


# Its own guest cluster


@pytest.mark.parametrize("moves", [False, True])
async def test_a_floating_ip_gets_the_address_that_it_names_and_its_own_guest_cluster_uses(
    moves: bool,
) -> None:
    fleet = build(A, B)
    fleet.guests[A].add_service(X)
    if moves:
        fleet.ask(A)
    await start(fleet)
    fleet.ask(B, X)
    await fleet.settle()
    if moves:
        fleet.ask_for_another(A, X)
    else:
        fleet.ask(A, X)
    await fleet.settle()
    assert fleet.addresses(A) == [X]
    assert (fleet.condition(A), fleet.condition(B)[0]) == (("True", "Allocated"), "False")


async def test_the_guest_cluster_that_uses_an_address_gets_it_before_an_older_request_of_another() -> None:
    fleet = build(A, B)
    fleet.ask(A, X)
    await fleet.pass_time(10)
    fleet.ask(B, X)
    fleet.guests[B].add_service(X)
    await start(fleet)
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{X}": B}
    fleet.give_up(B)
    fleet.guests[B].remove_service()
    await fleet.pass_time(2 * AFTER_QUARANTINE)
    assert fleet.held() == {f"default.{X}": A}
    assert fleet.problems == []


@pytest.mark.parametrize("last", [A, B])
async def test_of_two_guest_clusters_that_use_an_address_and_ask_for_it_the_last_user_gets_it(
    last: str,
) -> None:
    fleet = build(A, B)
    for guest_id in (A, B):
        fleet.guests[guest_id].add_service(X)
        fleet.ask(guest_id, X)
    await start(fleet)
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.held() == {}
    assert fleet.condition(A)[0] == fleet.condition(B)[0] == "False"
    fleet.guests[A if last == B else B].remove_service()
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.held() == {f"default.{X}": last}


@pytest.mark.parametrize("order", ["before the deletion", "in the quarantine", "after the quarantine"])
async def test_an_application_that_moved_to_another_guest_cluster_takes_its_address_along(order: str) -> None:
    """Another one waits for any address of the full range, and asked first."""
    fleet = build(A, B, C, iprange=f"{X}-{X}")
    await start(fleet)
    fleet.ask(A)
    await fleet.settle()
    fleet.ask(C)
    fleet.guests[B].add_service(X)
    await fleet.restart(leader_election=False)
    if order == "before the deletion":
        fleet.ask(B, X)
        await fleet.settle()
    fleet.give_up(A)
    await fleet.settle()
    if order == "in the quarantine":
        fleet.ask(B, X)
    await fleet.pass_time(80)
    assert fleet.held() == {}
    await fleet.pass_time(AFTER_QUARANTINE)
    if order == "after the quarantine":
        fleet.ask(B, X)
        await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{X}": B}
    assert fleet.guests[B].addresses == {X}


# The end of a quarantine


@pytest.mark.parametrize("obstacle", ["silent", "hanging", "disconnected", "500", "services", "configmaps"])
async def test_a_quarantine_lasts_while_its_guest_cluster_cannot_be_read_wholly(obstacle: str) -> None:
    """It does not answer, or it refuses to list its Services or ConfigMaps."""
    fleet = build(A, B, iprange=X)
    await start(fleet)
    fleet.ask(A)
    await fleet.settle()
    fleet.ask(B, X)
    fleet.give_up(A)
    former = fleet.guests[A]
    match obstacle:
        case "silent" | "hanging":
            setattr(former, obstacle, True)
        case "disconnected":
            fleet.disconnect(A)
        case "500":
            former.status = 500
        case _:
            former.forbidden = {obstacle}
    await fleet.pass_time(AFTER_QUARANTINE)
    assert (fleet.held(), fleet.condition(B)) == ({}, ("False", "AddressQuarantined"))
    assert A in fleet.message(B)
    former.silent, former.hanging, former.status, former.forbidden = False, False, 0, set()
    fleet.connect(A)
    await fleet.pass_time(A_VISIT)
    assert fleet.held() == {f"default.{X}": B}
    assert fleet.problems == []


async def test_a_guest_cluster_that_cannot_be_read_and_never_used_an_address_keeps_it_from_no_other() -> None:
    """It asks for it as well."""
    fleet = build(A, B, C)
    await start(fleet)
    fleet.ask(A, X)
    await fleet.settle()
    fleet.ask(C, X)
    await fleet.pass_time(10)
    fleet.ask(B, X)
    fleet.guests[B].silent = True
    fleet.give_up(A)
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.held() == {f"default.{X}": C}


async def test_an_imported_cluster_that_left_rancher_keeps_its_address_from_one_that_does_not_use_it() -> (
    None
):
    """It may run on. Another was registered under its name."""
    fleet = build()
    fleet.add_guest("c-m-old", named="demo", imported=True)
    await start(fleet)
    fleet.ask("c-m-old")
    await fleet.settle()
    fleet.give_up("c-m-old")
    fleet.remove_guest("c-m-old", named="demo")
    await fleet.pass_time(AFTER_QUARANTINE)
    fleet.add_guest("c-m-new", named="demo", imported=True)
    await fleet.pass_time(RETRY)
    fleet.ask("c-m-new")
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{Y}": "c-m-new"}


# Two users


async def test_a_report_of_another_guest_cluster_takes_no_address_from_its_owner() -> None:
    fleet = await taken_over(A, B)
    await fleet.pass_time(2 * A_VISIT)
    assert (fleet.held(), fleet.addresses(A)) == ({f"default.{X}": A}, [X])
    assert fleet.guests[A].addresses == {X}
    fleet.replace(A)
    await fleet.pass_time(RETRY)
    assert (fleet.held(), fleet.addresses(A)) == ({f"default.{X}": A}, [X])
    fleet.give_up(A)
    await fleet.pass_time(5)
    fleet.ask(A)
    await fleet.pass_time(RETRY)
    assert (fleet.held(), fleet.addresses(A)) == ({f"default.{X}": A}, [X])
    assert fleet.problems == []


async def test_what_its_owner_gave_up_and_another_guest_cluster_uses_is_assigned_to_no_third_one() -> None:
    fleet = await taken_over(A, B, C)
    fleet.give_up(A)
    await fleet.pass_time(AFTER_QUARANTINE)
    fleet.ask(C)
    await fleet.settle()
    assert fleet.held() == {f"default.{Y}": C}
    fleet.guests[B].remove_service()
    fleet.change(C, ipaddress=X)
    await fleet.pass_time(AFTER_QUARANTINE)
    assert fleet.held() == {f"default.{X}": C}
    assert fleet.problems == []


async def unwritten(*users: str) -> Fleet:
    """Have X reserved for A's floating IP and not yet written to its guest cluster, while others use it."""
    fleet = build(A, *users)
    fleet.ask(A, has=X)
    fleet.reserve(X, A)
    for each in users:
        fleet.guests[each].add_service(X)
    await start(fleet)
    await fleet.pass_time(RETRY)
    return fleet


async def test_an_address_that_another_guest_cluster_uses_is_not_written_and_the_condition_names_the_user() -> (
    None
):
    fleet = await unwritten(B)
    assert (fleet.held(), fleet.addresses(A)) == ({f"default.{X}": A}, [X])
    assert fleet.condition(A, "Ready")[0] == fleet.condition(A, "GuestConfigured")[0] == "False"
    assert B in fleet.message(A, "GuestConfigured")
    assert X not in fleet.guests[A].addresses
    fleet.guests[B].silent = True
    await fleet.pass_time(RETRY)
    assert B in fleet.message(A, "GuestConfigured")
    fleet.guests[B].silent = False
    fleet.guests[B].remove_service()
    await fleet.pass_time(A_VISIT)
    assert fleet.condition(A, "Ready")[0] == "True"
    assert fleet.guests[A].addresses == {X}


async def test_a_conflict_withholds_the_address_concerned_and_no_other() -> None:
    fleet = await unwritten(B)
    fleet.ask(A, Z, name="second")
    await fleet.pass_time(RETRY)
    assert fleet.guests[A].addresses == {Z}
    assert fleet.condition(A, "GuestConfigured")[0] == "False"
    assert fleet.condition(A, "Ready", name="second")[0] == "True"


async def test_an_address_stays_in_its_key_though_another_guest_cluster_begins_to_use_it() -> None:
    fleet = await taken_over(A, B)
    await fleet.pass_time(A_VISIT)
    fleet.change(A, serviceNamespace="shop")
    await fleet.pass_time(RETRY)
    assert fleet.guests[A].config_map == {"cidr-shop": f"{X}/32"}


async def test_ignore_claim_takes_the_reports_of_the_guest_clusters_that_it_names_out_for_one_floating_ip() -> (
    None
):
    fleet = await unwritten(B, C)
    fleet.ignore_claims(A, B)
    await fleet.pass_time(RETRY)
    assert fleet.condition(A, "GuestConfigured")[0] == "False"
    assert C in fleet.message(A, "GuestConfigured")
    fleet.ignore_claims(A, B, C)
    await fleet.pass_time(RETRY)
    assert fleet.condition(A, "Ready")[0] == "True"
    assert fleet.guests[A].addresses == {X}


async def test_ignore_claim_lets_a_floating_ip_take_an_address_that_another_guest_cluster_reports() -> None:
    """The floating IP that had it moved into Git, under another name."""
    fleet = build(A, B)
    await start(fleet)
    fleet.ask(A, X, name="former")
    await fleet.settle()
    fleet.guests[B].add_service(X)
    await fleet.restart(leader_election=False)
    fleet.give_up(A, "former")
    fleet.ask(A, X)
    await fleet.pass_time(AFTER_QUARANTINE)
    assert (fleet.held(), fleet.condition(A)[0]) == ({}, "False")
    fleet.ignore_claims(A, B)
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{X}": A}


# What counts


async def test_a_report_counts_in_no_range_that_cannot_serve_the_guest_cluster() -> None:
    """One Service with many addresses could empty a range of another network."""
    fleet = build(B, clusterSelector=BLUE)
    fleet.add_guest(A, labels={"net": "blue"})
    fleet.guests[B].add_service(X, Y, Z)
    await start(fleet)
    fleet.ask(A)
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{X}": A}
    assert fleet.condition(A, "Ready")[0] == "True"
    assert fleet.guests[A].addresses == {X}


@pytest.mark.parametrize(
    "reason", ["its labels match", "its floating IP names the range", "its name is allowed"]
)
async def test_a_report_counts_in_a_range_that_can_serve_the_guest_cluster(reason: str) -> None:
    spec: dict[str, object] = {"clusterSelector": BLUE}
    if reason == "its name is allowed":
        spec = {"clusterSelector": EVERY_GUEST, "allowedClusters": [f"cluster-{A}", f"cluster-{B}"]}
    fleet = build(B, **spec)
    fleet.add_guest(A, labels={"net": "blue"})
    if reason == "its labels match":
        fleet.label_guest(B, net="blue")
    elif reason == "its floating IP names the range":
        fleet.ask(B, Z)
    fleet.guests[B].add_service(X)
    await start(fleet)
    fleet.ask(A)
    await fleet.settle()
    assert fleet.addresses(A) == [Y]


async def test_a_use_that_was_found_before_its_range_was_created_counts() -> None:
    fleet = Fleet()
    fleet.add_guest(A)
    fleet.add_guest(B)
    fleet.guests[B].add_service(X)
    await start(fleet)
    fleet.add_range(clusterSelector=EVERY_GUEST)
    await fleet.pass_time(2)
    fleet.ask(A)
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{Y}": A}


async def test_a_use_counts_on_after_a_label_of_its_guest_cluster_was_mistyped() -> None:
    fleet = build(clusterSelector=BLUE)
    for guest_id in (A, B):
        fleet.add_guest(guest_id, labels={"net": "blue"})
    fleet.guests[B].add_service(X)
    await start(fleet)
    fleet.label_guest(B, net="bleu")
    await fleet.pass_time(2)
    fleet.ask(A)
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{Y}": A}


async def test_a_report_counts_in_the_address_spaces_that_can_serve_the_guest_cluster_alone() -> None:
    fleet = build(B, clusterSelector=BLUE)
    fleet.add_guest(A, labels={"net": "blue"})
    fleet.add_range("lab", f"{X}-{Y}", addressSpace="lab", clusterSelector=EVERY_GUEST)
    fleet.guests[B].add_service(X)
    await start(fleet)
    fleet.ask(A)
    fleet.ask(A, name="lab", range_name="lab")
    await fleet.settle()
    assert fleet.held() == {f"default.{X}": A, f"lab.{Y}": A}


async def test_a_guest_cluster_keeps_at_most_64_addresses_of_a_range_from_others() -> None:
    fleet = build(A, iprange="10.1.0.1-10.1.0.70")
    for number in range(1, 71):
        fleet.guests[A].add_service(f"10.1.0.{number}", name=f"web-{number}")
    await start(fleet)
    others = [f"c-m-{number}" for number in range(8)]
    for each in others:
        fleet.ask(each)
    await fleet.settle()
    await fleet.pass_time(RETRY)
    assert sorted(len(fleet.addresses(each)) for each in others) == [0] * 2 + [1] * 6


async def test_many_services_of_another_network_hide_no_use_in_ours() -> None:
    fleet = build(A, B)
    for number in range(1, 71):
        fleet.guests[B].add_service(f"10.9.0.{number}", name=f"web-{number:02}")
    fleet.guests[B].add_service(X, name="zzz")
    await start(fleet)
    fleet.ask(A)
    await fleet.settle()
    assert fleet.addresses(A) == [Y]


async def test_what_a_guest_cluster_owns_is_not_counted_among_the_64_addresses_of_others() -> None:
    """Its own address is held, and is reported beside 64 others."""
    fleet = build(A, B, iprange="10.1.0.1-10.1.0.70")
    for number in range(1, 65):
        fleet.guests[B].add_service(f"10.1.0.{number}", name=f"web-{number}")
    fleet.ask(B, "10.1.0.70")
    await start(fleet)
    fleet.guests[B].add_service("10.1.0.70", name="own")
    fleet.ask(A)
    await fleet.settle()
    assert (fleet.addresses(A), fleet.addresses(B)) == (["10.1.0.65"], ["10.1.0.70"])


# A restored store


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ({}, {}),
        ({"maxPerGuest": 2}, {}),
        ({"restrictToMatching": True}, {}),
        ({"allowedClusters": ["another", f"cluster-{C}"]}, {}),
        ({}, {"range_name": "typo"}),
        ({}, {"ipFamilies": ["IPv6"]}),
        ({}, {"ipFamilyPolicy": "RequireDualStack"}),
        ({}, {"ipaddress": ""}),
    ],
)
async def test_what_a_guest_cluster_uses_goes_to_no_other_though_status_and_reservation_are_lost(
    limits: dict[str, object], asked: dict[str, str]
) -> None:
    """As after a restored backup; also if the request of its own floating IP is refused."""
    fleet = build(B, C, **limits)
    fleet.ask(B, **{"ipaddress": X, **asked})
    fleet.guests[B].add_service(X)
    await start(fleet)
    fleet.ask(C)
    await fleet.pass_time(A_VISIT)
    assert fleet.held().get(f"default.{X}") != C
    assert C in fleet.held().values()
    assert fleet.problems == []


@pytest.mark.parametrize("is_status_kept", [True, False])
async def test_guest_clusters_keep_their_addresses_if_reservations_are_lost_in_a_restore(
    is_status_kept: bool,
) -> None:
    """A backup of objects without their status is restored in another order than they were created in."""
    fleet = build(A, B, C)
    await start(fleet)
    for guest_id in (A, B, C):
        fleet.ask(guest_id)
        await fleet.settle()
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{X}": A, f"default.{Y}": B, f"default.{Z}": C}
    await fleet.stop()
    for name in fleet.held():
        fleet.remove_reservation(name)
    for guest_id in (C, A, B):
        status = fleet.status(guest_id)
        fleet.replace(guest_id)
        if is_status_kept:
            fleet.memory.put(
                ("floatingips", guest_id, "web"), {**fleet.floating_ip(guest_id), "status": status}
            )
        await fleet.pass_time(10)
    fleet.ask(D)
    await start(fleet)
    await fleet.pass_time(RETRY)
    assert fleet.held() == {f"default.{X}": A, f"default.{Y}": B, f"default.{Z}": C, "default.10.0.0.13": D}
    assert [fleet.guests[each].addresses for each in (A, B, C)] == [{X}, {Y}, {Z}]
