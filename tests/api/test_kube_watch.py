"""A ConfigMap that is followed, against a real API server that goes away, ends watches and comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from fipop.kube.client import KubeClient
from fipop.kube.config import configure_from_kubeconfig
from fipop.kube.resources import CONFIG_MAPS
from fipop.kube.server import HttpServer
from fipop.runtime.configmap import ConfigMapFollower
from localfleet.controlplane import ControlPlane
from tests.harness.background import running

pytestmark = pytest.mark.xdist_group("management")


@pytest_asyncio.fixture
async def kube(management: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient(HttpServer(await configure_from_kubeconfig(management.admin_kubeconfig))) as client:
        yield client


def config_map(namespace: str, name: str, **data: str) -> dict:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


@asynccontextmanager
async def following(kube: KubeClient, namespace: str) -> AsyncIterator[asyncio.Queue]:
    versions: asyncio.Queue = asyncio.Queue()
    follower = ConfigMapFollower(client=kube, namespace=namespace, name="one", take=versions.put_nowait)
    async with running(follower.follow()):
        yield versions


async def test_it_follows_one_object_through_its_lives_and_no_other(kube, namespace):
    async with following(kube, namespace) as versions, asyncio.timeout(60):
        assert await versions.get() is None
        await kube.create(CONFIG_MAPS, config_map(namespace, "two", a="0"))
        await kube.create(CONFIG_MAPS, config_map(namespace, "one", a="1"))
        assert (await versions.get())["data"] == {"a": "1"}
        await kube.merge_patch(CONFIG_MAPS, "one", {"data": {"a": "2"}}, namespace=namespace)
        assert (await versions.get())["data"] == {"a": "2"}
        await kube.delete(CONFIG_MAPS, "one", namespace=namespace)
        assert await versions.get() is None
        await kube.create(CONFIG_MAPS, config_map(namespace, "one", a="3"))
        assert (await versions.get())["data"] == {"a": "3"}


async def test_it_survives_an_outage_and_sees_what_changed_meanwhile(kube, management, namespace):
    await kube.create(CONFIG_MAPS, config_map(namespace, "one", a="1"))
    async with following(kube, namespace) as versions, asyncio.timeout(180):
        assert (await versions.get())["data"] == {"a": "1"}
        await management.stop_api()
        await management.start_api()
        await kube.merge_patch(CONFIG_MAPS, "one", {"data": {"a": "2"}}, namespace=namespace)
        assert (await versions.get())["data"] == {"a": "2"}
