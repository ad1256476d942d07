"""What a visit leaves alone, what it puts right, and what it costs."""

from itertools import pairwise

import pytest

from fipop.api import names
from tests.harness.fleet import Fleet

A, B = "c-m-a", "c-m-b"
X = "10.0.0.10"
BOTH = {"kube-vip": "deployed", "kube-vip-cloud-provider": "deployed"}
VISITED = 150
"""Every guest cluster was visited twice in that time."""
HARVESTER = ("daemonsets", "kube-system", "kube-vip")
PARKED = "node-role.kubernetes.io/harvester-kube-vip-disabled"
RECORD = ("secrets", "kube-system", "sh.helm.release.v1.kube-vip.v2")
REMOVAL = {names.LABEL_OPT_IN: "false", names.LABEL_REMOVE: "true"}


def build(**options: str) -> Fleet:
    fleet = Fleet()
    fleet.set_options(**{"operateGuestClusterInterval": "60", **options})
    fleet.add_range()
    fleet.add_guest(A)
    fleet.opt_in(A)
    return fleet


async def installed(**options: str) -> Fleet:
    """Have an opted-in guest cluster with both releases."""
    fleet = build(**options)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(60)
    assert fleet.guests[A].releases == BOTH
    return fleet


# Others that do the same work

MIRRORED = "rancher/mirrored-kube-vip-kube-vip-iptables:v0.8.7"
THEIRS: dict[str, tuple[tuple[str, str, str], str, dict[str, str], str]] = {
    "a kube-vip of Rancher's registry": (
        ("daemonsets", "kube-system", "vip"),
        MIRRORED,
        {"svc_enable": "true"},
        "KubeVipReady",
    ),
    "a kube-vip for Services": (
        ("daemonsets", "kube-system", "vip"),
        "ghcr.io/kube-vip/kube-vip:v1.2.3",
        {"svc_enable": "true"},
        "KubeVipReady",
    ),
    "a provider of the same ConfigMap": (
        ("deployments", "vip", "provider"),
        "ghcr.io/kube-vip/kube-vip-cloud-provider:v0.0.12",
        {"KUBEVIP_NAMESPACE": "kube-system", "KUBEVIP_CONFIG_MAP": "kubevip"},
        "CloudProviderReady",
    ),
}


@pytest.mark.parametrize("which", THEIRS)
async def test_nothing_is_installed_beside(which: str) -> None:
    key, image, env, kind = THEIRS[which]
    fleet = build()
    fleet.guests[A].put_workload(key, image, **env)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, kind) == ("False", "OthersRun")
    assert f"{key[1]}/{key[2]}" in fleet.message(A, kind)
    assert fleet.guests[A].releases == {}
    fleet.guests[A].remove(key)
    await fleet.pass_time(VISITED)
    assert fleet.guests[A].releases == BOTH


@pytest.mark.parametrize("which", THEIRS)
async def test_what_is_installed_already_stays_and_the_other_one_is_named(which: str) -> None:
    key, image, env, kind = THEIRS[which]
    fleet = await installed()
    fleet.guests[A].put_workload(key, image, **env)
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, kind) == ("True", "OthersRun")
    await fleet.skip_time(7200)
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, kind) == ("True", "OthersRun")
    assert fleet.guests[A].releases == BOTH


NO_OTHERS: dict[str, tuple[tuple[str, str, str], str, dict[str, str]]] = {
    "a kube-vip for the control plane": (
        ("daemonsets", "kube-system", "cp"),
        "ghcr.io/kube-vip/kube-vip",
        {"cp_enable": "true", "svc_enable": "false"},
    ),
    "a provider of another ConfigMap": (
        ("deployments", "vip", "provider"),
        "kube-vip-cloud-provider",
        {"KUBEVIP_CONFIG_MAP": "other"},
    ),
}


@pytest.mark.parametrize("which", NO_OTHERS)
async def test_both_are_installed_beside(which: str) -> None:
    key, image, env = NO_OTHERS[which]
    fleet = build()
    fleet.guests[A].put_workload(key, image, **env)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(60)
    assert fleet.guests[A].releases == BOTH


# Harvester


