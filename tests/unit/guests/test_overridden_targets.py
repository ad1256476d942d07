"""Targets with overrides: what each guest cluster gets, and that nothing changes without them."""

import json
from typing import Any

import pytest

from fipop.guests.record import GuestRecord
from fipop.helm.charts import (
    Chart,
    Role,
    Target,
    parse_target,
    render_target,
    wanted_overrides,
    wanted_values,
)
from fipop.rancher.objects import ProvisioningCluster, parse_provisioning_cluster
from fipop.settings.options import DEFAULTS, Settings, parse_settings
from tests.harness.steps import count_steps

RACKS = """\
- name: {name}
  clusterSelector: {{matchLabels: {{rack: {name}}}}}
  values:
    env:
      vip_interface: eth1
      vip_arp: "false"
      bgp_enable: "true"
      bgp_as: "{asn}"
      bgp_routerinterface: eth1
      bgp_peers: "10.{asn}.0.1:65000::false,10.{asn}.0.2:65000::false"
"""
OLD = """\
- name: old
  clusterSelector: {matchExpressions: [{key: kubernetes, operator: In, values: ["1.24", "1.25"]}]}
  chartVersion: 0.6.4
  chartDigest: sha256:%s
  values: {image: {tag: v0.8.10}}
"""


def settings(**data: str) -> Settings:
    found, bad = parse_settings(data, DEFAULTS)
    assert bad == ()
    return found


def target(chosen: Settings = DEFAULTS) -> Target:
    charts = {
        role: Chart(role=role, url="https://charts.example", version="0.9.9", sha256="a" * 64)
        for role in Role
    }
    return Target(charts=charts, values=wanted_values(chosen), overrides=wanted_overrides(chosen))


def cluster(name: str = "shop", **labels: str) -> ProvisioningCluster:
    return parse_provisioning_cluster(
        {"metadata": {"name": name, "namespace": "fleet-default", "labels": labels}}
    )


def overridden(text: str, **data: str) -> Target:
    return target(settings(kubevipChartValuesOverrides=text, **data))


def env_of(found: Target) -> dict[str, Any]:
    return dict(found.values[Role.KUBE_VIP]["env"])


def test_without_overrides_names_and_digests_are_those_of_releases_that_are_there() -> None:
    found = target()
    assert found.name == "95e5af608441"
    assert found.digests == {
        Role.KUBE_VIP: "0033d21d9e20a49a5e87b570adef5d51",
        Role.CLOUD_PROVIDER: "d0a5b223b42b9f9ceba90250f20f3169",
    }
    own = found.for_guest(cluster())
    assert (own.name, own.digests) == (found.name, found.digests)
    # What an operator without overrides has kept, its values completed.
    kept = parse_target(render_target(own))
    assert kept is not None
    assert (kept.name, kept.digests, kept.overrides) == (found.name, found.digests, {})


def test_a_guest_cluster_gets_the_entries_that_fit_in_their_order() -> None:
    text = (
        RACKS.format(name="a", asn=1)
        + OLD % ("b" * 64)
        + "- {name: last, clusters: [shop], values: {env: {bgp_as: '7'}}}"
    )
    found = overridden(text)
    own = found.for_guest(cluster(rack="a", kubernetes="1.24"))
    assert env_of(own)["bgp_as"] == "7"
    assert env_of(own)["vip_interface"] == "eth1"
    assert env_of(own)["prometheus_server"] == ":8080"
    assert own.values[Role.KUBE_VIP]["image"] == {"repository": "plndr/kube-vip", "tag": "v0.8.10"}
    assert (own.charts[Role.KUBE_VIP].version, own.charts[Role.CLOUD_PROVIDER].version) == ("0.6.4", "0.9.9")
    assert own.name.partition(".")[0] == found.name
    assert [each.version for each in found.archives] == ["0.9.9", "0.9.9", "0.6.4"]


def test_the_interface_of_an_override_reaches_where_it_works() -> None:
    base = "config: {vip_interface: enp1s0}\n"
    found = overridden(
        "- {name: a, clusters: [shop], values: {config: {vip_interface: eth9}}}", kubevipChartValues=base
    )
    assert env_of(found.for_guest(cluster()))["vip_interface"] == "eth9"
    assert env_of(found.for_guest(cluster("other")))["vip_interface"] == "enp1s0"


def test_only_the_guest_clusters_of_an_entry_have_another_digest() -> None:
    before, after = target(), overridden(RACKS.format(name="a", asn=1))
    assert after.name != before.name
    inside, outside = cluster(rack="a"), cluster("other", rack="b")
    assert after.for_guest(outside).digests == before.for_guest(outside).digests
    assert after.for_guest(inside).digests != before.for_guest(inside).digests
    both = [each.for_guest(inside).digests[Role.CLOUD_PROVIDER] for each in (before, after)]
    assert both[0] == both[1]


def test_a_target_with_overrides_is_kept_whole() -> None:
    found = overridden(RACKS.format(name="a", asn=1) + OLD % ("b" * 64))
    again = parse_target(render_target(found))
    assert again is not None
    assert again == found
    assert again.name == found.name


def test_an_order_of_entries_that_changes_what_they_bring_is_another_target() -> None:
    entries = [f"- {{name: {each}, clusters: [shop], values: {{a: {each}}}}}\n" for each in ("one", "two")]
    there, back = overridden("".join(entries)), overridden("".join(reversed(entries)))
    assert there.for_guest(cluster()).digests != back.for_guest(cluster()).digests
    assert there.name != back.name


@pytest.fixture(scope="module")
def fifty() -> Target:
    return overridden("".join(RACKS.format(name=f"rack-{number}", asn=number) for number in range(50)))


def test_fifty_entries_are_kept_in_64_kib(fifty: Target) -> None:
    beside = len(render_target(fifty)) - len(render_target(target()))
    # A ConfigMap keeps the target and the stable one.
    assert 2 * beside < 64 * 1024
    assert json.loads(render_target(fifty))["kube-vip-cloud-provider"][4:] == []


async def test_entries_are_chosen_again_only_if_the_guest_cluster_or_the_target_changes(
    fifty: Target,
) -> None:
    clusters = [cluster(f"guest-{number}", rack=f"rack-{number % 60}") for number in range(100)]
    records = [GuestRecord() for _ in clusters]

    def choose(target: Target) -> list[Target]:
        return [
            record.choose_targets(each, target, None)[0]
            for record, each in zip(records, clusters, strict=True)
        ]

    assert len({each.name for each in choose(fifty)}) == 51
    assert count_steps(lambda: choose(fifty)) / len(clusters) < 10
    clusters[0] = cluster("guest-0", rack="rack-1")
    assert choose(fifty)[0] is choose(fifty)[1]
    other = overridden(RACKS.format(name="rack-0", asn=0))
    assert [each.part_of for each in choose(other)] == [other.name] * 100
