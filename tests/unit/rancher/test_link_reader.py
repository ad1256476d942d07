"""What links point at is read once for all guests, for a moment, and what is missing each time."""

import asyncio
from typing import Any

from fipop.kube.resources import SECRETS, Resource
from fipop.rancher.link_reader import LinkReader, Unreadable
from fipop.rancher.objects import ObjectRef
from tests.harness.virtual_time import in_virtual_time

REF = ObjectRef(namespace="cattle-global-data", name="cc-1")


class Api:
    def __init__(self) -> None:
        self.asked = 0
        self.found: dict[str, Any] | None = {"data": "harv1"}

    async def get(self, resource: Resource, name: str, *, namespace: str) -> dict[str, Any] | None:
        del resource, name, namespace
        self.asked += 1
        return self.found


@in_virtual_time
async def test_a_credential_is_read_once_for_all_its_guests_and_again_after_ten_seconds() -> None:
    api = Api()
    reader = LinkReader(api)
    for _ in range(50):
        assert await reader.read(SECRETS, REF, lambda found: found["data"]) == "harv1"
    assert api.asked == 1
    await asyncio.sleep(11.0)
    api.found = {"data": "harv2"}
    assert await reader.read(SECRETS, REF, lambda found: found["data"]) == "harv2"


async def test_what_is_missing_is_asked_for_each_time() -> None:
    api = Api()
    api.found = None
    reader = LinkReader(api)
    for _ in range(3):
        assert isinstance(await reader.read(SECRETS, REF, lambda found: found), Unreadable)
    assert api.asked == 3
