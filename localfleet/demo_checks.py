"""The facts that the demo checks, each with a name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from localfleet.client import Json
from localfleet.demo_questions import Answer
from localfleet.demo_services import STATIC
from localfleet.demo_services import addresses_of as service_addresses
from localfleet.demo_stage import GUESTS, INTERVAL_SECONDS, OPTED_IN
from localfleet.demo_story import FOREIGN_KEY, STATIC_ADDRESS, Ending, Evidence
from localfleet.demo_tables import LEGACY_METRICS
from localfleet.observation import GuestView, addresses_of, find_condition
from localfleet.report import Report

_MOST_REQUESTS_PER_PASS = 4
_ADDRESS_SECONDS = 2.0
_STOP_SECONDS = 10.0
_CAPACITY = 62
"""Of 10.135.10.192/26 without its network and broadcast address."""
_CONTROLLERS = {"kube-vip": "daemon_sets", "kube-vip-cloud-provider": "deployments"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A fact, whether it holds, and what was found."""

    fact: str
    holds: bool
    found: str = ""


def check_all(report: Report, ending: Ending, evidence: Evidence, first_address: dict[str, float]) -> None:
    """Count all facts about the end of the story."""
    for check in (
        *_check_settings(ending),
        *_check_range(ending),
        *_check_addresses(ending, evidence, first_address),
        *_check_guests(ending),
        *_check_harvester(ending),
        *_check_admins_day(ending, evidence),
        *_check_services(ending, evidence),
        *_check_goodbye(ending, evidence),
        *_check_metrics(ending, evidence),
        *_check_quiet(evidence),
    ):
        report.check(check.fact, holds=check.holds, found=check.found)


def check_answers(report: Report, answers: Mapping[str, Answer]) -> None:
    """Count what the command line answered: it names what the story left unfinished, and who has the address."""
    status, who = answers["status"], answers["who"]
    unfinished = ("shop-vip: AddressInUse", "stranger: ClusterMismatch")
    report.check(
        "fipop status names what is not ready and why, and ends with 1",
        holds=status.code == 1 and all(words in status.text for words in unfinished),
        found=f"{status.code}: {status.text}",
    )
    report.check(
        f"fipop who knows who has {STATIC_ADDRESS}",
        holds=who.code == 0 and "demo-vip" in who.text and "requested by name" in who.text,
        found=f"{who.code}: {who.text}",
    )


def _check_settings(ending: Ending) -> Iterator[Check]:
    settings = ending.management.settings
    yield Check(
        fact="the operator has made kube-fip-config from the chart's defaults",
        holds=settings.get("operateGuestClusterInterval") == str(INTERVAL_SECONDS),
        found=str(dict(settings)),
    )


def _check_range(ending: Ending) -> Iterator[Check]:
    found = ending.management.ranges.get("guest-vlan", {})
    capacity = found.get("status", {}).get("capacity") or {}
    ready = find_condition(found, "Ready")
    yield Check(fact="the range is ready", holds=ready.get("status") == "True", found=str(ready))
    yield Check(
        fact=f"it counts {_CAPACITY} addresses: a /26 without network and broadcast",
        holds=capacity.get("total") == _CAPACITY,
        found=str(capacity),
    )
    parts = [capacity.get(name, -1) for name in ("used", "free", "quarantined")]
    yield Check(
        fact="total = used + free + quarantined",
        holds=sum(parts) == capacity.get("total"),
        found=str(capacity),
    )
    yield Check(
        fact="four addresses are used (demo two, shop one, the stranger one), and plain's is in quarantine",
        holds=(capacity.get("used"), capacity.get("quarantined")) == (4, 1),
        found=str(capacity),
    )


def _check_addresses(ending: Ending, evidence: Evidence, first_address: dict[str, float]) -> Iterator[Check]:
    for name in GUESTS:
        waited = first_address.get(f"{name}-kubevip", float("inf")) - evidence.linked_at[name]
        yield Check(
            fact=f"{name} had its address within {_ADDRESS_SECONDS:g} s of its last object",
            holds=waited <= _ADDRESS_SECONDS,
            found=f"{waited:.1f} s",
        )
    held = [address for one in ending.management.floating_ips.values() for address in addresses_of(one)]
    yield Check(fact="no address is held twice", holds=len(held) == len(set(held)), found=str(held))
    for name in OPTED_IN:
        floating_ip = ending.management.floating_ips.get(f"{name}-kubevip", {})
        address = "".join(addresses_of(floating_ip))
        reservation = ending.management.reservations.get(address, {}).get("spec", {})
        owner = reservation.get("owner", {}).get("name")
        yield Check(
            fact=f"the reservation of {name}'s address names its floating IP",
            holds=bool(address) and owner == f"{name}-kubevip" and "quarantinedUntil" not in reservation,
            found=str(reservation),
        )
        yield Check(
            fact=f"{name}-kubevip is ready, with its address in spec too",
            holds=find_condition(floating_ip, "Ready").get("status") == "True"
            and floating_ip.get("spec", {}).get("ipaddress") == address,
            found=str(find_condition(floating_ip, "Ready")),
        )


