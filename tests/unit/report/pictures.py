"""Pictures of small installations."""

from datetime import datetime
from typing import Any

from fipop.api.parsing import parse_floating_ip, parse_range, parse_reservation
from fipop.rancher.objects import parse_provisioning_cluster
from fipop.report.facts import SCHEMA_REVISIONS, Facts, Installation, Leadership, Workload
from fipop.report.picture import Picture
from tests.harness.objects import NOW, Json


def build_cluster(name: str, guest: str, *, opted_in: bool = True, namespace: str = "fleet-default") -> Json:
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": {"kube-vip": "true"} if opted_in else {},
        },
        "spec": {"rkeConfig": {}},
        "status": {"clusterName": guest},
    }


def healthy_installation(**changes: Any) -> Installation:
    fields: dict[str, Any] = {
        "namespace": "kube-fip",
        "leadership": Leadership(holder="fipop-1", renewed=NOW, duration_seconds=15.0),
        "workload": Workload(image="fipop:0.1.0", service_account="fipop", wanted=2, ready=2),
        "schemas": dict(SCHEMA_REVISIONS),
        "has_settings": True,
    }
    return Installation(**(fields | changes))


def picture(
    *,
    ranges: list[Json] | None = None,
    floating_ips: list[Json] | None = None,
    reservations: list[Json] | None = None,
    clusters: list[Json] | None = None,
    installation: Installation | None = None,
    now: datetime = NOW,
    **facts: Any,
) -> Picture:
    return Picture(
        Facts(
            now=now,
            ranges=tuple(map(parse_range, ranges or ())),
            floating_ips=tuple(map(parse_floating_ip, floating_ips or ())),
            reservations=tuple(map(parse_reservation, reservations or ())),
            clusters=tuple(map(parse_provisioning_cluster, clusters or ())),
            installation=installation or healthy_installation(),
            **facts,
        )
    )
