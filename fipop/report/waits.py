"""What waits for an address: floating IPs, Services, and guest clusters without a floating IP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fipop.api.conditions import ConditionType, find_condition
from fipop.api.objects import WaitingStatus
from fipop.report.addresses import find_namespaces
from fipop.report.findings import Finding, describe_floating_ip, judge_condition, judge_lack
from fipop.report.fleet import FloatingIPReport, report_floating_ips, report_guests
from fipop.report.rendering import moment
from fipop.report.snapshot import Kind, Snapshot


def find_waits(snapshot: Snapshot, asked: str) -> tuple[Finding, ...]:
    """Return what waits in the guest clusters that a name stands for, or the Services of this name that wait."""
    namespaces, floating_ips = find_namespaces(snapshot, asked), report_floating_ips(snapshot)
    found: list[Finding] = []
    for each in floating_ips:
        is_asked = each.floating_ip.namespace in namespaces
        found += _find_floating_ip(snapshot, each) if is_asked else ()
        services = _find_services(snapshot, each)
        found += (one for one in services if is_asked or one.subject.name == asked)
    for guest in report_guests(snapshot, floating_ips):
        if guest.id in namespaces and not guest.floating_ips and snapshot.is_read(Kind.FLOATING_IPS):
            found.append(judge_lack(snapshot, guest))
    return tuple(found)


def describe_wait(found: Finding) -> str:
    """Return since when and why something waits, as sentences."""
    since = f" since {moment(found.since)}" if found.since is not None else ""
    return f"{found.subject} waits{since}, because of {found.reason}: {found.message}"


def _find_floating_ip(snapshot: Snapshot, each: FloatingIPReport) -> Iterator[Finding]:
    floating_ip, blocker = each.floating_ip, each.ready
    allocated = find_condition(floating_ip.status.conditions, ConditionType.ALLOCATED)
    if allocated is not None:
        blocker = replace(allocated, type=ConditionType.READY)
    if not (blocker.is_good or (allocated is None and floating_ip.status.addresses)):
        yield judge_condition(describe_floating_ip(each), floating_ip, blocker, snapshot.now)


def _find_services(snapshot: Snapshot, each: FloatingIPReport) -> Iterator[Finding]:
    """Yield the Services that wait, by what the status of the oldest floating IP of their guest cluster shows."""
    floating_ip = each.floating_ip
    unmet = find_condition(floating_ip.status.conditions, ConditionType.DEMAND_MET)
    if unmet is None or unmet.is_good:
        return
    subject, waiting = describe_floating_ip(each), floating_ip.status.waiting or WaitingStatus()
    found = judge_condition(subject, floating_ip, unmet, snapshot.now)
    for one in waiting.services:
        about = replace(subject, kind="Service", name=one.name)
        yield replace(found, subject=about, since=one.since or found.since)
    if len(waiting.services) < max(waiting.count, 1):
        name = f"of guest cluster {each.cluster or floating_ip.namespace}"
        yield replace(found, subject=replace(subject, kind="Another Service", name=name))
