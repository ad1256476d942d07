"""Commands show and find a cluster by what people call it, too; and say where that name does not count."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fipop.api.codec import format_time
from fipop.api.guest_problems import GuestProblem
from fipop.report.snapshot import LeaderLease, Snapshot
from fipop.settings.options import DEFAULTS, parse_settings
from tests.harness.objects import NOW, Json, build_floating_ip, build_range, build_reservation, held_by
from tests.unit.report.snapshots import build_cluster, build_management, healthy_installation, snapshot

ID, SHOP, ADDRESS = "c-k7w2p", "shop-berlin", "10.0.0.5"
ANNOTATION = "provisioning.cattle.io/management-cluster-display-name"


def build(*others: Any, management: bool = True, status: Json | None = None, **more: Any) -> Snapshot:
    """Return an installation with an imported cluster that people call shop-berlin, and other clusters."""
    annotations = {} if management else {ANNOTATION: SHOP}
    return snapshot(
        ranges=[build_range("pool", "10.0.0.1-10.0.0.10", **more.pop("range_spec", {}))],
        floating_ips=[
            build_floating_ip(
                f"{ID}-kubevip",
                namespace=ID,
                status={**held_by([ADDRESS]), "conditions": [], **(status or {})},
            )
        ],
        reservations=[build_reservation(ADDRESS, f"{ID}-kubevip", namespace=ID, cluster=ID)],
        clusters=[build_cluster(ID, ID, imported=True, opted_in=False, annotations=annotations), *others],
        management=[build_management(ID, SHOP)] if management else [],
        **more,
    )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, run_over: Callable[..., Any]) -> Callable[..., Any]:
    async def nothing(*_: object, **__: object) -> list[object]:
        return []

    monkeypatch.setattr("fipop.cli.check.probe_secret_rights", nothing)

    def start(*arguments: str, found: Snapshot | None = None) -> Any:
        return run_over([found or build()], *arguments)

    return start


@pytest.mark.parametrize("management", [True, False], ids=["of the management Cluster", "of the annotation"])
@pytest.mark.parametrize("asked", [SHOP, ID, f"fleet-default/{ID}", ADDRESS])
def test_who_finds_and_shows_both_names(run: Callable[..., Any], asked: str, *, management: bool) -> None:
    found = build(management=management)
    assert f"{ID} ({SHOP})" in run("who", asked, found=found).stdout
    owner = json.loads(run("who", asked, "-o", "json", found=found).stdout)["addresses"][0]["owner"]
    assert (owner["cluster"], owner["displayName"]) == (ID, SHOP)


@pytest.mark.parametrize("command", [["status", "-n", SHOP, "-o", "wide"], ["check", "--guest", SHOP]])
def test_other_commands_find_and_show_both_names(run: Callable[..., Any], command: list[str]) -> None:
    assert f"{ID} ({SHOP})" in run(*command).stdout


def test_values_are_found_by_the_display_name(run: Callable[..., Any]) -> None:
    assert run("values", SHOP).exit_code == 0


@pytest.mark.parametrize(
    "command", [["who", SHOP], ["status", "-n", SHOP], ["check", "--guest", SHOP], ["values", SHOP]]
)
def test_a_name_that_fits_two_clusters_is_said(run: Callable[..., Any], command: list[str]) -> None:
    said = f'The name "{SHOP}" fits 2 guest clusters: fleet-default/{ID} ({SHOP}), fleet-other/{SHOP}.'
    found = build(build_cluster(SHOP, "c-m-2", namespace="fleet-other"))
    assert said in run(*command, found=found).stderr
    assert "fits" not in run(*command).stderr


def test_nobody_can_be_called_so_that_workspace_and_name_fit_two_clusters(run: Callable[..., Any]) -> None:
    place = f"fleet-default/{ID}"
    found = build(build_cluster("c-other", "c-other", annotations={ANNOTATION: place}))
    assert "fits" not in run("values", place, found=found).stderr


def test_a_misspelt_display_name_gets_a_question(run: Callable[..., Any]) -> None:
    assert f'did you mean "{SHOP}"?' in run("values", "shop-berlim").stderr


def test_all_points_of_one_guest_cluster_have_one_section(run: Callable[..., Any]) -> None:
    unused = {"since": format_time(NOW), "until": format_time(NOW + timedelta(hours=1))}
    found = run("check", "--guest", SHOP, "-o", "json", found=build(status={"unused": unused}))
    checks = {each["reason"]: each["section"] for each in json.loads(found.stdout)["checks"]}
    assert {checks["Unused"], checks["NoStatus"]} == {f"guest {ID} ({SHOP})"}


# Where only the name counts


def test_check_names_what_to_write_in_place_of_a_display_name(run: Callable[..., Any]) -> None:
    overrides = f'[{{name: berlin, clusters: [{SHOP}], values: {{a: "1"}}}}]'
    settings, bad = parse_settings({"kubevipChartValuesOverrides": overrides}, DEFAULTS)
    assert not bad
    found = build(
        range_spec={"allowedClusters": [SHOP, "unknown"]},
        installation=healthy_installation(settings=settings),
    )
    output = run("check", "--problems", found=found).stdout
    assert output.count("DisplayNameIgnored") == 2
    assert output.count(f'write "{ID}"') == 2


@pytest.mark.parametrize("is_set", [True, False])
def test_a_label_on_the_management_cluster_is_named_unless_the_other_one_has_it(
    run: Callable[..., Any], *, is_set: bool
) -> None:
    edge = build_cluster("edge1", "c-m-cccccccc", imported=True, opted_in=is_set)
    found = snapshot(
        clusters=[edge], management=[build_management("c-m-cccccccc", "edge1", **{"kube-vip": "true"})]
    )
    for command in (["status"], ["check", "--guest", "edge1"]):
        output = run(*command, found=found).stdout
        assert ("counts only on fleet-default/edge1" in output) is not is_set
    advice = "kubectl -n fleet-default label clusters.provisioning.cattle.io edge1 kube-vip=true"
    assert (advice in run("status", found=found).stdout) is not is_set


# What the operator found wrong with the links


def with_problem(*guests: str, **options: Any) -> Snapshot:
    problem = GuestProblem(reason="GuestUnresolved", message="The cause stands here.", guests=guests)
    lease = LeaderLease(holder="x", renewed=NOW, duration_seconds=15.0, problems=(problem,))
    return snapshot(
        clusters=[build_cluster("demo", "c-m-1", **options)],
        installation=healthy_installation(leadership=lease),
    )


@pytest.mark.parametrize("opted_in", [True, False])
@pytest.mark.parametrize("command", [["status"], ["check", "--guest", "demo"], ["who", "demo"]])
def test_why_a_guest_cluster_has_no_floating_ip_is_told_everywhere(
    run: Callable[..., Any], command: list[str], *, opted_in: bool
) -> None:
    result = run(*command, found=with_problem("c-m-1", opted_in=opted_in))
    assert "cause stands here" in result.stdout
    assert result.stdout.lower().count("cause stands here") == 1


@pytest.mark.parametrize("command", ["status", "check"])
def test_guest_clusters_for_whose_problems_the_lease_has_no_room_are_told_of(
    run: Callable[..., Any], command: str
) -> None:
    problem = GuestProblem(
        reason="GuestUnresolved", message="The cause stands here.", guests=("c-m-1",), more=460
    )
    lease = LeaderLease(holder="x", renewed=NOW, duration_seconds=15.0, problems=(problem,))
    found = snapshot(
        clusters=[build_cluster("demo", "c-m-1")], installation=healthy_installation(leadership=lease)
    )
    output = run(command, found=found).stdout
    assert "460 more guest clusters" in output
    assert "kubectl get events -A --field-selector reason=GuestUnresolved" in output
