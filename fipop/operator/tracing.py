"""traceIpamData: the whole ledger in the log, as people of kube-fip-operator know it."""

from __future__ import annotations

import logging

from fipop.operator.world import World

logger = logging.getLogger(__name__)


def trace_ipam_data(world: World) -> None:
    """Log every range with its counts, and every address with its holder."""
    for each in world.ranges.all():
        capacity = world.books.capacity(each.name)
        counts = capacity.whole if capacity is not None else None
        logger.info(
            "ipam data: range",
            extra={
                "range": each.name,
                "space": each.address_space,
                "pool": each.iprange,
                "total": counts.total if counts else 0,
                "used": counts.used if counts else 0,
                "free": counts.free if counts else 0,
                "quarantined": counts.quarantined if counts else 0,
                "out_of_range": counts.out_of_range if counts else 0,
            },
        )
    for reservation in world.reservations.all():
        logger.info(
            "ipam data: address",
            extra={
                "address": reservation.address,
                "space": reservation.space,
                "range": reservation.range,
                "owner": f"{reservation.owner.namespace}/{reservation.owner.name}",
                "state": "held" if reservation.is_held else "quarantined",
            },
        )
