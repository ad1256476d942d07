"""The rest of the demo, `make demo FULL=1`. Its order lets fipop's long waits pass beside each other.

fipop changes what it says of Services once a minute, and a quarantine lasts at least 90 s.
"""

import asyncio

from localfleet.client import Json
from localfleet.demo_stage import INTERVAL_SECONDS
from localfleet.demo_story import Story, address_of, pool_of, services_of
from localfleet.errors import DeadlineError
from localfleet.observation import FleetView, parse_metrics
from localfleet.stack import RANGES, condition
from localfleet.waiting import eventually

_PATIENCE_SECONDS = 180.0
_REPORT_SECONDS = 120.0
_QUARANTINE_SECONDS = 180.0
_OPTIONS = "/api/v1/namespaces/kube-fip/configmaps/kube-fip-config"
_RANGE = f"{RANGES}/guest-vlan"
_OVERRIDE = "- name: other-interface\n  clusters: [shop]\n  values: {env: {vip_interface: eth1}}\n"
_APPS = tuple(f"app-{number}" for number in range(1, 6))
_MADE = tuple(f"demo-kubevip-{number}" for number in (2, 3, 4, 5))
_LIMITS = {"minAllocate": 1, "preAllocate": 1, "maxAllocate": 6, "releaseAfterSeconds": 10}
"""For a guest cluster that has two floating IPs already, which are in use."""


async def tell_the_rest(story: Story) -> None:
    """Play what the short demo leaves out."""
    await _give_each_service_an_address(story)
    await _delete_plain(story)
    await _watch_a_quiet_fleet(story)
    await _see_the_demand(story)
    left = await _let_go(story)
    await _give_shop_other_values(story)
    await story.expect(
        f"the addresses {', '.join(sorted(left))} come back at the end of their quarantine, 90 s",
        lambda view: view.reservations.keys().isdisjoint(left),
        seconds=_QUARANTINE_SECONDS,
    )


async def _give_each_service_an_address(story: Story) -> None:
    story.stage.report.chapter("Each Service in demo gets an address of its own")
    story.stage.report.step(
        "an administrator sets perGuest of the range: a guest cluster has up to 6 floating IPs"
    )
    await _set_range(story, perGuest=_LIMITS, quarantineSeconds=90)
    await story.expect(
        "fipop makes a spare floating IP for demo",
        lambda view: address_of(view, _MADE[0]) in pool_of(view, "demo"),
    )
    client = story.stage.running()["demo"].client
    await client.create("/api/v1/namespaces", {"metadata": {"name": "apps"}})
    for name in _APPS:
        await story.create_service(name, namespace="apps")
    await story.expect(
        "four Services have addresses of floating IPs that fipop made",
        lambda view: (
            {services_of(view)[name] for name in _APPS[:4]}
            == {address_of(view, name) for name in _MADE} - {""}
        ),
    )


async def _delete_plain(story: Story) -> None:
    story.stage.report.chapter("plain is deleted in Rancher")
    address = address_of(await story.observe(), "plain-kubevip")
    await story.stage.player.delete_guest(story.stage.guests["plain"])
    await story.expect(
        f"the address of plain, {address}, is in quarantine before another guest cluster can get it",
        lambda view: view.reservations[address]["spec"]["quarantinedUntil"],
    )


async def _watch_a_quiet_fleet(story: Story) -> None:
    stage = story.stage
    stage.report.chapter("Nothing changes for a while")
    demo = stage.guests["demo"].cluster_id
    await asyncio.sleep(INTERVAL_SECONDS)
    before = await _count_visits(story)
    stage.proxy.forget_requests(demo)

    async def are_visited() -> bool:
        return await _count_visits(story) >= before + 2

    try:
        async with stage.report.wait("fipop has visited demo twice"):
            await eventually(are_visited, seconds=_PATIENCE_SECONDS, what="two visits to demo")
    except DeadlineError as error:
        stage.report.step(str(error))
    requests = stage.proxy.requests_of(demo)
    stage.report.step(f"fipop visits demo every {INTERVAL_SECONDS} s: {len(requests)} requests in 2 visits")
    stage.report.check(
        "the visits write nothing to demo, and start no helm",
        holds=bool(requests)
        and not any(one.is_write or one.user_agent.startswith("Helm") for one in requests),
    )


