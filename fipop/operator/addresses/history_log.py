"""The log lines that tell who had an address when, for longer than a reservation remembers."""

from __future__ import annotations

import logging

from fipop.api.models import Reservation
from fipop.ipam.addresses import format_address, parse_address

logger = logging.getLogger(__name__)


def log_history(event: str, reservation: Reservation) -> None:
    """Write the line by which logs tell who had an address when: its fields are part of the public contract."""
    owner = reservation.owner
    logger.info(
        "Address history",
        extra={
            "event": event,
            "address": format_address(parse_address(reservation.address)),
            "space": reservation.space,
            "range": reservation.range,
            "namespace": owner.namespace,
            "floating_ip": owner.name,
            "cluster": owner.cluster,
        },
    )
