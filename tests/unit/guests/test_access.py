"""The kubeconfig that Rancher keeps of a guest: what is read, and why it cannot be."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from fipop.errors import ForbiddenError
from fipop.guests.access import KubeconfigMissingError, NotConnectedError, read_access
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
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://rancher.test/k8s/clusters/{GUEST.id}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    secret = {"data": {"value": base64.b64encode(json.dumps(document).encode()).decode()}}
    found = await read_access(client(secret), GUEST)
    assert (found.server, found.token) == (f"https://rancher.test/k8s/clusters/{GUEST.id}", "t")


async def test_who_is_not_connected_is_not_asked_for() -> None:
    with pytest.raises(NotConnectedError):
        await read_access(client(AssertionError("nobody is to ask")), replace(GUEST, connected=False))


@pytest.mark.parametrize(
    "answer",
    [None, ForbiddenError("get Secret", status=403), {"data": {"value": "%%%"}}],
    ids=["not there", "forbidden", "none"],
)
async def test_what_is_missing_is_told_with_the_name_of_the_secret(answer: object) -> None:
    with pytest.raises(KubeconfigMissingError, match="Secret fleet-default/demo-kubeconfig "):
        await read_access(client(answer), GUEST)
