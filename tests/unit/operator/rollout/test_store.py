"""Where rollouts are kept: written at the version that was read, targets in two ConfigMaps of fixed names."""

from dataclasses import replace
from typing import Any

import pytest

from fipop.errors import ConflictError, NotFoundError
from fipop.guest.helm.charts import ChartIdentity, Role
from fipop.guest.helm.targets import build_target
from fipop.operator.rollout.progress import Phase, RolloutState
from fipop.operator.rollout.store import RolloutStore
from fipop.settings.options import DEFAULTS, parse_settings

CHARTS = {role: ChartIdentity(name=role.value, version="1.0.0", content="c") for role in Role}
TARGET, SECOND, THIRD = (
    build_target(parse_settings({"kubevipChartValues": f"tag: {tag}\n"}, DEFAULTS)[0], CHARTS)
    for tag in ("first", "second", "third")
)
STATE = RolloutState(number=1, target=TARGET.name, stable="", phase=Phase.CANARY, started_at=5.0)


class ConfigMaps:
    """The ConfigMaps of one namespace."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.version = 0

    async def get(self, _resource: object, name: str, **_: object) -> Any:
        return self.objects.get(name)

    async def create(self, _resource: object, body: Any, **_: object) -> Any:
        name = body["metadata"]["name"]
        if name in self.objects:
            raise ConflictError(f"create ConfigMap {name}", status=409, reason="AlreadyExists")
        return self._put(name, body)

    async def merge_patch(self, _resource: object, name: str, patch: Any, **_: object) -> Any:
        if name not in self.objects:
            raise NotFoundError(f"patch ConfigMap {name}", status=404)
        found = self.objects[name]
        if patch["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise ConflictError(f"patch ConfigMap {name}", status=409)
        return self._put(name, {**found, "data": patch["data"]})

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
    with pytest.raises(ConflictError):
        await second.save(STATE)


async def test_what_nobody_can_read_is_as_good_as_nothing_and_is_written_over() -> None:
    maps = ConfigMaps()
    await store(maps).save(STATE)
    maps.objects["fipop-rollout"]["data"] = {"rollout": "nonsense"}
    again = store(maps)
    assert await again.load() is None
    await again.save(STATE)
    assert await store(maps).load() == STATE


async def test_what_was_deleted_meanwhile_is_written_again() -> None:
    maps = ConfigMaps()
    kept = store(maps)
    await kept.save(STATE)
    await kept.save_target(TARGET)
    maps.objects.clear()
    await kept.save(STATE)
    await kept.save_target(TARGET)
    again = store(maps)
    assert (await again.load(), await again.load_targets()) == (STATE, {TARGET.name: TARGET})


async def test_targets_are_kept_until_they_are_dropped() -> None:
    maps = ConfigMaps()
    kept = store(maps)
    await kept.save_target(TARGET)
    await kept.save_target(TARGET)
    assert await store(maps).load_targets() == {TARGET.name: TARGET}
    await kept.drop_target(TARGET.name)
    assert await kept.load_targets() == {}
    await kept.save_target(SECOND)
    assert await store(maps).load_targets() == {SECOND.name: SECOND}


async def test_two_names_are_enough_for_all_targets_and_the_stable_one_is_never_written_over() -> None:
    maps = ConfigMaps()
    kept = store(maps)
    await kept.save_target(TARGET)
    await kept.save(replace(STATE, phase=Phase.COMPLETED, stable=TARGET.name))
    await kept.save_target(SECOND)
    assert await store(maps).load_targets() == {TARGET.name: TARGET, SECOND.name: SECOND}
    await kept.save(replace(STATE, target=SECOND.name, stable=TARGET.name))
    another = store(maps)
    await another.load_targets()
    await another.load()
    await another.save_target(THIRD)
    assert await store(maps).load_targets() == {TARGET.name: TARGET, THIRD.name: THIRD}
    assert set(maps.objects) == {"fipop-rollout", "fipop-target-1", "fipop-target-2"}


async def test_the_same_target_asked_for_in_other_words_is_kept_once() -> None:
    maps = ConfigMaps()
    kept = store(maps)
    await kept.save(replace(STATE, stable=TARGET.name))
    await kept.save_target(TARGET)
    other = replace(TARGET, asked="in other words")
    await kept.save_target(other)
    assert await store(maps).load_targets() == {TARGET.name: other}
    await kept.drop_target(TARGET.name)
    assert await store(maps).load_targets() == {}


async def test_who_read_an_older_target_does_not_write_it() -> None:
    maps = ConfigMaps()
    first, second = store(maps), store(maps)
    await first.save_target(TARGET)
    await second.load_targets()
    await first.save_target(SECOND)
    await first.drop_target(TARGET.name)
    with pytest.raises(ConflictError):
        await second.save_target(replace(TARGET, asked="in other words"))
