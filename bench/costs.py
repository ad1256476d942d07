"""What an operator has cost by its own metrics, and its processor time by Linux: a scrape of a large fleet is dear."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from localfleet.installation import OperatorProcess
from localfleet.observation import parse_metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What an operator has cost so far; `requests` to the management cluster, watches apart."""

    processor_seconds: float
    requests: float
    guest_requests: float

    def __sub__(self, earlier: Costs) -> Costs:
        return Costs(
            processor_seconds=self.processor_seconds - earlier.processor_seconds,
            requests=self.requests - earlier.requests,
            guest_requests=self.guest_requests - earlier.guest_requests,
        )


async def read_costs(operator: OperatorProcess) -> Costs:
    """Read them; the reading itself is not in its processor time."""
    before = processor_seconds(operator)
    samples = parse_metrics(await operator.metrics())

    def total(name: str, **labels: str) -> float:
        return sum(
            each.value for each in samples if each.name == name and labels.items() <= each.labels.items()
        )

    return Costs(
        processor_seconds=before,
        requests=total("fipop_api_requests_total", target="management"),
        guest_requests=total("fipop_api_requests_total", target="guest"),
    )


def processor_seconds(operator: OperatorProcess) -> float:
    """Return the processor time of its process until now."""
    fields = Path(f"/proc/{operator.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
