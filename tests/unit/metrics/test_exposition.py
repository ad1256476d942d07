"""What is counted, and how it is rendered."""

import re
from dataclasses import replace

from fipop.metrics.samples import GuestEvent
from tests.unit.metrics.samples import FLEET, GUEST, Fleet, another_guest


def test_a_guest_that_comes_back_under_its_name_counts_from_zero(fleet: Fleet) -> None:
    fleet.metrics.count_guest_event("demo", "harv1", GuestEvent.API_CONNECTION, True)
    fleet.metrics.count_guest_event("shop", "harv1", GuestEvent.API_CONNECTION, True)
    fleet.snapshot = replace(FLEET, guests=(GUEST, another_guest(cluster_name="shop")))

    fleet.metrics.forget_guest("demo")

    assert [
        line.rpartition("guestclustername=")[2] for line in fleet.lines("kubefipoperator_guestcluster_events")
    ] == ['"shop",harvesterclustername="harv1",status="success"} 1.0']


def test_what_happens_is_counted_in_base_units_with_total_on_counters_only(fleet: Fleet) -> None:
    metrics = fleet.metrics
    metrics.observe_queue_wait("guests", 0.2)
    metrics.observe_reconcile("FloatingIP", 0.1, success=False)
    metrics.observe_visit(2.0, success=True)
    metrics.observe_api_request("guest", "get", 404, 0.05)
    metrics.observe_api_request("management", "list", 0, 30)
    metrics.count_allocation("allocated")
    metrics.count_allocation("RangeFull")
    metrics.count_release("quarantined")
    metrics.count_helm_run("upgrade", success=False)

    shown = "\n".join(fleet.lines("fipop_"))
    for line in (
        'fipop_queue_wait_seconds_sum{queue="guests"} 0.2',
        'fipop_reconcile_duration_seconds_count{kind="FloatingIP"} 1.0',
        'fipop_reconcile_errors_total{kind="FloatingIP"} 1.0',
        'fipop_visit_duration_seconds_sum{result="success"} 2.0',
        'fipop_api_requests_total{code="4xx",target="guest",verb="get"} 1.0',
        'fipop_api_requests_total{code="0",target="management",verb="list"} 1.0',
        'fipop_allocations_total{result="allocated"} 1.0',
        'fipop_allocations_total{result="RangeFull"} 1.0',
        'fipop_address_releases_total{result="quarantined"} 1.0',
        'fipop_helm_runs_total{command="upgrade",result="error"} 1.0',
        'fipop_queue_depth{queue="guests"} 7.0',
        'fipop_floating_ips{ready="False"} 1.0',
        "fipop_allocation_open 1.0",
        "fipop_install_queue 12.0",
        "fipop_rollout_blocked 0.0",
        'fipop_rollout_guests{phase="pending"} 9.0',
        'fipop_rollout_info{state="Progressing",target="c0ffee"} 1.0',
        "fipop_api_last_answer_timestamp_seconds 1.5e+09",
        "fipop_settings_bad_options 2.0",
        "fipop_predecessor_running 0.0",
        'fipop_guest_last_visit_timestamp_seconds{guest="c-m-4xk8q2vz",guest_cluster="demo"} 1.5e+09',
    ):
        assert line in shown
    assert 'version="1.2.3"' in shown
    assert "_created" not in shown
    types = dict(re.findall(r"^# TYPE (fipop_\S+) (\S+)$", metrics.render().decode(), re.MULTILINE))
    assert {name for name, kind in types.items() if kind == "counter"} == {
        name for name in types if name.endswith("_total")
    }


def test_two_sets_of_metrics_in_one_process_do_not_meet() -> None:
    first, second = Fleet(), Fleet()
    first.metrics.count_allocation("allocated")

    assert first.lines("fipop_allocations_total{")
    assert not second.lines("fipop_allocations_total{")
