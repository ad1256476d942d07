"""The options of kube-fip-config that are about the releases in guests, changed while real helm keeps them."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.chartrepo import ChartRepository
from localfleet.controlplane import ControlPlane
from localfleet.helm import PUBLISHED, ChartVersion
from localfleet.observation import GuestView, observe_guest
from localfleet.registry import OciRegistry
from localfleet.stack import SETTINGS, Stack, build_range
from localfleet.waiting import eventually
from tests.api.borrowing import Installs, borrow
from tests.api.served_guest import ServedGuest, bring_up
from tests.api.sweeping import sweep

KUBE_VIP, CLOUD_PROVIDER = "kube-vip", "kube-vip-cloud-provider"
ELSEWHERE = ChartVersion(name=KUBE_VIP, version="0.12.0", app_version="v1.2.3")
MIRRORED = (
    ChartVersion(name=KUBE_VIP, version="0.13.0", app_version="v1.2.3"),
    ChartVersion(name=CLOUD_PROVIDER, version="0.3.0", app_version="v0.0.12"),
)
INSTALLED_SECONDS = 120.0

pytest_plugins = ("tests.api.shared_stacks",)
pytestmark = pytest.mark.xdist_group("chart-options")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where charts come from besides the usual repository: another one, and a registry, each with its own versions."""

    other: ChartRepository
    registry: OciRegistry


@pytest_asyncio.fixture(scope="module")
async def sources(installs: Installs, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sources]:
    folder: Path = tmp_path_factory.mktemp("charts")
    async with ChartRepository() as other, installs.open_registry(folder / "registry") as registry:
        for chart in (ELSEWHERE, PUBLISHED[-1]):
            other.publish(await installs.helm.pack(chart, folder))
        for chart in MIRRORED:
            await registry.push(await installs.helm.pack(chart, folder))
        yield Sources(other=other, registry=registry)


@pytest_asyncio.fixture(scope="module")
async def stack(installs: Installs, sources: Sources) -> AsyncIterator[Stack]:
    vlan = build_range("vlan", "10.79.0.0/24", harvester="harvester-cluster1", network="vlan10")
    options = {"kubevipUpdate": "true", "kubevipRolloutMinSuccessTime": "1"}
    async with borrow(installs.stack, vlan, **options) as stack:
        yield stack


@pytest_asyncio.fixture(scope="module")
async def kept(stack: Stack, guest: ControlPlane) -> AsyncIterator[ServedGuest]:
    """A guest with both releases, on whose node their workloads are ready."""
    await sweep(guest.client)
    plan = stack.player.plan_guest("kept", labels={"kube-vip": "true"})
    async with bring_up(stack, guest, plan) as served:
        await served.has_condition(seconds=INSTALLED_SECONDS)
        yield served
    await sweep(guest.client)


@pytest_asyncio.fixture
async def defaults(stack: Stack) -> AsyncIterator[Mapping[str, str]]:
    """The options as the chart has them, to which a test's changes are taken back at its end."""
    before: Mapping[str, str] = (await stack.client.get(SETTINGS))["data"]
    yield before
    after = (await stack.client.get(SETTINGS))["data"]
    await stack.set_options(**(dict.fromkeys(after) | before))


async def comes_to(served: ServedGuest, is_as_wanted: Callable[[GuestView], bool], what: str) -> GuestView:
    """Wait until what stands in the guest is as wanted; all that stands there."""

    async def look() -> GuestView | None:
        view = await observe_guest(served.client)
        return view if is_as_wanted(view) else None

    return await eventually(look, seconds=INSTALLED_SECONDS, what=what)


def chart_of(view: GuestView, release: str) -> str:
    found = view.releases.get(release)
    return found.chart if found is not None and found.status == "deployed" else ""