async def _count_visits(story: Story) -> float:
    labels = {"guestclustername": "demo", "event": "api_connection"}
    return sum(
        one.value
        for one in parse_metrics(await story.stage.operator.metrics())
        if one.name == "kubefipoperator_guestcluster_events" and labels.items() <= one.labels.items()
    )


async def _see_the_demand(story: Story) -> None:
    story.stage.report.chapter("The fifth Service waits")
    await story.expect(
        "demo-kubevip names the Service that waits, and for what",
        lambda view: (
            not services_of(view)[_APPS[4]]
            and _APPS[4] in condition(view.floating_ips["demo-kubevip"], "DemandMet")["message"]
        ),
        seconds=_REPORT_SECONDS,
    )
    await story.expect(
        "each floating IP names the Service that uses it",
        lambda view: all(
            services_of(view)[name.partition("/")[2]] == address_of(view, made)
            for made in _MADE
            for name in view.floating_ips[made]["status"]["services"]["names"]
        ),
        seconds=_REPORT_SECONDS,
    )
    found = parse_metrics(await story.stage.operator.metrics())
    unmet = [
        one.value
        for one in found
        if one.name == "fipop_guest_demand_met" and one.labels["guest_cluster"] == "demo"
    ]
    story.stage.report.check("a metric shows that the demand is not met", holds=unmet == [0.0])
    given = (await story.run_fipop("who", "apps/app-1"))[1]
    story.stage.report.check(
        "fipop who finds the address of the Service apps/app-1", holds="demo-kubevip-" in given
    )


async def _let_go(story: Story) -> set[str]:
    """Delete three Services, and return the addresses that two of them had."""
    view = await story.observe()
    kept = {services_of(view)[name] for name in _APPS[:2]}
    for name in reversed(_APPS[2:]):
        story.stage.report.step(f"a user deletes the Service {name}")
        await story.stage.running()["demo"].client.delete(f"/api/v1/namespaces/apps/services/{name}")
    await _set_range(story, perGuest={**_LIMITS, "preAllocate": 0})
    await story.expect(
        "fipop deletes the two floating IPs that no Service uses, and no other",
        lambda view: {address_of(view, name) for name in _MADE} - {""} == kept,
    )
    return {services_of(view)[name] for name in _APPS[2:4]}


async def _give_shop_other_values(story: Story) -> None:
    stage = story.stage
    stage.report.chapter("An override gives shop another interface")
    before = (await story.observe()).guests["demo"].releases
    stage.report.step(
        "an administrator sets kubevipUpdate, and an entry of kubevipChartValuesOverrides for shop"
    )
    options = {"kubevipUpdate": "true", "kubevipChartValuesOverrides": _OVERRIDE}
    await stage.management.client.patch(_OPTIONS, {"data": options})
    await story.expect(
        "kube-vip in shop is upgraded once, and uses the other interface",
        lambda view: (
            view.guests["shop"].releases["kube-vip"].revision == 2
            and {"name": "vip_interface", "value": "eth1"} in _environment(view, "shop")
        ),
    )
    stage.report.check(
        "the releases in demo stay as they are",
        holds=(await story.observe()).guests["demo"].releases == before,
    )
    code, text = await story.run_fipop("values", "shop")
    stage.report.check(
        "fipop values shows the entry that the interface is from",
        holds=code == 0 and "override other-interface" in text,
    )


async def _set_range(story: Story, **spec: object) -> None:
    await story.stage.management.client.patch(_RANGE, {"spec": spec})


def _environment(view: FleetView, guest: str) -> list[Json]:
    """Return the environment of fipop's kube-vip in a guest cluster."""
    return [
        variable
        for one in view.guests[guest].daemon_sets.values()
        if (one["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name") == "kube-vip"
        for variable in one["spec"]["template"]["spec"]["containers"][0]["env"]
    ]
