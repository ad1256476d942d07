"""The demo's checks can fail: on a fleet where nothing happened nearly all of them do."""

import io

from localfleet.demo_checks import check_all, check_end
from localfleet.demo_stage import GUESTS
from localfleet.demo_story import Ending, Evidence
from localfleet.demo_tables import show
from localfleet.observation import GuestView, ManagementView
from localfleet.report import Report

NOTHING = GuestView(config_map=None, releases={}, daemon_sets={}, deployments={}, pods=())
EMPTY = Ending(
    management=ManagementView(ranges={}, floating_ips={}, reservations={}, settings={}),
    guests=dict.fromkeys(GUESTS, NOTHING),
    metrics=(),
    log="",
)


def test_on_an_empty_fleet_only_what_forbids_something_holds() -> None:
    stream = io.StringIO()
    report = Report(stream=stream)
    evidence = Evidence(linked_at=dict.fromkeys(GUESTS, 0.0))
    check_all(report, EMPTY, evidence, {})
    check_end(report, evidence)
    held = [line.split("ok    ")[1] for line in stream.getvalue().splitlines() if "  ok  " in line]
    assert held == [
        "no address is held twice",
        "nothing is installed in plain, which did not ask for it",
        "no guest but demo carries 10.135.10.200",
        "no metric speaks of it any more",
        "and no write",
    ]
    assert len(report.failed) >= 25
    assert report.verdict() == 1


def test_the_tables_of_an_empty_fleet_say_so() -> None:
    stream = io.StringIO()
    show(Report(stream=stream), EMPTY, {})
    assert stream.getvalue().count("(none)") == 9
