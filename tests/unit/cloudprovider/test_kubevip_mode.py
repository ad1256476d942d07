"""kube-vip-cloud-provider's place: the ConfigMap is read before anybody is served, and a term begins anew each time."""

import itertools
from random import Random
from typing import Any

import pytest

from fipop.cloudprovider.kubevip_mode import KubevipMode
from fipop.cloudprovider.ledger import NAME as LEDGER_NAME
from fipop.cloudprovider.options import KubevipOptions
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.service_cache import ServiceCache
from fipop.metrics.services import ServiceMetrics, ServiceSnapshot
from tests.harness.answering_client import AnsweringClient
from tests.harness.recorded_events import RecordedEvents

OPTIONS = KubevipOptions(namespace="kube-system", config_map="kubevip", class_name="mine")


class Term:
    """Takes down what a term is told."""

    told: list[object]

    def __init__(self, *, class_name: str | None, **_: object) -> None:
        assert class_name == "mine"
        type(self).told = []

    async def run(self, keys: PoolKeys) -> None:
        self.told.append(keys.pool_of("shop"))
        await cluster.mode.load()
        cluster.mode._ledger_changed(None)
        assert cluster.mode.snapshot() is not None
        raise RuntimeError("the term ends")

    def take_keys(self, _keys: PoolKeys) -> None:
        self.told.append("keys")

    def take_ledger(self, _ledger: object) -> None:
        self.told.append("ledger")

    def snapshot(self) -> ServiceSnapshot:
        return ServiceSnapshot(leading=True)


class Cluster:
    """A guest cluster whose ConfigMap a test writes, and the provider there."""

    def __init__(self) -> None:
        self.object: Any = None
        self.created: list[dict[str, Any]] = []
        self.events = RecordedEvents()
        client = AnsweringClient(get=self.read, create=self.create)
        self.mode = KubevipMode(
            OPTIONS,
            client=client,
            services=ServiceCache(client),
            events=self.events,
            metrics=ServiceMetrics(lambda: ServiceSnapshot(leading=True), version="0"),
            writes_at_once=4,
            random=Random(1),
        )
        self._versions = itertools.count(1)

    def write(self, data: object) -> None:
        """Write the ConfigMap."""
        metadata = {"name": "kubevip", "namespace": "kube-system", "uid": "u"}
        self.object = {"metadata": metadata | {"resourceVersion": str(next(self._versions))}, "data": data}

    async def read(self, *_: object, **__: object) -> Any:
        return self.object

    async def create(self, _resource: object, body: dict[str, Any]) -> Any:
        self.created.append(body)
        self.write(body["data"])
        return self.object


cluster: Cluster


@pytest.fixture(autouse=True)
def _build(monkeypatch: pytest.MonkeyPatch) -> None:
    global cluster  # noqa: PLW0603 - the term of this module speaks to it
    monkeypatch.setattr("fipop.cloudprovider.kubevip_mode.ProviderTerm", Term)
    cluster = Cluster()


async def test_a_term_gets_the_keys_that_are_known_and_hears_of_changes_until_it_ends() -> None:
    cluster.write({"cidr-shop": "10.0.0.0/30"})
    await cluster.mode.load()
    cluster.write({})
    with pytest.raises(RuntimeError, match="the term ends"):
        await cluster.mode.work(None)
    pool, *told = Term.told
    assert getattr(pool, "key", "") == "cidr-shop"
    assert told == ["keys", "ledger"]


async def test_who_does_not_work_shows_nothing_and_needs_no_news() -> None:
    cluster.write({})
    await cluster.mode.load()
    cluster.mode._ledger_changed(None)
    assert cluster.mode.snapshot() is None
    assert set(cluster.mode.last_heard()) == {"kubevip", LEDGER_NAME}


async def test_a_config_map_that_is_missing_is_created_empty() -> None:
    await cluster.mode.load()
    assert [each["data"] for each in cluster.created] == [{}]
    assert cluster.mode.keys.pools() == PoolKeys({}).pools()


async def test_a_key_that_cannot_be_read_is_told_once_and_again_when_it_is_wrong_in_another_way() -> None:
    for _ in range(3):
        cluster.write({"cidr-shop": "nonsense"})
        await cluster.mode.load()
    assert [each.reason for each in cluster.events.all] == ["KeyInvalid"]
    assert "cidr-shop" in cluster.events.all[0].message
    cluster.write({"cidr-shop": "10.0.0.0/99"})
    await cluster.mode.load()
    assert len(cluster.events.all) == 2


async def test_data_of_any_shape_is_taken() -> None:
    cluster.write(["no", "mapping"])
    await cluster.mode.load()
    assert cluster.mode.keys.problems() == {}
