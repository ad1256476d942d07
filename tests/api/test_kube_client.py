"""The door against a real API server: what it answers, when it answers otherwise, and what it refuses."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fipop.errors import ApiError, ForbiddenError
from fipop.kube.client import KubeClient
from fipop.kube.config import configure_from_kubeconfig
from fipop.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    SECRETS,
    Resource,
)
from fipop.kube.server import HttpServer
from localfleet.controlplane import ControlPlane
from tests.harness.reaching import reach

pytestmark = pytest.mark.xdist_group("management")

NOT_INSTALLED = Resource(group="absent.test", version="v1", plural="things", kind="Thing", namespaced=False)


@pytest_asyncio.fixture
async def kube(management: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient(HttpServer(await configure_from_kubeconfig(management.admin_kubeconfig))) as client:
        yield client


def config_map(namespace: str, name: str = "one", **data: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


async def test_a_resource_that_is_not_installed_is_an_error_and_not_an_absence(kube):
    for call in (
        kube.get(NOT_INSTALLED, "x"),
        kube.list(NOT_INSTALLED),
        kube.delete(NOT_INSTALLED, "x"),
        kube.create(NOT_INSTALLED, {"metadata": {"name": "x"}}),
    ):
        with pytest.raises(ApiError) as caught:
            await call
        assert (type(caught.value), caught.value.status) == (ApiError, 404)


async def test_metadata_only_brings_no_secret_over_the_wire(kube, namespace):
    secret = {
        "metadata": {"name": "s", "namespace": namespace, "labels": {"k": "v"}},
        "stringData": {"p": "w"},
    }
    await kube.create(SECRETS, secret)
    one = await kube.get(SECRETS, "s", namespace=namespace, metadata_only=True)
    listing = await kube.list(SECRETS, namespace=namespace, metadata_only=True, label_selector="k=v")
    assert one is not None
    assert len(listing.items) == 1
    for item in (one, *listing.items):
        assert item["metadata"]["labels"] == {"k": "v"}
        assert "data" not in item
    assert (await kube.get(SECRETS, "s", namespace=namespace))["data"] == {"p": "dw=="}


async def test_a_list_is_complete_whatever_the_size_of_its_pages(kube, management, namespace):
    configuration = await configure_from_kubeconfig(management.admin_kubeconfig)
    await asyncio.gather(*(kube.create(CONFIG_MAPS, config_map(namespace, f"m{n}")) for n in range(23)))
    for page_size in (1, 7, 500):
        async with KubeClient(HttpServer(configuration), page_items=page_size) as client:
            listing = await client.list(CONFIG_MAPS, namespace=namespace)
        names = {item["metadata"]["name"] for item in listing.items}
        assert {f"m{n}" for n in range(23)} <= names
        assert len(names) == len(listing.items)
        newest = max(int(item["metadata"]["resourceVersion"]) for item in listing.items)
        assert listing.resource_version >= newest
    async with KubeClient(HttpServer(configuration), page_items=5) as client:
        metadata = await client.list(CONFIG_MAPS, namespace=namespace, metadata_only=True)
    assert len(metadata.items) == len(listing.items)


@pytest.mark.slow
async def test_a_version_that_was_compacted_is_gone(kube, management, namespace):
    await kube.create(CONFIG_MAPS, config_map(namespace))
    # The API server keeps a window of its own beside the store: only after a restart does it know of no older one.
    await management.stop_api()
    await management.start_api()
    with pytest.raises(ApiError) as caught:
        [event async for event in kube.watch(CONFIG_MAPS, resource_version=1, timeout_seconds=2)]
    assert caught.value.status == 410


async def test_an_unknown_token_is_unauthorized_and_one_without_rights_forbidden(kube, management, namespace):
    ca_pem = management.ca_pem.decode()
    async with KubeClient(reach(management.url, ca_pem=ca_pem, token="wrong")) as stranger:
        with pytest.raises(ApiError) as caught:
            await stranger.get(CONFIG_MAPS, "one", namespace=namespace)
    assert caught.value.status == 401
    token = await management.token_for(namespace, "default")
    async with KubeClient(reach(management.url, ca_pem=ca_pem, token=token)) as powerless:
        with pytest.raises(ForbiddenError) as caught:
            await powerless.list(CUSTOM_RESOURCE_DEFINITIONS)
        assert type(caught.value) is ForbiddenError