async def test_harvesters_kube_vip_makes_room_and_runs_again_if_fipops_is_removed_by_hand() -> None:
    fleet = build()
    fleet.guests[A].put_workload(HARVESTER, MIRRORED, release="harvester-cloud-provider", svc_enable="true")
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(60)

    def is_parked() -> bool:
        spec = fleet.guests[A].objects[HARVESTER]["spec"]["template"]["spec"]
        return PARKED in (spec.get("nodeSelector") or {})

    assert is_parked()
    assert ("daemonsets", "kube-system", "kube-vip-fipop") in fleet.guests[A].objects
    fleet.label_guest(A)
    await fleet.settle()
    fleet.guests[A].remove(("daemonsets", "kube-system", "kube-vip-fipop"))
    for key in fleet.guests[A].of_kind("secrets"):
        fleet.guests[A].remove(key)
    await fleet.pass_time(VISITED)
    assert not is_parked()


async def test_harvesters_kube_vip_that_cannot_be_parked_is_reported() -> None:
    fleet = build()
    fleet.guests[A].put_workload(HARVESTER, "kube-vip", release="harvester-cloud-provider", svc_enable="true")
    await fleet.start(leader_election=False)
    fleet.guests[A].protected.add("daemonsets")
    fleet.ask(A)
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, "GuestConfigured") == ("False", "WriteFailed")
    assert fleet.message(A, "GuestConfigured") == (
        "Could not patch DaemonSet kube-system/kube-vip: 403 Forbidden."
    )
    fleet.guests[A].protected.clear()
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, "GuestConfigured")[0] == "True"


async def test_a_harvester_that_takes_every_service_is_reported_until_it_does_not() -> None:
    fleet = build()
    key = ("deployments", "kube-system", "harvester-cloud-provider")
    fleet.guests[A].put_workload(key, "rancher/harvester-cloud-provider:v0.2.12")
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(60)
    assert fleet.condition(A, "CloudProviderReady") == ("False", "HarvesterTakesServices")
    assert "switch off its Service controller" in fleet.message(A, "CloudProviderReady")
    found = fleet.guests[A].objects[key]
    container = {"image": "x", "args": ["--controllers=cloud-node-controller"]}
    fleet.guests[A].put(key, {**found, "spec": {"template": {"spec": {"containers": [container]}}}})
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, "CloudProviderReady") == ("True", "Ready")


# Objects of others with the name of ours, and what helm says of them

HELM_SAYS = {
    "an object of others": (
        (
            'Error: Unable to continue with install: ServiceAccount "kube-vip" in namespace "kube-system" exists '
            "and cannot be imported into the current release: invalid ownership metadata; label validation"
        ),
        (
            "an object of that name belongs to something else: ServiceAccount kube-system/kube-vip, which is of no "
            "release. Set another name as nameOverride"
        ),
    ),
    "an object of a release": (
        (
            'Error: Unable to continue with install: ClusterRole "kube-vip" in namespace "" exists and cannot be '
            "imported into the current release: invalid ownership metadata; annotation validation error: key "
            '"meta.helm.sh/'
            'release-name" must equal "kube-vip": current value is "theirs"'
        ),
        "ClusterRole kube-vip, which is of release theirs. Set another name as nameOverride",
    ),
    "Rancher's webhook away": (
        (
            "Error: Internal error occurred: failed calling webhook "
            '"rancher.cattle.io.namespaces.create-non-kubesystem": '
            "failed to call webhook: context deadline exceeded"
        ),
        (
            "an admission webhook of Rancher refused it or did not answer: "
            "rancher.cattle.io.namespaces.create-non-kubesystem. Check the Deployment cattle-system/rancher-webhook"
        ),
    ),
    "PodSecurity": (
        'Error: pods "x" is forbidden: violates PodSecurity "restricted:latest": host namespaces',
        "PodSecurity of its namespace refused it. kube-vip uses the network of its nodes: label the namespace",
    ),
    "a stranger's webhook": (
        'Error: admission webhook "evil.example.com" denied the request: <script>',
        "an admission webhook or policy of the cluster refused it",
    ),
}


async def test_kube_vip_for_the_control_plane_and_its_account_are_no_obstacle() -> None:
    fleet = build()
    guest = fleet.guests[A]
    theirs = ("daemonsets", "kube-system", "kube-vip-ds")
    guest.put_workload(theirs, "kube-vip", cp_enable="true", svc_enable="false")
    fleet.helm.failures["upgrade"] = [HELM_SAYS["an object of others"][0]]
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(60)
    assert fleet.condition(A, "KubeVipReady") == ("True", "Ready")
    assert ("daemonsets", "kube-system", "kube-vip-fipop") in guest.objects
    upgrades = [verb for verb, _ in fleet.helm.runs if verb == "upgrade"]
    await fleet.pass_time(VISITED)
    assert [verb for verb, _ in fleet.helm.runs if verb == "upgrade"] == upgrades


