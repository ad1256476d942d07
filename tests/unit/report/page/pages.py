"""A page over facts of a test."""

import asyncio

from fipop.report.snapshot import Snapshot, Unread
from fipop.rollout.member import RolloutStatus
from fipop.rollout.parts import Part
from fipop.rollout.plan import Phase, Rollout
from tests.harness.objects import build_floating_ip, build_range, build_reservation, held_by
from tests.harness.releases import target
from tests.unit.report.snapshots import (
    build_cluster,
    build_management,
    healthy_installation,
    snapshot,
)

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


SNAPSHOT = snapshot(
    ranges=[
        build_range("pool", "10.0.0.0/24", annotations={"harvesterNetworkName": EVIL}),
        build_range("wide", "10.1.0.0/16"),
    ],
    floating_ips=[
        build_floating_ip(
            "web",
            annotations={"clustername": EVIL},
            status={
                **held_by(["10.0.0.5"]),
                "conditions": [{"type": "Ready", "status": "False", "reason": "Evil", "message": EVIL}],
            },
        ),
        build_floating_ip("wish", namespace="c-m-2", annotations={"fiprange": EVIL}),
    ],
    reservations=[build_reservation("10.0.0.5", cluster=EVIL)],
    clusters=[build_cluster("demo", "c-m-1"), build_cluster(EVIL, "c-m-3"), build_cluster("shop", "c-m-2")],
    management=[build_management("c-m-1", EVIL), build_management("c-m-2", "berlin")],
    installation=healthy_installation(
        rollout=Rollout(
            target=target(EVIL), phase=Phase.STOPPED, reason=EVIL, failed={"c-m-2": "a", "c-m-3": "a"}
        ),
        rollout_parts={each: Part(status=RolloutStatus.FAILED, reason=EVIL) for each in ("c-m-2", "c-m-3")},
        rollout_waits=EVIL,
    ),
    unread=(Unread(what=EVIL, problem=EVIL),),
)


class Cluster:
    """What is read, how often, and how it fails."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self) -> Snapshot:
        self.reads += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return SNAPSHOT
