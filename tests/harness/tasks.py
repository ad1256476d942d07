"""Visits of guest clusters as values, with only what a test cares about."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fipop.api.objects import FloatingIP, FloatingIPSpec, FloatingIPStatus, Metadata
from fipop.guest.reports import GuestTask
from fipop.settings.options import DEFAULTS
from tests.harness.rollout_world import guest_of

START = datetime(2026, 1, 1, tzinfo=UTC)


async def permit() -> bool:
    return True


def asking(
    name: str = "web",
    *,
    namespace: str = "c-m-a",
    created: datetime = START,
    addresses: tuple[str, ...] = ("10.0.0.1",),
    update_config_map: bool = True,
    **spec: Any,
) -> FloatingIP:
    """A floating IP that holds addresses, and overwrites what stands in their way unless it is told else."""
    return FloatingIP(
        metadata=Metadata(
            namespace=namespace,
            name=name,
            uid=f"uid-{namespace}-{name}",
            creation_timestamp=created,
            annotations={"updateConfigMap": str(update_config_map)},
        ),
        spec=FloatingIPSpec(**spec),
        status=FloatingIPStatus(addresses=addresses),
    )


def addresses_of(*floating_ips: FloatingIP) -> frozenset[str]:
    return frozenset(address for each in floating_ips for address in each.status.addresses)


def build_task(*floating_ips: FloatingIP, guest_id: str = "c-m-a", **fields: Any) -> GuestTask:
    """A visit for floating IPs whose addresses are all backed by reservations, and may be written."""
    task = GuestTask(
        guest=guest_of(guest_id),
        opted_in=False,
        floating_ips=floating_ips,
        granted=addresses_of(*floating_ips),
        settings=DEFAULTS,
        before_write=permit,
    )
    return replace(task, **fields)
