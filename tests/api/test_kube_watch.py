"""The watch of one object against a real API server that goes away, ends watches and comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from fipop.kube.client import KubeClient, connection_from_kubeconfig
from fipop.kube.resources import CONFIG_MAPS
from fipop.kube.watch import ObjectWatch
from localfleet.controlplane import ControlPlane

pytestmark = pytest.mark.xdist_group("management")


@pytest_asyncio.fixture
async def kube(management: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient(connection_from_kubeconfig(management.admin_kubeconfig)) as client:
        yield client


def config_map(namespace: str, name: str, **data: str) -> dict:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


async def test_it_follows_one_object_through_its_lives_and_no_other(kube, namespace):
    watch = ObjectWatch(kube, CONFIG_MAPS, "one", namespace=namespace)
    assert watch.last_heard_at is None
    async with aclosing(watch.versions()) as versions, asyncio.timeout(60):
        assert await anext(versions) is None
        first_heard = watch.last_heard_at
        await kube.create(CONFIG_MAPS, config_map(namespace, "two", a="0"))
        await kube.create(CONFIG_MAPS, config_map(namespace, "one", a="1"))
        assert (await anext(versions))["data"] == {"a": "1"}
        await kube.merge_patch(CONFIG_MAPS, "one", {"data": {"a": "2"}}, namespace=namespace)
        assert (await anext(versions))["data"] == {"a": "2"}
        await kube.delete(CONFIG_MAPS, "one", namespace=namespace)
        assert await anext(versions) is None
        await kube.create(CONFIG_MAPS, config_map(namespace, "one", a="3"))
        assert (await anext(versions))["data"] == {"a": "3"}
    assert watch.last_heard_at > first_heard


async def test_rounds_that_show_nothing_new_yield_nothing_and_still_tell_of_life(kube, namespace):
    await kube.create(CONFIG_MAPS, config_map(namespace, "one", a="1"))
    watch = ObjectWatch(kube, CONFIG_MAPS, "one", namespace=namespace, server_timeout_seconds=1)
    async with aclosing(watch.versions()) as versions, asyncio.timeout(60):
        await anext(versions)
        first_heard = watch.last_heard_at
        following = asyncio.ensure_future(anext(versions))
        while watch.last_heard_at < first_heard + 2:
            assert not following.done()
            await asyncio.sleep(0.05)
        await kube.merge_patch(CONFIG_MAPS, "one", {"data": {"a": "2"}}, namespace=namespace)
        assert (await following)["data"] == {"a": "2"}


async def test_it_survives_an_outage_and_sees_what_changed_meanwhile(kube, management, namespace):
    await kube.create(CONFIG_MAPS, config_map(namespace, "one", a="1"))
    watch = ObjectWatch(
        kube,
        CONFIG_MAPS,
        "one",
        namespace=namespace,
        longest_backoff_seconds=1.0,
        server_timeout_seconds=5,
    )
    async with aclosing(watch.versions()) as versions, asyncio.timeout(180):
        assert (await anext(versions))["data"] == {"a": "1"}
        following = asyncio.ensure_future(anext(versions))
        await management.stop_api()
        await management.start_api()
        await kube.merge_patch(CONFIG_MAPS, "one", {"data": {"a": "2"}}, namespace=namespace)
        assert (await following)["data"] == {"a": "2"}
