"""Whether addresses answer from where a command runs: a TCP connection to each port of the Services that use them.

A refused connection is an answer. Silence proves nothing from a network that has no route to the address, or behind a
firewall: that is said with each finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from fipop.addresses.claims import read_addresses
from fipop.api.conditions import ConditionType, Verdict, find_condition
from fipop.api.objects import FloatingIP
from fipop.ipam.addresses import Address, format_address
from fipop.report.findings import Finding, Severity, describe_guest, point
from fipop.report.guests import GuestReport
from fipop.report.snapshot import Snapshot

TIMEOUT_SECONDS = 3.0
"""How long a connection is waited for: a SYN that is lost is sent again after 1 s."""
AT_ONCE = 32
MOST_PORTS = 16
"""Of how many ports of one address an answer is asked for."""
_ELSEWHERE = "Silence proves nothing from a network without a route to the address, or behind a firewall."


class Answer(StrEnum):
    """What a port did."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "did not answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """An address of a floating IP, with the Services that use it and their TCP ports."""

    floating_ip: FloatingIP
    address: Address
    services: tuple[str, ...]
    ports: tuple[int, ...]


async def probe_addresses(snapshot: Snapshot, reports: Iterable[GuestReport]) -> list[Finding]:
    """Connect to each address of a floating IP that Services use in guest clusters, and compare with `Announced`."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(target: _Target) -> Finding:
        text = format_address(target.address)
        answers = await asyncio.gather(*(_connect(slots, text, port) for port in target.ports))
        return _judge(snapshot, target, dict(zip(target.ports, answers, strict=True)))

    targets = (target for report in reports for target in _find_targets(snapshot, report))
    return list(await asyncio.gather(*map(ask, targets)))


def _find_targets(snapshot: Snapshot, report: GuestReport) -> Iterator[_Target]:
    for floating_ip in snapshot.inventory.floating_ips_of(report.guest):
        for address in sorted(read_addresses(floating_ip.status.addresses)):
            using = [each for each in report.services if format_address(address) in each.addresses]
            if using:
                ports = sorted({port for each in using for port in each.ports})
                services = tuple(each.name for each in using)
                yield _Target(
                    floating_ip=floating_ip,
                    address=address,
                    services=services,
                    ports=tuple(ports[:MOST_PORTS]),
                )


async def _connect(slots: asyncio.Semaphore, address: str, port: int) -> Answer:
    async with slots:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                _, writer = await asyncio.open_connection(address, port)
        except ConnectionRefusedError:
            return Answer.REFUSED
        except OSError:  # a TimeoutError is one
            return Answer.SILENT
        writer.close()
        return Answer.ACCEPTED


def _judge(snapshot: Snapshot, target: _Target, answers: dict[int, Answer]) -> Finding:
    """Judge what the ports of an address did, and whether the condition `Announced` says the same."""
    found, text = target.floating_ip, format_address(target.address)
    condition = find_condition(found.status.conditions, ConditionType.ANNOUNCED)
    verdict = condition.status if condition is not None else Verdict.UNKNOWN
    cluster = snapshot.show_guest(found.namespace)
    subject = describe_guest(found.namespace, cluster, kind="Address", name=text)
    by_answer = {answer: [str(port) for port, one in answers.items() if one is answer] for answer in Answer}
    ports = "; ".join(f"TCP {', '.join(each)} {answer}" for answer, each in by_answer.items() if each)
    services = f"(Service {', '.join(target.services[:3])})"
    if not answers:
        return point(subject, Severity.INFO, "NoPort", f"no TCP port to connect to {services}")
    message = f"{ports} {services}; Announced is {verdict}"
    is_answering = len(by_answer[Answer.SILENT]) < len(answers)
    if is_answering and verdict is not Verdict.FALSE:
        return point(subject, Severity.OK, "Answers", message)
    if is_answering:
        advice = "Run the command again after the next visit: the condition follows two readings"
        return point(subject, Severity.WARNING, "AnswersUnannounced", message, advice)
    severity = Severity.INFO if verdict is Verdict.FALSE else Severity.WARNING
    advice = f"kubectl -n {found.namespace} get fip {found.name} -o wide"
    return point(subject, severity, "Silent", f"{message}. {_ELSEWHERE}", advice)