def interface_of(view: GuestView) -> str:
    """The interface of our kube-vip, whose objects have another name where Harvester's stands beside it."""
    ours = next(
        each
        for each in view.daemon_sets.values()
        if (each["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name") == KUBE_VIP
    )
    container = ours["spec"]["template"]["spec"]["containers"][0]
    return next(each["value"] for each in container["env"] if each["name"] == "vip_interface")


EFFECTS: Mapping[str, tuple[str, Callable[[GuestView], bool]]] = {
    "kubevipChartVersion": ("0.9.9", lambda view: chart_of(view, KUBE_VIP) == "kube-vip-0.9.9"),
    "kubevipChartValues": ("env: {vip_interface: eth7}", lambda view: interface_of(view) == "eth7"),
    "kubevipChartRepoUrl": ("other", lambda view: chart_of(view, KUBE_VIP) == "kube-vip-0.12.0"),
    "kubevipChartRef": (KUBE_VIP, lambda view: chart_of(view, KUBE_VIP) == "kube-vip-0.13.0"),
    "kubevipCloudProviderChartVersion": (
        "0.2.9",
        lambda view: chart_of(view, CLOUD_PROVIDER) == "kube-vip-cloud-provider-0.2.9",
    ),
    "kubevipCloudProviderChartValues": (
        "replicasCount: 2",
        lambda view: view.deployments[CLOUD_PROVIDER]["spec"]["replicas"] == 2,
    ),
    "kubevipCloudProviderChartRef": (
        CLOUD_PROVIDER,
        lambda view: chart_of(view, CLOUD_PROVIDER) == "kube-vip-cloud-provider-0.3.0",
    ),
}


@pytest.mark.parametrize("option", EFFECTS)
async def test_a_change_of_the_wanted_chart_or_values_is_brought_to_guests_that_have_releases(
    stack: Stack, kept: ServedGuest, defaults: Mapping[str, str], sources: Sources, option: str
) -> None:
    value, is_in_effect = EFFECTS[option]
    if option == "kubevipChartRepoUrl":
        value = sources.other.url
    elif option.endswith("ChartRef"):
        value = sources.registry.reference(value)
    assert not is_in_effect(await observe_guest(kept.client))
    await stack.set_options(**{option: value})
    await comes_to(kept, is_in_effect, f"the effect of {option}")


@pytest.mark.parametrize(
    ("option", "condition"),
    [
        ("kubevipReleaseName", "KubeVipReady"),
        ("kubevipCloudProviderReleaseName", "CloudProviderReady"),
        ("kubevipNamespace", "KubeVipReady"),
    ],
)
async def test_another_name_or_namespace_is_for_guests_without_a_release_and_the_others_say_so(
    stack: Stack,
    kept: ServedGuest,
    second_guest: ControlPlane,
    defaults: Mapping[str, str],
    numbers: Iterator[int],
    option: str,
    condition: str,
) -> None:
    before = {
        release.name: release.namespace for release in (await observe_guest(kept.client)).releases.values()
    }
    await stack.set_options(**{option: "other"})
    await kept.has_condition(condition, reason="ReleaseNameChanged", seconds=INSTALLED_SECONDS)
    plan = stack.player.plan_guest(f"new-{next(numbers)}", labels={"kube-vip": "true"})
    wanted = {
        "kubevipReleaseName": {"other": "kube-system", CLOUD_PROVIDER: "kube-system"},
        "kubevipCloudProviderReleaseName": {KUBE_VIP: "kube-system", "other": "kube-system"},
        "kubevipNamespace": {KUBE_VIP: "other", CLOUD_PROVIDER: "other"},
    }[option]
    async with bring_up(stack, second_guest, plan) as new:
        await comes_to(new, lambda view: places(view) == wanted, f"releases at {wanted}")
        namespace = "other" if option == "kubevipNamespace" else "kube-system"
        address = (await new.floating_ip())["status"]["addresses"][0]

        async def is_written() -> bool:
            return await new.data(namespace) == {"cidr-global": f"{address}/32"}

        await eventually(is_written, what=f"the ConfigMap in {namespace}")
    after = (await observe_guest(kept.client)).releases.values()
    assert {release.name: release.namespace for release in after} == before


def places(view: GuestView) -> dict[str, str]:
    """Where deployed releases are: name -> namespace."""
    return {each.name: each.namespace for each in view.releases.values() if each.status == "deployed"}


async def test_guest_install_says_in_which_guests_releases_are_kept(
    stack: Stack, second_guest: ControlPlane, defaults: Mapping[str, str], numbers: Iterator[int]
) -> None:
    """clusterlabel: not without the label; enabled: in all; disabled: nothing more is done, and nothing removed."""
    async with bring_up(stack, second_guest, stack.player.plan_guest(f"new-{next(numbers)}")) as new:
        await new.has_condition("GuestConfigured")
        await new.passes(2)
        assert places(await observe_guest(new.client)) == {}

        await stack.set_options(kubevipGuestInstall="enabled")
        both = {KUBE_VIP: "kube-system", CLOUD_PROVIDER: "kube-system"}
        await comes_to(new, lambda view: places(view) == both, "both releases")

        await stack.set_options(kubevipGuestInstall="disabled")
        await stack.set_options(kubevipChartValues="env: {vip_interface: eth8}")

        async def is_left_alone() -> bool:
            found = {each["type"] for each in (await new.floating_ip())["status"]["conditions"]}
            return not found & {"KubeVipReady", "CloudProviderReady"}

        await eventually(is_left_alone, seconds=INSTALLED_SECONDS)
        await new.passes(2)
        view = await observe_guest(new.client)
        assert places(view) == both
        assert interface_of(view) != "eth8"

        # No node is there, so a rollout in steps would leave this guest cluster alone.
        await stack.set_options(kubevipGuestInstall="clusterlabel", kubevipRolloutType="All")
        await new.label_cluster(kube_vip="true")
        await comes_to(new, lambda view: interface_of(view) == "eth8", "the label to count")
