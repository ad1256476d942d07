"""Why the kubeconfig that Rancher keeps of a guest cluster cannot be had."""

from typing import Any

import pytest

from fipop.errors import ForbiddenError
from fipop.guests.access import KubeconfigMissingError, read_access
from tests.harness.answering_client import AnsweringClient
from tests.harness.guests import build_guest


def client(answer: object) -> Any:
    async def get(_resource: object, name: str, *, namespace: str) -> object:
        assert (namespace, name) == ("fleet-default", "demo-kubeconfig")
        if isinstance(answer, Exception):
            raise answer
        return answer

    return AnsweringClient(get=get)


@pytest.mark.parametrize(
    "answer",
    [None, ForbiddenError("get Secret", status=403), {"data": {"value": "%%%"}}],
    ids=["not there", "forbidden", "none"],
)
async def test_what_is_missing_is_told_with_the_name_of_the_secret(answer: object) -> None:
    with pytest.raises(KubeconfigMissingError, match="Secret fleet-default/demo-kubeconfig "):
        await read_access(client(answer), build_guest())