def _check_guests(ending: Ending) -> Iterator[Check]:
    for name in OPTED_IN:
        guest = ending.guests[name]
        address = "".join(addresses_of(ending.management.floating_ips.get(f"{name}-kubevip")))
        pool = guest.pools.get("cidr-global", "")
        yield Check(
            fact=f"the ConfigMap in {name} gives its address out as {address}/32",
            holds=bool(address) and f"{address}/32" in pool.split(","),
            found=pool,
        )
        for release_name, kind in _CONTROLLERS.items():
            release = guest.releases.get(release_name)
            yield Check(
                fact=f"helm has deployed {release_name} in {name}, once",
                holds=release is not None and (release.status, release.revision) == ("deployed", 1),
                found=str(release),
            )
            workloads = _workloads_of(guest, kind, release_name)
            yield Check(
                fact=f"the pods of {release_name} in {name} are ready",
                holds=bool(workloads) and all(_is_ready(one) for one in workloads),
                found=str([one.get("status") for one in workloads]),
            )
        environment = _provider_environment(guest)
        yield Check(
            fact=f"the cloud provider in {name} reads the ConfigMap that fipop writes",
            holds=environment.get("KUBEVIP_CONFIG_MAP") == "kubevip"
            and environment.get("KUBEVIP_NAMESPACE") == "kube-system",
            found=str(environment),
        )
    plain = ending.guests["plain"]
    yield Check(
        fact="nothing is installed in plain, which did not ask for it",
        holds=not plain.releases,
        found=str(list(plain.releases)),
    )


def _workloads_of(guest: GuestView, kind: str, release: str) -> list[Json]:
    found: dict[str, Json] = getattr(guest, kind)
    annotation = "meta.helm.sh/release-name"
    return [
        one for one in found.values() if one["metadata"].get("annotations", {}).get(annotation) == release
    ]


def _is_ready(workload: Json) -> bool:
    status = workload.get("status", {})
    wanted = status.get("desiredNumberScheduled", workload["spec"].get("replicas", 0))
    return bool(wanted) and status.get("numberReady", status.get("readyReplicas")) == wanted


def _provider_environment(guest: GuestView) -> dict[str, str]:
    for one in _workloads_of(guest, "deployments", "kube-vip-cloud-provider"):
        container = one["spec"]["template"]["spec"]["containers"][0]
        return {variable["name"]: variable.get("value", "") for variable in container["env"]}
    return {}


def _check_harvester(ending: Ending) -> Iterator[Check]:
    parked = ending.guests["demo"].daemon_sets.get("kube-vip", {})
    running = ending.guests["plain"].daemon_sets.get("kube-vip", {})
    yield Check(
        fact="Harvester's own kube-vip is parked in demo, where ours runs",
        holds=parked.get("status", {}).get("desiredNumberScheduled") == 0,
        found=str(parked.get("status")),
    )
    yield Check(
        fact="it runs on in plain, where fipop installs nothing",
        holds=running.get("status", {}).get("numberReady") == 1,
        found=str(running.get("status")),
    )


def _check_admins_day(ending: Ending, evidence: Evidence) -> Iterator[Check]:
    floating_ips = ending.management.floating_ips
    demo = ending.guests["demo"]
    pool = demo.pools.get("cidr-global", "").split(",")
    holder, loser, stranger = (floating_ips.get(name, {}) for name in ("demo-vip", "shop-vip", "stranger"))
    yield Check(
        fact=f"demo-vip holds {STATIC_ADDRESS}, as it asked",
        holds=addresses_of(holder) == (STATIC_ADDRESS,),
        found=str(holder.get("status")),
    )
    yield Check(
        fact="demo's ConfigMap names both its addresses",
        holds=f"{STATIC_ADDRESS}/32" in pool and len(pool) == 2,
        found=",".join(pool),
    )
    refusal = find_condition(loser, "Ready")
    yield Check(
        fact="shop-vip is refused the same address, and told who holds it",
        holds=refusal.get("reason") == "AddressInUse" and "demo-vip" in refusal.get("message", ""),
        found=str(refusal),
    )
    shop_pool = ending.guests["shop"].pools.get("cidr-global", "")
    yield Check(
        fact=f"no guest but demo carries {STATIC_ADDRESS}",
        holds=STATIC_ADDRESS not in shop_pool,
        found=shop_pool,
    )
    mismatch = find_condition(stranger, "Ready")
    carried = ",".join((*demo.pools.values(), *ending.guests["shop"].pools.values()))
    yield Check(
        fact="a floating IP in shop's namespace cannot speak for demo, and no guest carries its address",
        holds=mismatch.get("reason") == "ClusterMismatch"
        and not any(f"{address}/" in carried for address in addresses_of(stranger)),
        found=f"{mismatch}; {carried}",
    )
    yield Check(fact="an emptied spec.ipaddress is written back", holds=evidence.written_back)
    yield Check(
        fact="a key of somebody else's in the ConfigMap is untouched",
        holds=demo.pools.get(FOREIGN_KEY[0]) == FOREIGN_KEY[1],
        found=str(dict(demo.pools)),
    )


