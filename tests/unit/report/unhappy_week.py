"""A fleet of a dozen guest clusters in an unhappy week, for the pictures of the documentation."""

from dataclasses import replace
from datetime import timedelta

from fipop.api.codec import format_time
from fipop.helm.charts import Role
from fipop.report.snapshot import Snapshot
from fipop.rollout.member import RolloutStatus
from fipop.rollout.parts import Part
from fipop.rollout.plan import Rollout
from tests.harness.objects import NOW, Json, build_floating_ip, build_range, build_reservation, held_by
from tests.harness.releases import target
from tests.unit.report.snapshots import build_cluster, healthy_installation, snapshot

NAMES = ("demo", "shop", "edge", "lab", "web", "cache", "mail", "docs", "build", "stage", "data", "chat")
RANGE, TEST = "guest-vlan", "test-vlan"


def ago(minutes: int) -> str:
    return format_time(NOW - timedelta(minutes=minutes))


def condition(kind: str, reason: str, status: str = "True", message: str = "", minutes: int = 4000) -> Json:
    found = {"type": kind, "status": status, "reason": reason, "message": message}
    return found | {"lastTransitionTime": ago(minutes), "observedGeneration": 1}


def is_well(address: str) -> list[Json]:
    return [
        condition("Ready", "Ready"),
        condition("Allocated", "Allocated", message=f"The FloatingIP holds {address}."),
        condition("GuestConfigured", "Configured"),
        *(condition(each, "Ready") for each in ("KubeVipReady", "CloudProviderReady")),
    ]


def differs(conditions: list[Json], *others: Json) -> list[Json]:
    """Return conditions with others of their types; Ready repeats the first of those that it sums up."""
    ready = next(({**each, "type": "Ready"} for each in others if each["type"] != "DemandMet"), conditions[0])
    by_type = {each["type"]: each for each in (*conditions, *others, ready)}
    return list(by_type.values())


PODS = "DaemonSet kube-system/kube-vip has 2 of 3 pods ready"
TROUBLES: dict[str, list[Json]] = {
    "edge": [
        condition(
            "GuestConfigured",
            "GuestUnreachable",
            "False",
            "Could not visit: the API server of the guest cluster did not answer within 10 s.",
            95,
        )
    ],
    "lab": [condition("KubeVipReady", "NotReady", "False", f"{PODS}.", 1500)],
    "stage": [
        condition(
            "DemandMet",
            "LimitReached",
            "False",
            'Range "guest-vlan" allows guest cluster "stage" no more FloatingIPs (maxAllocate); 0 of its addresses are '
            "in quarantine. Services wait: shop/cache. Delete unused Services, or raise maxAllocate.",
            12,
        )
    ],
}
WAITS = "At most 1 can be under way at a time. The next guest cluster is admitted when one of those has succeeded."
FULL = 'Range "test-vlan" is full: 6 of 6 addresses are allocated. Delete unused FloatingIPs or extend spec.iprange.'


def _build_floating_ips() -> list[Json]:
    found = []
    for number, name in enumerate(NAMES):
        address, guest = f"10.135.10.{200 + number}", f"c-m-{name}{number:02}"
        release = {"namespace": "kube-system", "revision": 3, "status": "deployed"}
        versions = {Role.KUBE_VIP: "0.11.0" if number in (0, 1) else "0.9.9", Role.CLOUD_PROVIDER: "0.2.10"}
        releases = [
            {**release, "role": role.value, "name": role.value, "version": version}
            for role, version in versions.items()
        ]
        status = {
            **held_by([address], range_name=RANGE),
            "guest": {"cluster": name, "id": guest, "reachable": name != "edge", "releases": releases},
            "services": {"names": ["kube-system/ingress"], "count": 1},
            "conditions": differs(is_well(address), *TROUBLES.get(name, [])),
        }
        if name == "stage":
            status["waiting"] = {"services": [{"name": "shop/cache", "since": ago(14)}], "count": 1}
        found.append(build_floating_ip(f"{name}-kubevip", namespace=guest, status=status))
    unused = {"since": ago(40), "until": ago(-20)}
    spare = {
        **held_by(["10.135.10.212"], range_name=RANGE),
        "unused": unused,
        "conditions": is_well("10.135.10.212"),
    }
    found.append(build_floating_ip("stage-kubevip-2", namespace="c-m-stage09", status=spare))
    waits = [condition(each, "RangeFull", "False", FULL, 31) for each in ("Ready", "Allocated")]
    status = {"observedGeneration": 1, "conditions": waits}
    found.append(
        build_floating_ip("chat-test", namespace="c-m-chat11", annotations={"fiprange": TEST}, status=status)
    )
    return found


