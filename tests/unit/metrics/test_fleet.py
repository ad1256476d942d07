"""What a scrape shows of the fleet: legacy names to the letter, series that vanish with their objects."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fipop.api.conditions import Condition, ConditionType, Verdict
from fipop.api.objects import AddressCounts, RangeSpec, RangeStatus
from fipop.metrics.counters import (
    ALLOCATIONS,
    GuestEvent,
    count_guest_event,
    forget_guest,
    observe_api_request,
)
from fipop.operator.metrics import OperatorState
from tests.unit.metrics.samples import FLEET, RANGE, Scraped, guest_of, range_of


def test_the_four_metrics_that_users_scrape_are_there_to_the_letter(fleet: Scraped) -> None:
    for event in GuestEvent:
        count_guest_event("demo", "harv1", event, True)
    count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, False)
    count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, True)

    assert sorted(fleet.lines("kubefipoperator_")) == sorted(
        [
            (
                'kubefipoperator_fipranges_capacity{fiprange="10.135.10.192/26",fiprangename="guest-vlan",'
                'harvesterclustername="harv1",harvesternetworkname="vlan10"} 62.0'
            ),
            (
                'kubefipoperator_fipranges_reserved{fiprange="10.135.10.192/26",fiprangename="guest-vlan",'
                'harvesterclustername="harv1",harvesternetworkname="vlan10"} 4.0'
            ),
            'kubefipoperator_guestcluster_status{guestclustername="demo",harvesterclustername="harv1"} 1.0',
            *(
                f'kubefipoperator_guestcluster_events{{event="{event}",guestclustername="demo",'
                f'harvesterclustername="harv1",status="{status}"}} {count}'
                for event, status, count in (
                    ("api_connection", "success", "2.0"),
                    ("api_connection", "error", "1.0"),
                    ("configmap_management", "success", "1.0"),
                    ("kubevip_install", "success", "1.0"),
                    ("kubevipcloudprovider_install", "success", "1.0"),
                )
            ),
        ]
    )


def test_a_guest_that_is_gone_shows_no_events_and_a_namesake_counts_from_zero(fleet: Scraped) -> None:
    count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, True)
    count_guest_event("shop", "harv1", GuestEvent.API_CONNECTION, True)

    forget_guest("demo")
    forget_guest("never seen")

    assert [
        line.rpartition("guestclustername=")[2] for line in fleet.lines("kubefipoperator_guestcluster_events")
    ] == ['"shop",harvesterclustername="harv1",status="success"} 1.0']
    count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, True)
    assert any(
        '"demo"' in line and line.endswith(" 1.0")
        for line in fleet.lines("kubefipoperator_guestcluster_events")
    )


def test_the_addresses_of_a_range_are_counted_for_each_family_that_it_has(fleet: Scraped) -> None:
    assert fleet.lines("fipop_range_addresses") == [
        'fipop_range_addresses{family="IPv4",range="guest-vlan",state="used"} 3.0',
        'fipop_range_addresses{family="IPv4",range="guest-vlan",state="free"} 58.0',
        'fipop_range_addresses{family="IPv4",range="guest-vlan",state="quarantined"} 1.0',
        'fipop_range_addresses{family="IPv4",range="guest-vlan",state="out_of_range"} 2.0',
        'fipop_range_addresses{family="IPv6",range="guest-vlan",state="out_of_range"} 0.0',
    ]


def test_a_dual_stack_range_without_a_free_ipv4_address_shows_none_free(fleet: Scraped) -> None:
    found = range_of(AddressCounts(total=10, used=10), AddressCounts(total=2**62, free=2**62))
    fleet.fleet = replace(FLEET, ranges=(found,))

    free = [line for line in fleet.lines("fipop_range_addresses") if 'state="free"' in line]
    assert free == [
        'fipop_range_addresses{family="IPv4",range="guest-vlan",state="free"} 0.0',
        'fipop_range_addresses{family="IPv6",range="guest-vlan",state="free"} 4.611686018427388e+18',
    ]
    (capacity,) = fleet.lines("kubefipoperator_fipranges_capacity")
    assert float(capacity.rpartition(" ")[2]) == float(2**62 + 10)


def test_a_range_shows_the_network_and_the_address_space_that_it_serves(fleet: Scraped) -> None:
    bare = replace(RANGE, metadata=replace(RANGE.metadata, name="lab", annotations={}))
    fleet.fleet = replace(
        FLEET, leading=False, ranges=(RANGE, replace(bare, spec=RangeSpec(address_space="lab")))
    )

    assert fleet.lines("fipop_range_info") == [
        (
            'fipop_range_info{address_space="default",harvester_cluster="harv1",harvester_network="vlan10",'
            'range="guest-vlan"} 1.0'
        ),
        'fipop_range_info{address_space="lab",harvester_cluster="",harvester_network="",range="lab"} 1.0',
    ]


def test_a_range_that_cannot_be_read_shows_why_and_counts_nothing(fleet: Scraped) -> None:
    ready = Condition(type=ConditionType.READY, status=Verdict.FALSE, reason="Invalid")
    broken = replace(RANGE, status=RangeStatus(conditions=(ready,)))
    fleet.fleet = replace(FLEET, ranges=(broken,))

    assert fleet.lines("fipop_range_addresses{") == []
    assert fleet.lines("fipop_range_ready") == ['fipop_range_ready{range="guest-vlan",reason="Invalid"} 0.0']
    for legacy in ("capacity", "reserved"):
        (line,) = fleet.lines(f"kubefipoperator_fipranges_{legacy}")
        assert line.endswith(" 0.0")


def test_what_a_leader_waits_for_is_shown_by_the_leader_alone(fleet: Scraped) -> None:
    """A replica that lost the Lease while kube-fip-operator ran knows no better than that it runs."""
    gauges = ("fipop_predecessor_running", "fipop_allocation_open")
    for leading, predecessor_runs, expected in (
        (True, False, [["fipop_predecessor_running 0.0"], ["fipop_allocation_open 1.0"]]),
        (True, True, [["fipop_predecessor_running 1.0"], []]),
        (False, True, [[], []]),
        (False, False, [[], []]),
    ):
        fleet.fleet = replace(FLEET, leading=leading, predecessor_runs=predecessor_runs)
        assert [fleet.lines(gauge) for gauge in gauges] == expected


def test_every_series_vanishes_with_its_object(fleet: Scraped) -> None:
    fleet.fleet = OperatorState(leading=True)

    assert fleet.lines("kubefipoperator_") == []
    assert fleet.lines("fipop_range_") == []
    assert fleet.lines("fipop_guest_last_visit_timestamp_seconds{") == []
    assert fleet.lines("fipop_guests{") == [
        'fipop_guests{state="reachable"} 0.0',
        'fipop_guests{state="unreachable"} 0.0',
        'fipop_guests{state="unknown"} 0.0',
    ]


def test_the_legacy_metrics_are_the_leaders_alone(fleet: Scraped) -> None:
    fleet.fleet = replace(FLEET, leading=False)

    assert fleet.lines("kubefipoperator") == []
    assert fleet.lines("fipop_leader") == ["fipop_leader 0.0"]

    fleet.fleet = FLEET
    assert fleet.lines("fipop_leader") == ["fipop_leader 1.0"]
    assert len(fleet.lines("kubefipoperator_")) == 3


def test_an_unreachable_guest_shows_zero_and_one_not_yet_tried_shows_nothing(fleet: Scraped) -> None:
    new = guest_of(cluster_name="new", reachable=None)
    fleet.fleet = replace(FLEET, guests=(guest_of(reachable=False), new))

    assert fleet.lines("kubefipoperator_guestcluster_status") == [
        'kubefipoperator_guestcluster_status{guestclustername="demo",harvesterclustername="harv1"} 0.0'
    ]
    assert 'fipop_guests{state="unknown"} 1.0' in fleet.lines("fipop_guests")


def test_namesakes_of_two_workspaces_share_a_series_that_is_up_only_if_both_are(fleet: Scraped) -> None:
    for states, shown in (
        ((True, False), "0.0"),
        ((False, True), "0.0"),
        ((True, True), "1.0"),
        ((None, True), "1.0"),
    ):
        guests = [guest_of(f"c-m-{number}", reachable=up) for number, up in enumerate(states)]
        fleet.fleet = replace(FLEET, guests=guests)
        assert fleet.lines("kubefipoperator_guestcluster_status") == [
            f'kubefipoperator_guestcluster_status{{guestclustername="demo",harvesterclustername="harv1"}} {shown}'
        ]


LABELS = st.text(alphabet=st.characters(categories=None), max_size=30) | st.sampled_from(
    [
        '"',
        "\\",
        "\n",
        "\ud800",
        "# TYPE kubefipoperator_guestcluster_events_total counter",
        "\r\n\x00\x85\u2028",
    ]
)


@given(LABELS, LABELS, LABELS)
def test_whatever_people_write_in_names_the_text_stays_legal(name: str, cluster: str, harvester: str) -> None:
    fleet = Scraped()
    meta = replace(RANGE.metadata, name=name, annotations={"harvesterClusterName": harvester})
    found = replace(RANGE, metadata=meta, spec=RangeSpec(iprange=name))
    guest = guest_of(cluster_name=cluster, harvester_cluster_name=harvester)
    fleet.fleet = replace(FLEET, ranges=(found,), guests=(guest,))
    count_guest_event(cluster, harvester, GuestEvent.API_CONNECTION, True)

    families = {family.name: family for family in text_string_to_metric_families(fleet.render())}

    for legacy in ("fipranges_capacity", "fipranges_reserved", "guestcluster_status", "guestcluster_events"):
        assert len(families[f"kubefipoperator_{legacy}"].samples) == 1


def test_a_guest_cluster_that_answers_with_any_code_makes_a_series_for_its_class(fleet: Scraped) -> None:
    observe_api_request("guest", "get", 404, 0.05)
    observe_api_request("guest", "get", 418, 0.05)
    observe_api_request("management", "list", 0, 30)

    assert fleet.lines("fipop_api_requests_total") == [
        'fipop_api_requests_total{code="4xx",target="guest",verb="get"} 2.0',
        'fipop_api_requests_total{code="0",target="management",verb="list"} 1.0',
    ]


def test_only_counters_have_total_nothing_has_created_and_the_process_is_shown_too(fleet: Scraped) -> None:
    ALLOCATIONS.labels("allocated").inc()

    text = fleet.render()

    types = dict(re.findall(r"^# TYPE (fipop_\S+) (\S+)$", text, re.MULTILINE))
    assert {name for name, kind in types.items() if kind == "counter"} == {
        name for name in types if name.endswith("_total")
    }
    assert "_created" not in text
    assert fleet.lines("process_resident_memory_bytes ")
    assert fleet.lines("python_gc_collections_total{")
