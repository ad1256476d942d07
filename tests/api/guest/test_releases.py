"""Releases in a real guest cluster by real helm: installed, kept, upgraded, taken over, repaired, removed."""

import pytest

from localfleet.harvester_guest import DAEMON_SET
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import (
    ADDRESS,
    GOOD_VALUES,
    OTHER_VALUES,
    PATIENCE_SECONDS,
    GuestBench,
)

pytestmark = pytest.mark.xdist_group("guest")


async def test_both_releases_are_installed_and_a_quiet_visit_is_five_requests_without_a_write(
    bench: GuestBench,
) -> None:
    bench.opt_in()
    await bench.until_ready()
    shown = [(each["status"], each["revision"], each["version"]) for each in bench.releases().values()]
    assert shown == [("deployed", 1, "0.11.0"), ("deployed", 1, "0.2.10")]
    assert await bench.data() == {"cidr-global": f"{ADDRESS}/32"}
    container = (await bench.client.get(DAEMON_SET))["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "vip_interface", "value": "eth0"} in container["env"]
    await bench.visits(5)  # by then its rollout is over: while that judges it, visits read pods, too
    seen = await bench.visits(3)
    reads = [each.path for each in seen if "nodes" not in each.path and "endpoints" not in each.path]
    reads = reads[reads.index("/api/v1/configmaps") :]  # the first of a visit
    assert len(reads) <= 5 * reads.count("/api/v1/configmaps")
    assert not [each for each in seen if each.is_write]


async def test_changed_values_and_charts_upgrade_once_if_updates_are_on(bench: GuestBench) -> None:
    bench.set_options(kubevipChartVersion="0.9.9")
    bench.opt_in()
    await bench.until_ready()
    bench.set_options(kubevipUpdate="false", kubevipChartVersion="", kubevipChartValues=OTHER_VALUES)
    await bench.until_reason("Drift")
    assert "0.11.0" in bench.message()
    assert bench.revisions() == [1, 1]
    bench.set_options(kubevipUpdate="true")
    await bench.until_revisions(2, 1)
    await bench.visits(3)
    assert bench.revisions() == [2, 1]
    template = (await bench.client.get(DAEMON_SET))["spec"]["template"]
    assert template["metadata"]["annotations"] == {"changed": "yes"}


async def test_an_override_brings_its_values_and_its_version_of_the_chart(bench: GuestBench) -> None:
    entry = (
        "- name: all\n  clusterSelector: {}\n  chartVersion: 0.9.9\n  values: {env: {vip_interface: eth9}}\n"
    )
    bench.set_options(kubevipChartValuesOverrides=entry)
    bench.opt_in()
    await bench.until_ready()
    assert [each["version"] for each in bench.releases().values()] == ["0.9.9", "0.2.10"]
    container = (await bench.client.get(DAEMON_SET))["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "vip_interface", "value": "eth9"} in container["env"]
    bench.set_options(kubevipUpdate="true", kubevipChartValuesOverrides="")
    await bench.until_revisions(2, 1)
    await bench.until_ready()
    assert [each["version"] for each in bench.releases().values()] == ["0.11.0", "0.2.10"]


async def test_a_namespace_is_made_for_a_guest_cluster_without_a_release(bench: GuestBench) -> None:
    bench.set_options(kubevipReleaseName="vip", kubevipNamespace="networking")
    bench.opt_in()
    await bench.until_ready()
    assert await bench.client.find("/apis/apps/v1/namespaces/networking/daemonsets/vip")

    async def is_moved() -> bool:
        return await bench.data("networking") == {"cidr-global": f"{ADDRESS}/32"}

    await eventually(
        is_moved, seconds=PATIENCE_SECONDS, what="the ConfigMap to be where the provider reads it"
    )
    assert not await bench.data()


async def test_kube_vip_for_the_control_plane_is_no_obstacle_though_its_account_has_the_name(
    bench: GuestBench,
) -> None:
    await bench.client.create(
        "/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "kube-vip"}}
    )
    bench.opt_in()
    await bench.until_ready()
    assert await bench.client.find("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-vip-fipop")
    assert len(await bench.secrets("kube-vip")) == 1
    await bench.client.delete("/api/v1/namespaces/kube-system/serviceaccounts/kube-vip")


async def test_what_helm_cannot_install_names_kind_name_and_field_and_other_values_are_tried_at_once(
    bench: GuestBench,
) -> None:
    bench.set_options(kubevipChartValues="image: {pullPolicy: Sometimes}\n")
    bench.opt_in()
    await bench.until_reason("ReleaseFailed")
    assert "DaemonSet" in bench.message()
    assert "imagePullPolicy" in bench.message()
    bench.set_options(kubevipChartValues=GOOD_VALUES)
    await bench.until_ready()


async def test_a_chart_that_cannot_be_rendered_is_quoted_on_the_options_without_their_values(
    bench: GuestBench,
) -> None:
    bench.set_options(kubevipChartValues="image: verysecret\n")
    bench.opt_in()
    await bench.until_reason("ReleaseFailed")

    def quoted() -> list[str]:
        found = bench.fleet.events("ConfigMap/kube-fip-config")
        return [text for _, reason, text in found if reason == "ChartNotRendered"]

    await bench.until(lambda: bool(quoted()))
    assert ".Values.image" in quoted()[0], "helm names the place in the chart"
    assert not any("verysecret" in each for each in (*quoted(), bench.message()))


# Harvester's own kube-vip
