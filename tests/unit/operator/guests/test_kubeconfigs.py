"""The kubeconfig that Rancher keeps of a guest: what is read, and why it cannot be."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from fipop.errors import ForbiddenError
from fipop.operator.guests.kubeconfigs import KubeconfigMissingError, NotConnectedError, read_kubeconfig
from tests.harness.answering_client import AnsweringClient
from tests.harness.guests import build_guest

GUEST = build_guest()


def client(answer: object) -> Any:
    async def get(_resource: object, name: str, *, namespace: str) -> object:
        assert (namespace, name) == ("fleet-default", "demo-kubeconfig")
        if isinstance(answer, Exception):
            raise answer
        return answer

    return AnsweringClient(get=get)


async def test_it_is_what_the_secret_holds() -> None:
    secret = {"data": {"value": base64.b64encode(b"apiVersion: v1").decode()}}
    assert await read_kubeconfig(client(secret), GUEST) == b"apiVersion: v1"


async def test_who_is_not_connected_is_not_asked_for() -> None:
    with pytest.raises(NotConnectedError):
        await read_kubeconfig(client(AssertionError("nobody is to ask")), replace(GUEST, connected=False))


@pytest.mark.parametrize(
    "answer",
    [None, ForbiddenError("get Secret", status=403), {"data": {"value": "%%%"}}],
    ids=["not there", "forbidden", "none"],
)
async def test_what_is_missing_is_told_with_the_name_of_the_secret(answer: object) -> None:
    with pytest.raises(KubeconfigMissingError, match="Secret fleet-default/demo-kubeconfig "):
        await read_kubeconfig(client(answer), GUEST)