async def test_a_name_that_the_administrator_chose_is_not_replaced_by_another() -> None:
    fleet = build(kubevipChartValues="nameOverride: vip")
    fleet.helm.failures["upgrade"] = [HELM_SAYS["an object of others"][0]] * 4
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(20)
    assert fleet.condition(A, "KubeVipReady") == ("False", "ReleaseFailed")


@pytest.mark.parametrize("case", HELM_SAYS)
async def test_what_helm_says_of_a_known_cause_is_told_with_its_remedy_and_not_quoted(case: str) -> None:
    words, told = HELM_SAYS[case]
    fleet = build()
    fleet.helm.failures["upgrade"] = [words] * 20
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(60)
    assert fleet.condition(A, "KubeVipReady") == ("False", "ReleaseFailed")
    assert told in fleet.message(A, "KubeVipReady")
    assert "<script>" not in fleet.message(A, "KubeVipReady")


async def test_a_registry_that_speaks_http_is_told_with_the_remedy() -> None:
    fleet = build(kubevipChartRef="oci://registry.lan:5000/charts/kube-vip")
    fleet.helm.failures["pull"] = ["Error: http: server gave HTTP response to HTTPS client"] * 8
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(60)
    assert "registry.lan:5000" in fleet.message(A, "KubeVipReady")
    assert "fipop reads registries over TLS only" in fleet.message(A, "KubeVipReady")


# The ConfigMap


async def test_the_config_map_stays_where_the_provider_reads_it_whatever_the_option_says_after_a_restart() -> (
    None
):
    fleet = await installed(kubevipNamespace="networking")
    key = ("configmaps", "networking", "kubevip")
    assert fleet.guests[A].objects[key]["data"] == {"cidr-global": f"{X}/32"}
    fleet.set_options(kubevipNamespace="Net_working")
    await fleet.restart(leader_election=False, seconds=VISITED)
    assert fleet.guests[A].objects[key]["data"] == {"cidr-global": f"{X}/32"}
    fleet.set_options(kubevipNamespace="elsewhere")
    await fleet.pass_time(VISITED)
    assert fleet.guests[A].objects[key]["data"] == {"cidr-global": f"{X}/32"}
    assert ("configmaps", "elsewhere", "kubevip") not in fleet.guests[A].objects


async def test_a_key_of_its_owner_with_an_address_of_this_guest_cluster_stays() -> None:
    fleet = build()
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(10)
    fleet.guests[A].write_config_map(cidr_web=f"{X}/32")
    await fleet.pass_time(VISITED)
    assert fleet.guests[A].config_map == {"cidr-global": f"{X}/32", "cidr-web": f"{X}/32"}
    fleet.give_up(A)
    await fleet.pass_time(VISITED)
    assert fleet.guests[A].config_map == {"cidr-web": f"{X}/32"}


async def test_a_range_of_its_owner_that_serves_nobody_any_more_is_reported_in_both_clusters() -> None:
    fleet = build()
    fleet.guests[A].write_config_map(range_global="10.9.0.1-10.9.0.9")
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(10)
    assert fleet.condition(A, "GuestConfigured") == ("True", "Configured")
    assert "range-global" in fleet.message(A, "GuestConfigured")
    (event,) = fleet.guests[A].of_kind("events").values()
    assert (event["reason"], event["involvedObject"]["name"]) == ("RangeHidden", "kubevip")


@pytest.mark.parametrize("kind", ["paused", "without a floating IP"])
async def test_a_guest_cluster_in_which_nothing_is_due_is_read_as_often_as_others(kind: str) -> None:
    fleet = build()
    fleet.add_guest(B)
    await fleet.start(leader_election=False)
    fleet.ask(A, X if kind == "paused" else "")
    if kind == "paused":
        fleet.ask(B)
        fleet.pause(B)
    await fleet.pass_time(30)
    version = fleet.guests[B].version
    fleet.guests[B].add_service(fleet.addresses(A)[0])
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, "GuestConfigured") == ("False", "AddressConflict")
    assert fleet.guests[B].version == version + 1, "only its owner wrote"


# Releases