def _check_services(ending: Ending, evidence: Evidence) -> Iterator[Check]:
    given = {name: service_addresses(service) for name, service in evidence.services.items()}
    own = "".join(addresses_of(ending.management.floating_ips.get("demo-kubevip")))
    yield Check(
        fact="the Service web in demo has the guest's floating IP",
        holds=bool(own) and given.get("web") == own,
        found=str(given),
    )
    yield Check(
        fact="the Service dns shares it: the namespace allows that, and its port is another",
        holds=bool(own) and given.get("dns") == own,
        found=str(given),
    )
    yield Check(
        fact="the Service api waited, and was told for which key",
        holds="cidr-global" in evidence.waited_for,
        found=evidence.waited_for,
    )
    yield Check(
        fact=f"it got {STATIC_ADDRESS} when demo had a second floating IP",
        holds=given.get("api") == STATIC_ADDRESS,
        found=str(given),
    )
    yield Check(
        fact="the Service fixed keeps the address that its user wrote",
        holds=given.get("fixed") == STATIC,
        found=str(given),
    )
    yield Check(
        fact="the Service both has an address of each family, from the pool of its namespace",
        holds=given.get("both") == "10.136.0.10,2001:db8:136::10",
        found=str(given),
    )


def _check_goodbye(ending: Ending, evidence: Evidence) -> Iterator[Check]:
    yield Check(fact="the namespace of the deleted guest is gone", holds=evidence.is_namespace_gone)
    reservation = ending.management.reservations.get(evidence.address_of_gone, {}).get("spec", {})
    yield Check(
        fact="its address waits in quarantine before anybody else gets it",
        holds=bool(reservation.get("quarantinedUntil")),
        found=str(reservation),
    )
    left = [sample.name for sample in ending.metrics if sample.labels.get("guestclustername") == "plain"]
    yield Check(fact="no metric speaks of it any more", holds=not left, found=str(left))


def _check_metrics(ending: Ending, evidence: Evidence) -> Iterator[Check]:
    values = {(one.name, *sorted(one.labels.items())): one.value for one in ending.metrics}
    names = {one.name for one in ending.metrics}
    missing = [name for name in LEGACY_METRICS if name not in names]
    yield Check(fact="all four metrics that dashboards know are there", holds=not missing, found=str(missing))
    labels = {
        "fiprangename": "guest-vlan",
        "fiprange": "10.135.10.192/26",
        "harvesterclustername": "harvester-cluster1",
        "harvesternetworkname": "vlan10",
    }
    for suffix, value in (("capacity", _CAPACITY), ("reserved", 5)):
        name = f"kubefipoperator_fipranges_{suffix}"
        found = values.get((name, *sorted(labels.items())))
        yield Check(fact=f"{name} is {value}", holds=found == value, found=str(found))
    for name in OPTED_IN:
        guest = {"guestclustername": name, "harvesterclustername": "harvester-cluster1"}
        status = values.get(("kubefipoperator_guestcluster_status", *sorted(guest.items())))
        yield Check(fact=f"{name} counts as reachable", holds=status == 1, found=str(status))
    secrets = [guest.token.partition(":")[2] for guest in evidence.guests.values()]
    yield Check(
        fact="no token of a guest stands in the operator's log",
        holds=bool(ending.log) and not any(secret in ending.log for secret in secrets),
    )


def _check_quiet(evidence: Evidence) -> Iterator[Check]:
    requests, passes = evidence.quiet_requests, evidence.quiet_passes
    most = _MOST_REQUESTS_PER_PASS * passes
    yield Check(
        fact=f"a quiet pass makes at most {_MOST_REQUESTS_PER_PASS} requests to the guest",
        holds=0 < len(requests) <= most,
        found=f"{len(requests)} in {passes} passes: {[(one.method, one.path) for one in requests]}",
    )
    writes = [one.path for one in requests if one.is_write]
    yield Check(fact="and no write", holds=not writes, found=str(writes))
    helm = [one.path for one in requests if one.user_agent.startswith("Helm")]
    yield Check(fact="and no helm process", holds=bool(requests) and not helm, found=str(helm))


def check_end(report: Report, evidence: Evidence) -> None:
    """Count the fact about the operator's own end."""
    report.check(
        f"asked to end, the operator ended within {_STOP_SECONDS:g} s and with 0",
        holds=evidence.exit_code == 0 and evidence.stop_seconds <= _STOP_SECONDS,
        found=f"{evidence.exit_code} after {evidence.stop_seconds:.1f} s",
    )
