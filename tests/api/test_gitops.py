"""Ranges and floating IPs that another field manager applies again and again, as Flux, Fleet and Terraform do."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from localfleet.client import Json
from localfleet.errors import ApiError
from localfleet.simulated import SimulatedGuest
from localfleet.stack import RANGES, Stack, build_floating_ip, build_range
from localfleet.waiting import eventually
from tests.api.served_guest import bring_up, remove_range
from tests.api.tenant import Tenant

pytestmark = pytest.mark.xdist_group("default")

EXAMPLE = Path(__file__).parents[2] / "examples" / "gitops"
APPLIER = "gitops"
LABELS = {"kustomize.toolkit.fluxcd.io/name": "addresses"}
TIMES = 3


def owned_by(obj: Json, manager: str, *, subresource: str | None = None) -> set[str]:
    """The fields that a manager owns, each as a path such as `spec.ipaddress`."""
    found: set[str] = set()
    for entry in obj["metadata"]["managedFields"]:
        if entry["manager"] == manager and entry.get("subresource") == subresource:
            found |= set(_leaves(entry["fieldsV1"], ""))
    return found


def _leaves(fields: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, below in fields.items():
        if key != ".":
            path = f"{prefix}.{key.partition(':')[2]}".removeprefix(".")
            yield from _leaves(below, path) if below else [path]


async def apply(stack: Stack, path: str, body: Json, *, force: bool = False) -> Json:
    """Apply a manifest on the server; ApiError with reason Conflict where another manager owns a field of it."""
    return await stack.client.patch(path, body, kind="apply", field_manager=APPLIER, force=force)


async def apply_floating_ip(
    tenant: Tenant, name: str, pool: str, *, force: bool = False, **spec: Any
) -> Json:
    body = build_floating_ip(tenant.namespace, name, range_name=pool, **spec)
    body["metadata"]["labels"] = LABELS
    return await apply(tenant.stack, tenant.path(name), body, force=force)


async def is_quiet(tenant: Tenant, pool: str) -> None:
    """Wait until fipop has dealt with all that was written before: a floating IP that came later is served."""
    await tenant.ask("later", pool)
    await tenant.served("later")


WISHES: dict[str, dict[str, Any]] = {
    "chosen": {},
    "named": {"ipaddress": "{net}77"},
    "both chosen": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]},
    "both named, spelled otherwise": {
        "ipaddress": "{net6}ABC, {net}78",
        "ipFamilyPolicy": "RequireDualStack",
    },
    "with all fields": {
        "ipaddress": "{net}79",
        "ipFamilyPolicy": "SingleStack",
        "ipFamilies": ["IPv4"],
        "serviceNamespace": "web",
        "allowShare": True,
        "interface": "eth0",
    },
}


@pytest.mark.parametrize("wish", WISHES)
async def test_a_floating_ip_that_is_applied_again_and_again_stays_as_it_is(
    tenant: Tenant, wish: str
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24, {tenant.net6}/64")
    spec = WISHES[wish].copy()
    if "ipaddress" in spec:
        spec["ipaddress"] = spec["ipaddress"].format(net=tenant.net, net6=tenant.net6)
    await apply_floating_ip(tenant, "web", pool, **spec)
    addresses = await tenant.served("web")
    before = await tenant.read("web")
    for force in (False, True) * TIMES:
        applied = await apply_floating_ip(tenant, "web", pool, force=force, **spec)
        assert applied["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await is_quiet(tenant, pool)
    after = await tenant.read("web")
    assert after == before
    assert after["status"]["addresses"] == addresses
    assert after["metadata"]["labels"] == LABELS

    annotations = {f"metadata.annotations.{key}" for key in ("fiprange", "updateConfigMap")}
    labels = {f"metadata.labels.{key}" for key in LABELS}
    fields = {f"spec.{key}" for key in spec} or {"spec"}
    owned = owned_by(after, APPLIER)
    families = {path for path in owned if path.startswith("spec.ipFamilies")}
    assert owned - families == (annotations | labels | fields) - {"spec.ipFamilies"}
    assert owned_by(after, "fipop") == (set() if "ipaddress" in spec else {"spec.ipaddress"})
    assert {path.split(".")[0] for path in owned_by(after, "fipop", subresource="status")} == {"status"}


async def test_a_range_that_is_applied_again_and_again_stays_as_it_is_and_takes_changes(
    tenant: Tenant,
) -> None:
    name = f"pool-{tenant.number}"
    body = build_range(
        name,
        f"{tenant.net}0/24",
        harvester="nowhere",
        network="vlan10",
        exclude=[f"{tenant.net}1-{tenant.net}9"],
    )
    body["metadata"]["labels"] = LABELS
    await apply(tenant.stack, f"{RANGES}/{name}", body)
    await tenant.ask("web", name)
    assert await tenant.served("web") == [f"{tenant.net}10"]
    await tenant.capacity(name, used=1)
    before = await tenant.range(name)
    for force in (False, True) * TIMES:
        assert await apply(tenant.stack, f"{RANGES}/{name}", body, force=force) == before
    assert owned_by(before, "fipop") == set()
    assert {path.split(".")[0] for path in owned_by(before, "fipop", subresource="status")} == {"status"}

    body["spec"]["exclude"] = [f"{tenant.net}1-{tenant.net}99"]
    await apply(tenant.stack, f"{RANGES}/{name}", body)
    await tenant.capacity(name, total=155, used=0, outOfRange=1)
    assert await tenant.served("web") == [f"{tenant.net}10"], "a smaller range renumbers nobody"


async def test_a_named_address_that_leaves_the_manifest_is_kept(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await apply_floating_ip(tenant, "web", pool, ipaddress=f"{tenant.net}77")
    await tenant.served("web")
    applied = await apply_floating_ip(tenant, "web", pool)
    assert applied["spec"] == {}, "the API server takes out what its only owner leaves out"
    await is_quiet(tenant, pool)
    assert await tenant.served("web") == [f"{tenant.net}77"]
    before = await tenant.read("web")
    for force in (False, True) * TIMES:
        await apply_floating_ip(tenant, "web", pool, force=force)
    assert await tenant.read("web") == before
    assert before["spec"] == {}


async def test_another_address_in_the_manifest_needs_force_once_where_fipop_chose_the_former(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await apply_floating_ip(tenant, "web", pool)
    held = await tenant.served("web")
    with pytest.raises(ApiError, match=r'conflict with "fipop".*\.spec\.ipaddress') as conflict:
        await apply_floating_ip(tenant, "web", pool, ipaddress=f"{tenant.net}77")
    assert conflict.value.reason == "Conflict"
    assert await tenant.served("web") == held
    await apply_floating_ip(tenant, "web", pool, force=True, ipaddress=f"{tenant.net}77")
    assert await tenant.served("web") == [f"{tenant.net}77"]
    for address in ("78", "79"):
        await apply_floating_ip(tenant, "web", pool, ipaddress=f"{tenant.net}{address}")
        assert await tenant.served("web") == [f"{tenant.net}{address}"]
    assert owned_by(await tenant.read("web"), "fipop") == set()


async def test_a_manifest_that_replaces_the_spec_costs_no_address(tenant: Tenant) -> None:
    """As `kubectl replace` does, and Argo CD with Replace=true."""
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool)
    held = await tenant.served("web")

    async def is_replaced() -> bool:
        await tenant.stack.client.replace(tenant.path("web"), {**await tenant.read("web"), "spec": {}})
        return True

    for _ in range(TIMES):
        await eventually(is_replaced)
    await is_quiet(tenant, pool)
    assert await tenant.served("web") == held
    assert (await tenant.read("web"))["spec"] == {}


async def test_a_manifest_that_is_applied_on_the_client_changes_nothing_either(tenant: Tenant) -> None:
    """As Argo CD does without ServerSideApply=true, and `kubectl apply`."""
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    body = json.dumps(build_floating_ip(tenant.namespace, "web", range_name=pool))
    await tenant.stack.plane.kubectl("apply", "-f", "-", stdin=body)
    await tenant.served("web")
    before = await tenant.read("web")
    for _ in range(TIMES):
        assert "unchanged" in await tenant.stack.plane.kubectl("apply", "-f", "-", stdin=body)
    await is_quiet(tenant, pool)
    assert await tenant.read("web") == before


async def test_the_example_gives_what_the_page_says_and_stays_as_it_is(stack: Stack) -> None:
    tenant = Tenant(stack=stack, number=0, namespace="c-m-yt15ew7h")
    await stack.plane.create_namespace(tenant.namespace)

    async def apply_example(*arguments: str) -> str:
        return await stack.plane.kubectl(
            "apply", "--server-side", f"--field-manager={APPLIER}", "-k", str(EXAMPLE), *arguments
        )

    await apply_example()
    assert await tenant.served("shop-ingress") == ["10.135.30.10"]
    assert await tenant.served("shop-payments") == ["10.135.30.200"]
    await tenant.capacity("gitops-vlan", used=2)
    paths = [f"{RANGES}/gitops-vlan", tenant.path("shop-ingress"), tenant.path("shop-payments")]
    before = [await stack.client.get(path) for path in paths]
    for _ in range(TIMES):
        await apply_example()
        await apply_example("--force-conflicts")
    await is_quiet(tenant, "gitops-vlan")
    await tenant.delete("later")
    await tenant.capacity("gitops-vlan", used=2, quarantined=1)
    after = [await stack.client.get(path) for path in paths]
    assert after[1:] == before[1:]
    assert after[0]["spec"] == before[0]["spec"]
    assert owned_by(after[1], "fipop") == {"spec.ipaddress"}
    for name in ("shop-ingress", "shop-payments"):
        await tenant.delete(name)
    await remove_range(stack, "gitops-vlan")


async def test_the_floating_ip_of_a_new_guest_is_taken_into_a_manifest_and_keeps_its_address(
    stack: Stack, numbers: Iterator[int]
) -> None:
    number = next(numbers)
    net = f"10.{number // 256}.{number % 256}."
    pool = f"gitops-{number}"
    harvester = await stack.player.create_harvester(f"harvester-{number}")
    await stack.client.create(
        RANGES, build_range(pool, f"{net}192/26", harvester=harvester.display_name, network="vlan10")
    )
    async with bring_up(
        stack, SimulatedGuest(), stack.player.plan_guest(f"taken-{number}", harvester=harvester)
    ) as guest:
        made = await guest.has_condition("Ready")
        name = made["metadata"]["name"]
        body = build_floating_ip(guest.id, name, cluster=guest.name, range_name=pool)
        await apply(stack, guest.path(), body)
        body["metadata"]["annotations"]["updateConfigMap"] = "false"
        with pytest.raises(ApiError, match=r'conflict with "fipop".*updateConfigMap'):
            await apply(stack, guest.path(), body)
        await apply(stack, guest.path(), body, force=True)
        await guest.has_condition("Ready")
        before = await guest.floating_ip()
        for force in (False, True) * TIMES:
            await apply(stack, guest.path(), body, force=force)
        await guest.ask("later", pool, cluster=guest.name)
        await guest.has_condition("Ready", name="later")
        assert await guest.floating_ip() == before
        assert before["spec"] == made["spec"] == {"ipaddress": f"{net}193"}
    await remove_range(stack, pool)
