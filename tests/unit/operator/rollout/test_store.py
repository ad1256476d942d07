"""Where rollouts are kept: written at the version that was read, targets in ConfigMaps of their own."""

from typing import Any

import pytest

from fipop.errors import ApiAlreadyExistsError, ApiConflictError
from fipop.guest.helm.charts import ChartIdentity, Role
from fipop.guest.helm.targets import build_target
from fipop.kube.client import Listing
from fipop.operator.rollout.progress import Phase, RolloutState
from fipop.operator.rollout.store import RolloutStore
from fipop.settings.options import DEFAULTS

CHARTS = {role: ChartIdentity(name=role.value, version="1.0.0", content="c") for role in Role}
TARGET = build_target(DEFAULTS, CHARTS)
STATE = RolloutState(number=1, target=TARGET.name, stable="", phase=Phase.CANARY, started_at=5.0)


class ConfigMaps:
    """The ConfigMaps of one namespace."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.version = 0

    async def get(self, _resource: object, name: str, **_: object) -> Any:
        return self.objects.get(name)

    async def create(self, _resource: object, body: Any) -> Any:
        name = body["metadata"]["name"]
        if name in self.objects:
            raise ApiAlreadyExistsError(verb="create", kind="ConfigMap", name=name, status=409)
        return self._put(name, body)

    async def merge_patch(self, _resource: object, name: str, patch: Any, **_: object) -> Any:
        found = self.objects[name]
        if patch["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise ApiConflictError(verb="patch", kind="ConfigMap", name=name, status=409)
        return self._put(name, {**found, "data": patch["data"]})

    async def delete(self, _resource: object, name: str, **_: object) -> bool:
        return self.objects.pop(name, None) is not None

    async def list(self, _resource: object, *, label_selector: str, **_: object) -> Any:
        key, _, value = label_selector.partition("=")
        items = [
            one for one in self.objects.values() if (one["metadata"].get("labels") or {}).get(key) == value
        ]
        return Listing(items=tuple(items), resource_version=9)

    def _put(self, name: str, body: Any) -> Any:
        self.version += 1
        self.objects[name] = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return self.objects[name]


def store(maps: ConfigMaps) -> RolloutStore:
    return RolloutStore(client=maps, namespace="kube-fip")


async def test_what_one_leader_wrote_the_next_one_reads() -> None:
    maps = ConfigMaps()
    first = store(maps)
    assert await first.load() is None
    await first.save(STATE)
    await first.save(STATE)
    assert await store(maps).load() == STATE


async def test_who_read_an_older_version_does_not_write() -> None:
    maps = ConfigMaps()
    first = store(maps)
    await first.save(STATE)
    second = store(maps)
    await second.load()
    await first.save(STATE)
    with pytest.raises(ApiConflictError):
        await second.save(STATE)


async def test_what_nobody_can_read_is_as_good_as_nothing_and_is_written_over() -> None:
    maps = ConfigMaps()
    await store(maps).save(STATE)
    maps.objects["fipop-rollout"]["data"] = {"rollout": "nonsense"}
    again = store(maps)
    assert await again.load() is None
    await again.save(STATE)
    assert await store(maps).load() == STATE


async def test_targets_are_kept_until_they_are_dropped_and_others_config_maps_are_none() -> None:
    maps = ConfigMaps()
    await maps.create(None, {"metadata": {"name": "kube-fip-config"}, "data": {}})
    kept = store(maps)
    await kept.save_target(TARGET)
    await kept.save_target(TARGET)
    assert await store(maps).load_targets() == {TARGET.name: TARGET}
    await kept.drop_target(TARGET.name)
    assert await kept.load_targets() == {}
