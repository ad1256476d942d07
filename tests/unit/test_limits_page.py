"""The numbers of docs/reference/limits.md are those of the code."""

import re
from pathlib import Path

import pytest

from fipop import deadlines
from fipop.addresses import gate, handover, quarantine, ranges, reports
from fipop.api import service
from fipop.cloudprovider import pools, usage
from fipop.guests import announced, config_map, desired, in_use
from fipop.helm import command, process, proxy
from fipop.ipam import pool
from fipop.kube import guests
from fipop.settings.values import MAX_HELM_CONCURRENCY
from fipop.settings.yaml import MAX_YAML_BYTES
from fipop.texts import LONGEST_MESSAGE

KIB, MIB = 1024, 1024 * 1024
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "limits.md").read_text()
ROWS = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("Parts of a pool, parts of its exclusions", f"{pool.MAX_PARTS:,}"),
        ("Message of a condition", f"{LONGEST_MESSAGE:,} characters"),
        ("Chart values", f"{MAX_YAML_BYTES // KIB} KiB"),
        ("`helmConcurrency`", f"{MAX_HELM_CONCURRENCY}"),
        ("Time of a quarantine", f"{deadlines.MIN_QUARANTINE_SECONDS} s"),
        (
            "Addresses in `status.reported` of a range",
            f"{ranges.MAX_REPORTED_OF_GUEST} of each guest cluster, {ranges.MAX_REPORTED:,} in all",
        ),
        ("Addresses of ConfigMaps and Services of a guest cluster", f"{reports.MAX_COUNTED} "),
        ("Addresses of nodes and of the API server of a guest cluster", f"{reports.MAX_COUNTED} "),
        ("Addresses and pools that are kept of the reports", f"{reports.MAX_KEPT:,} of objects"),
        ("Addresses and pools that objects of a guest cluster can name", f"{in_use.MAX_PARTS:,}"),
        ("Time until a guest cluster without a floating IP", f"{desired.BARE_SECONDS / 60:g} min"),
        ("Quarantine of an imported or custom cluster", f"{quarantine.IMPORTED_SECONDS / 3600:g} h"),
        ("Parts of a pool in the ConfigMap that are read", f"{pool.MAX_GUEST_PARTS:,}"),
        ("Services of a guest cluster for which `Announced`", f"{announced.MOST_SERVICES}"),
        (
            "Time until `Announced` shows a fault",
            f"`operateGuestClusterInterval` and {announced.FRESH_SECONDS + announced.AGAIN_SECONDS:g} s",
        ),
        ("Namespaces of a guest cluster that one visit writes", f"{config_map.MAX_NAMESPACES}"),
        ("Namespaces in `allow-pool-<pool>`", f"the first {config_map.MAX_POOL_NAMESPACES}"),
        ("One request", f"{deadlines.GUEST_REQUEST_SECONDS:g} s"),
        ("All requests of one visit", f"{deadlines.GUEST_SESSION_SECONDS:g} s"),
        ("One object or page of a list", f"{guests.ANSWER_BYTES // MIB} MiB"),
        ("One list", f"{guests.PAGES} pages of {guests.PAGE_ITEMS} objects"),
        ("Connections to one Rancher", f"{guests.CONNECTIONS}"),
        (
            "Wait for guest clusters after a start",
            f"{gate.GATE_SECONDS:g} s; {gate.UNREADABLE_SECONDS / 60:g} min if none can be read",
        ),
        ("Age of what the next leader takes over", f"{handover.MAX_AGE.total_seconds() / 60:g} min"),
        ("Guest clusters that the next leader waits for by name", f"{handover.MAX_WAITS}"),
        (
            "Writes of a range's status",
            f"one per second; of `reported`, one every {ranges.REPORTED_SECONDS:g} s",
        ),
        ("One helm process", f"{deadlines.HELM_DEADLINE_SECONDS:g} s"),
        ("Time after which a helm that asks nothing is ended", f"{deadlines.HELM_IDLE_SECONDS:g} s"),
        ("Writable memory of a helm process", f"{process.DATA_BYTES // MIB} MiB"),
        ("File that helm writes", f"{process.FILE_BYTES // MIB} MiB"),
        (
            "Request body, answer, all answers of a run",
            f"{proxy.BODY_BYTES // MIB} MiB, {proxy.ANSWER_BYTES // MIB} MiB, {proxy.RUN_BYTES // MIB} MiB",
        ),
        (
            "Lease of the leader",
            f"{deadlines.LEASE_DURATION_SECONDS} s, renewed every {deadlines.LEASE_RENEW_SECONDS:g} s",
        ),
        (
            "Until a leader ends that cannot renew its Lease",
            f"{deadlines.LEASE_RENEW_DEADLINE_SECONDS:g} s",
        ),
        (
            "Until a watch that shows nothing is opened again",
            f"{deadlines.LONGEST_WATCH_SECONDS + deadlines.WATCH_GRACE_SECONDS:g} s",
        ),
        ("Stop of a process", f"{deadlines.STOP_SECONDS:g} s"),
        ("Revisions of a release that helm keeps", f"{command.HISTORY}"),
        ("Addresses of a Service that count as in use", f"{service.MOST_ADDRESSES} parts"),
        ("Ports of a Service that shares an address", f"{service.MOST_PORTS}"),
        ("Pools with metrics and `KeyInvalid`", f"the first {pools.MOST_SHOWN:,}"),
        ("Services that a message names for one address", f"{usage.MOST_NAMED}"),
    ],
)
def test_the_number_of(row: str, value: str) -> None:
    [shown] = [text for name, text in ROWS.items() if name.startswith(row)]
    assert shown.startswith(value)
