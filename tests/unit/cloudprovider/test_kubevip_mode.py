"""kube-vip-cloud-provider's place: the ConfigMap is read before anybody is served, and a term begins anew each time."""

from typing import Any

import pytest

from fipop.cloudprovider.kubevip_mode import KubevipMode
from fipop.cloudprovider.ledger import NAME as LEDGER_NAME
from fipop.cloudprovider.options import KubevipOptions
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.service_cache import ServiceCache
from fipop.cloudprovider.term import ProviderEstate
from fipop.metrics.services import ServiceMetrics, ServiceSnapshot
from tests.harness.answering_client import AnsweringClient
from tests.harness.recorded_events import RecordedEvents

OPTIONS = KubevipOptions(namespace="kube-system", config_map="kubevip", class_name="mine")


class Term:
    """Takes down what a term is told."""

    told: list[object]

    def __init__(self, estate: ProviderEstate, **_: object) -> None:
        assert estate.class_name == "mine"
        type(self).told = []

    async def run(self, keys: PoolKeys) -> None:
        self.told.append(keys.pool_of("shop"))
        mode._keys_changed(PoolKeys({}))
        mode._ledger_changed(None)
        assert mode.snapshot() is not None
        raise RuntimeError("the term ends")

    def take_keys(self, _keys: PoolKeys) -> None:
        self.told.append("keys")

    def take_ledger(self, _ledger: object) -> None:
        self.told.append("ledger")

    def snapshot(self) -> ServiceSnapshot:
        return ServiceSnapshot(leading=True)


mode: KubevipMode


@pytest.fixture(autouse=True)
def _build(monkeypatch: pytest.MonkeyPatch) -> None:
    global mode  # noqa: PLW0603 - the term of this module speaks to it
    monkeypatch.setattr("fipop.cloudprovider.kubevip_mode.ProviderTerm", Term)

    async def get(*_: object, **__: object) -> Any:
        metadata = {"name": "kubevip", "namespace": "kube-system", "uid": "u", "resourceVersion": "1"}
        return {"metadata": metadata, "data": {"cidr-shop": "10.0.0.0/30"}}

    client = AnsweringClient(get=get)
    mode = KubevipMode(
        OPTIONS,
        client=client,
        services=ServiceCache(client),
        events=RecordedEvents(),
        metrics=ServiceMetrics(lambda: ServiceSnapshot(leading=True), version="0"),
        writes_at_once=4,
    )


async def test_a_term_gets_the_keys_that_are_known_and_hears_of_changes_until_it_ends() -> None:
    await mode.load()
    with pytest.raises(RuntimeError, match="the term ends"):
        await mode.work(None)
    pool, *told = Term.told
    assert getattr(pool, "key", "") == "cidr-shop"
    assert told == ["keys", "ledger"]


def test_who_does_not_work_shows_nothing_and_needs_no_news() -> None:
    mode._keys_changed(PoolKeys({}))
    mode._ledger_changed(None)
    assert mode.snapshot() is None
    assert set(mode.last_heard()) == {"kubevip", LEDGER_NAME}