@pytest.mark.parametrize(("minutes", "is_kept"), [(9, True), (11, False)])
async def test_the_record_of_somebody_elses_helm_is_kept_for_ten_minutes(minutes: int, is_kept: bool) -> None:
    fleet = await installed(kubevipUpdate="true", kubevipRolloutType="All", operateGuestClusterInterval="60")
    found = fleet.guests[A].objects["secrets", "kube-system", "sh.helm.release.v1.kube-vip.v1"]
    labels = {**found["metadata"]["labels"], "version": "2", "status": "pending-upgrade"}
    fleet.guests[A].put(
        RECORD, {**found, "metadata": {"name": RECORD[2], "namespace": RECORD[1], "labels": labels}}
    )
    await fleet.pass_time(minutes * 60)
    if is_kept:
        assert fleet.guests[A].objects[RECORD]["metadata"]["labels"]["status"] == "pending-upgrade"
    else:
        await fleet.pass_time(60)
        assert fleet.guests[A].releases == BOTH


async def test_nothing_is_removed_while_an_option_that_shapes_releases_has_no_known_value() -> None:
    fleet = await installed()
    fleet.set_options(kubevipReleaseName="Kube_Vip")
    await fleet.restart(leader_election=False, seconds=60)
    fleet.label_guest(A, **REMOVAL)
    await fleet.pass_time(VISITED)
    assert fleet.guests[A].releases == BOTH
    fleet.set_options(kubevipReleaseName="kube-vip")
    await fleet.pass_time(VISITED)
    assert fleet.guests[A].releases == {}


async def test_after_a_removal_the_condition_counts_the_services_that_wait_for_the_provider() -> None:
    fleet = await installed()
    guest = fleet.guests[A]
    guest.add_service(X)
    key = ("services", "default", "web")
    found = guest.objects[key]
    finalizers = ["service.kubernetes.io/load-balancer-cleanup"]
    guest.put(key, {**found, "metadata": {**found["metadata"], "finalizers": finalizers}})
    fleet.label_guest(A, **REMOVAL)
    await fleet.pass_time(VISITED)
    assert guest.releases == {}
    assert "Services that still have its finalizer: 1." in fleet.message(A, "GuestConfigured")
    assert "--release-services" in fleet.message(A, "GuestConfigured")
    assert guest.objects[key]["metadata"]["finalizers"] == finalizers


async def test_helm_that_fails_for_one_release_keeps_the_other_one_from_nothing_and_rests() -> None:
    fleet = build()
    fleet.helm.failures["upgrade"] = ["execution error"]
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(20)
    assert fleet.condition(A, "KubeVipReady") == ("False", "ReleaseFailed")
    assert list(fleet.guests[A].releases) == ["kube-vip-cloud-provider"]
    assert fleet.guests[A].addresses == {X}, "the address does not wait for helm"
    assert sum(verb == "upgrade" for verb, _ in fleet.helm.runs) == 2
    await fleet.pass_time(60)
    assert fleet.guests[A].releases == BOTH


async def test_helm_that_fails_for_both_releases_is_reported_for_each() -> None:
    fleet = build()
    fleet.helm.failures["upgrade"] = ["execution error"] * 4
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(20)
    for kind in ("KubeVipReady", "CloudProviderReady"):
        assert fleet.condition(A, kind) == ("False", "ReleaseFailed")
    assert sum(verb == "upgrade" for verb, _ in fleet.helm.runs) == 2
    await fleet.pass_time(600)
    assert fleet.guests[A].releases == BOTH


# What it costs


async def test_a_quiet_visit_is_five_requests_and_no_write() -> None:
    fleet = await installed(operateGuestClusterInterval="60")
    await fleet.skip_time(7200)  # it is no new guest cluster any more
    await fleet.pass_time(120)
    guest = fleet.guests[A]
    asked, version, stored = guest.asked, guest.version, fleet.memory.version
    await fleet.pass_time(600)
    assert guest.version == version
    assert fleet.commits_since(stored) == []
    assert 5 * 10 <= guest.asked - asked <= 5 * 12


async def test_a_fleet_sends_no_more_requests_through_its_rancher_than_the_option_says() -> None:
    fleet = Fleet()
    fleet.set_options(guestRequestsPerSecond="30")
    fleet.add_range(iprange="10.0.0.10-10.0.9.0")
    for number in range(100):
        fleet.add_guest(f"c-m-{number}")
    await fleet.start(leader_election=False, seconds=0)
    sent = [0]
    for _ in range(60):
        await fleet.pass_time(1)
        sent.append(sum(each.asked for each in fleet.guests.values()))
    assert sent[-1] >= 400, "each was read: four requests"
    assert max(after - before for before, after in pairwise(sent)) <= 30 + 10
    new = fleet.add_guest("c-m-new")
    fleet.ask("c-m-new")
    await fleet.pass_time(1)
    assert new.addresses
