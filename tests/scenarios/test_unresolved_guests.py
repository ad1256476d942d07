"""What a floating IP asks for is neither refused nor given to others before its guest cluster is known."""

import asyncio
from typing import Any

from fipop.errors import ApiServerError
from fipop.kube.resources import FLOATING_IPS, HARVESTER_CONFIGS, Resource
from tests.harness.memory import Json, Memory
from tests.harness.small_operator import PromptClient, SmallOperator, leading
from tests.harness.virtual_time import in_virtual_time

A, B = "c-m-a", "c-m-b"
X, Y = "10.0.0.10", "10.0.0.11"
SCAN_SECONDS = 70.0
"""Longer than new addresses wait for guest clusters that do not answer."""


class FailingConfigs(PromptClient):
    """An API server that cannot read the HarvesterConfig of guest cluster A as long as `is_failing`."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.is_failing = True

    async def get(self, resource: Resource, name: str, **where: Any) -> Json | None:
        if self.is_failing and (resource, name) == (HARVESTER_CONFIGS, f"nodes-{A}"):
            raise ApiServerError(verb="get", kind=resource.kind, name=name, status=500)
        return await super().get(resource, name, **where)


@in_virtual_time
async def test_an_address_that_a_spec_names_stays_free_for_it_until_its_guest_cluster_is_known() -> None:
    """It was refused at a start, because no guest cluster was known yet, and went to the next that asked."""
    operator = SmallOperator(client=FailingConfigs)
    assert isinstance(operator.client, FailingConfigs)
    operator.add_range(harvester="north", maxPerGuest=3)
    for guest_id in (A, B):
        operator.add_guest(guest_id)
        operator.put_on_harvester(guest_id, "north")
    operator.ask(A, X)
    async with leading(operator):
        await asyncio.sleep(SCAN_SECONDS)
        await operator.settle()
        operator.ask(B)
        await operator.settle()
        assert operator.held() == {f"default.{Y}": B}
        assert "status" not in operator.memory.objects[FLOATING_IPS.plural, A, "web"]
        operator.client.is_failing = False
        await operator.pass_time(60)
    assert operator.held() == {f"default.{X}": A, f"default.{Y}": B}
