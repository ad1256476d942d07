"""Reservations: the ledger that the API server itself keeps consistent."""

import copy
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.errors import ApiError
from tests.api.crd_constraints import PLACES, RESERVATION, TIME, crds, message_of

pytestmark = pytest.mark.xdist_group("management")


def reservation(**spec: Any) -> Json:
    """A reservation with these fields; None takes one out."""
    changed = copy.deepcopy(RESERVATION)
    changed["spec"] = {key: value for key, value in (changed["spec"] | spec).items() if value is not None}
    return changed


def rule(place: str, number: int) -> str:
    """What a rule of the schema says."""
    return message_of("FloatingIPReservation", place, number)


async def try_reservation(management: ControlPlane, obj: Json) -> Json:
    return await management.client.create(f"{PLACES['FloatingIPReservation']}?dryRun=All", obj)


async def assert_refused(management: ControlPlane, obj: Json, says: str) -> None:
    with pytest.raises(ApiError) as refused:
        await try_reservation(management, obj)
    assert refused.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert says in refused.value.message


@pytest.mark.parametrize("field", ["address", "space", "range", "owner", "requested", "since"])
async def test_a_reservation_is_whole_from_the_start(management: ControlPlane, field: str) -> None:
    await try_reservation(management, reservation())
    await assert_refused(management, reservation(**{field: None}), "Required")


async def test_a_reservation_without_a_spec_is_refused(management: ControlPlane) -> None:
    bare = {key: value for key, value in RESERVATION.items() if key != "spec"}
    await assert_refused(management, bare, "Required")


@pytest.mark.parametrize(
    ("name", "space", "address"),
    [
        ("default.10.0.0.1", "default", "10.0.0.1"),
        ("lab.255.255.255.255", "lab", "255.255.255.255"),
        ("default.20010db8000000000000000000000005", "default", "2001:0db8:0000:0000:0000:0000:0000:0005"),
    ],
)
async def test_its_name_is_its_space_and_address(
    management: ControlPlane, name: str, space: str, address: str
) -> None:
    obj = reservation(space=space, address=address)
    await try_reservation(management, obj | {"metadata": {"name": name}})
    for other in (
        "default.10.0.0.2",
        name + "0",
        "x" + name,
        name.replace(".", "-"),
        name.replace("5", "6") + "6",
    ):
        await assert_refused(management, obj | {"metadata": {"name": other}}, rule("", 0))


@pytest_asyncio.fixture
async def held(management: ControlPlane) -> AsyncIterator[str]:
    """The path of a reservation that is held by c-m-ngd5hs2r/demo-vip."""
    path = f"{PLACES['FloatingIPReservation']}/default.10.0.0.1"
    await management.client.create(PLACES["FloatingIPReservation"], RESERVATION)
    yield path
    await management.client.delete(path)


@pytest.mark.parametrize(
    "change",
    [
        {"owner": {"name": "other"}},
        {"owner": {"namespace": "other"}},
        {"owner": {"name": "other"}, "quarantinedUntil": TIME},
    ],
)
async def test_a_held_address_cannot_be_taken_over(management: ControlPlane, held: str, change: Json) -> None:
    with pytest.raises(ApiError) as refused:
        await management.client.patch(held, {"spec": change})
    assert refused.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert rule("spec", 0) in refused.value.message


@pytest.mark.parametrize(
    "change",
    [
        {"owner": {"uid": "created-again"}},
        {"owner": {"cluster": "renamed", "imported": True}},
        {"range": "other"},
        {"requested": "static"},
        {"quarantinedUntil": TIME},
    ],
    ids=str,
)
async def test_a_held_address_may_be_kept_or_released(
    management: ControlPlane, held: str, change: Json
) -> None:
    changed = await management.client.patch(held, {"spec": change})
    assert changed["spec"]["owner"]["name"] == "demo-vip"


async def test_a_released_address_may_go_to_anybody(management: ControlPlane, held: str) -> None:
    await management.client.patch(held, {"spec": {"quarantinedUntil": TIME}})
    past = {"namespace": "c-m-ngd5hs2r", "name": "demo-vip", "cluster": "demo", "releasedAt": TIME}
    owner = {"namespace": "c-m-4xk8q2vz", "name": "shop-vip", "uid": "2", "cluster": "shop"}
    swapped = await management.client.patch(
        held, {"spec": {"owner": owner, "quarantinedUntil": None, "history": [past]}}
    )
    assert swapped["spec"]["owner"] == owner
    assert "quarantinedUntil" not in swapped["spec"]
    assert swapped["spec"]["history"] == [past]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        pytest.param(
            {"address": "10.0.0.2"},
            "spec.address",
            id="change0-the address of a reservation never changes",
        ),
        pytest.param(
            {"space": "lab"}, "spec.space", id="change1-the address space of a reservation never changes"
        ),
    ],
)
@pytest.mark.parametrize("quarantined", [False, True])
async def test_its_address_and_space_never_change(
    management: ControlPlane, held: str, change: Json, place: str, quarantined: bool
) -> None:
    if quarantined:
        await management.client.patch(held, {"spec": {"quarantinedUntil": TIME}})
    with pytest.raises(ApiError) as refused:
        await management.client.patch(held, {"spec": change})
    assert refused.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert rule(place, 0) in refused.value.message


async def test_a_reservation_has_its_owner_from_its_first_revision_on(
    management: ControlPlane, held: str
) -> None:
    """Under a status subresource a create drops the status: hence all of it stands in the spec."""
    (version,) = crds()["FloatingIPReservation"]["spec"]["versions"]
    assert "subresources" not in version
    assert (await management.client.get(held))["spec"] == RESERVATION["spec"]
