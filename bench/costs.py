"""What an operator has cost, by its own metrics."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Read them from its metrics."""
    samples = parse_metrics(await operator.metrics())

    def total(name: str, **labels: str) -> float:
        return sum(
            each.value for each in samples if each.name == name and labels.items() <= each.labels.items()
        )

    return Costs(
        processor_seconds=total("process_cpu_seconds_total"),
        requests=total("fipop_api_requests_total", target="management"),
        guest_requests=total("fipop_api_requests_total", target="guest"),
    )