def _build_reservations() -> list[Json]:
    found = [
        build_reservation(
            f"10.135.10.{200 + number}",
            f"{name}-kubevip",
            namespace=f"c-m-{name}{number:02}",
            range_name=RANGE,
        )
        for number, name in enumerate(NAMES)
    ]
    found.append(
        build_reservation("10.135.10.212", "stage-kubevip-2", namespace="c-m-stage09", range_name=RANGE)
    )
    for number in (215, 216):
        old = {"namespace": "c-m-old", "cluster": "old", "quarantined_until": ago(-3)}
        found.append(build_reservation(f"10.135.10.{number}", f"old-{number}", range_name=RANGE, **old))
    found += [build_reservation(f"10.135.30.{each}", f"test-{each}", range_name=TEST) for each in range(1, 7)]
    return found


def _build_parts() -> dict[str, Part]:
    since = NOW - timedelta(minutes=14)
    told = {
        "web": (RolloutStatus.FAILED, 3, f"{PODS.replace('2 of', '0 of')}."),
        "docs": (RolloutStatus.PROGRESSING, 1, "All pods must have been Ready for 120 s."),
        "build": (RolloutStatus.PENDING, 14, "It is next."),
        **dict.fromkeys(("cache", "chat", "data", "mail", "stage"), (RolloutStatus.PENDING, 14, "")),
        "edge": (RolloutStatus.SKIPPED, 14, "fipop cannot reach the guest cluster."),
        "lab": (RolloutStatus.SKIPPED, 14, f"{PODS}."),
        "demo": (RolloutStatus.SUCCEEDED, 9, ""),
        "shop": (RolloutStatus.SUCCEEDED, 8, ""),
    }
    return {
        f"c-m-{name}{NAMES.index(name):02}": Part(
            status=status,
            is_canary=name in ("demo", "shop"),
            since=since + timedelta(minutes=14 - minutes),
            reason=reason,
        )
        for name, (status, minutes, reason) in told.items()
    }


def build_unhappy_week() -> Snapshot:
    """Return the fleet in the middle of a rollout."""
    stable, wanted = target("0.9.9"), target("0.11.0")
    provider = {Role.CLOUD_PROVIDER: replace(wanted.charts[Role.CLOUD_PROVIDER], version="0.2.10")}
    stable, wanted = (replace(each, charts={**each.charts, **provider}) for each in (stable, wanted))
    return snapshot(
        ranges=[
            build_range(
                RANGE,
                "10.135.10.192/26",
                exclude=["10.135.10.240/29"],
                annotations={"harvesterNetworkName": "default/vlan10"},
            ),
            build_range(TEST, "10.135.30.0/29", annotations={"harvesterNetworkName": "default/vlan30"}),
        ],
        floating_ips=_build_floating_ips(),
        reservations=_build_reservations(),
        clusters=[build_cluster(name, f"c-m-{name}{number:02}") for number, name in enumerate(NAMES)],
        installation=healthy_installation(
            rollout=Rollout(target=wanted, stable=stable, failed={"c-m-web04": wanted.name}),
            rollout_parts=_build_parts(),
            rollout_waits=WAITS,
        ),
    )
