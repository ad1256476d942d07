"""What the cloud provider reads (docs/reference/cloud-provider.md#keys-of-the-configmap), against a real API server."""

import pytest

from localfleet.waiting import eventually
from tests.api.services.shop import (
    KEYS,
    SERVED_SECONDS,
    Shop,
    condition,
)

pytestmark = pytest.mark.xdist_group("services")


async def test_a_named_pool_serves_the_namespaces_that_it_names(shop: Shop) -> None:
    keys = {"range-team": f"{shop.net}.5-{shop.net}.5", "namespaces-team": f"elsewhere, {shop.namespace}"}
    await shop.client.patch(KEYS, {"data": {**keys, "cidr-global": f"{shop.net}.100/32"}})
    await shop.open("web")
    await shop.has("web", f"{shop.net}.5")
    await shop.client.patch(KEYS, {"data": dict.fromkeys(keys)})


async def test_a_pool_that_grows_serves_who_waits_and_a_draining_one_gives_out_nothing_new(
    shop: Shop,
) -> None:
    await shop.offer(1)
    await shop.open("web")
    await shop.has("web", f"{shop.net}.1")
    await shop.open("more")
    await shop.waits("more", "PoolFull")
    await shop.set_keys(draining="true")
    await shop.offer(9)
    assert "draining" in await eventually(lambda: _message(shop, "more", "draining"))
    await shop.set_keys(draining=None)
    await shop.has("more", f"{shop.net}.2", seconds=SERVED_SECONDS)
    await shop.set_keys(exclude=f"{shop.net}.3-{shop.net}.4")
    await shop.open("third")
    await shop.has("third", f"{shop.net}.5")


async def _message(shop: Shop, name: str, words: str) -> str:
    message = str(condition(await shop.read(name))["message"])
    assert words in message
    return message


async def test_a_missing_config_map_is_created_when_a_service_asks(shop: Shop) -> None:
    await shop.client.delete(KEYS)
    await shop.open("web")
    await shop.waits("web", "NoPool")

    async def is_there() -> bool:
        found = await shop.client.find(KEYS)
        return found is not None and not found.get("data")

    await eventually(is_there)
    await shop.offer(1)
    await shop.has("web", f"{shop.net}.1", seconds=SERVED_SECONDS)


async def test_bad_keys_are_told_where_they_stand(shop: Shop) -> None:
    await shop.set_keys(allow_share="yes")

    async def is_told() -> bool:
        events = await shop.client.items("/api/v1/namespaces/kube-system/events")
        return any(each["reason"] == "KeyInvalid" and "true or false" in each["message"] for each in events)

    await eventually(is_told)
