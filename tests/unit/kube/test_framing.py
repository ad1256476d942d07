"""Lines of a watch."""

import pytest

from fipop.errors import (
    ApiAnswerError,
)
from fipop.kube.client import KubeClient
from fipop.kube.limits import ReadLimits
from fipop.kube.resources import CONFIG_MAPS
from tests.unit.kube.servers import streaming


async def test_a_line_without_end_runs_into_the_cap(server):
    server.answer = streaming(*[b"x" * 65_536] * 20, hold=True)
    async with KubeClient(
        server.connection(), limits=ReadLimits(answer_bytes=100_000, list_bytes=100_000)
    ) as client:
        with pytest.raises(ApiAnswerError) as caught:
            [event async for event in client.watch(CONFIG_MAPS)]
    assert caught.value.reason == "TooLarge"
