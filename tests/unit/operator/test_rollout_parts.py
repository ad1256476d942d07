"""What a rollout asks of the rest of the operator."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from fipop.operator.rollout_parts import RolloutParts

from fipop.operator.rollout.plan import Notice
from fipop.settings.options import DEFAULTS
from fipop.settings.values import GuestInstall
from tests.harness.rollout_world import guest_of

A, B = (replace(guest_of(name), opted_in=name == "a") for name in ("a", "b"))


class World:
    def __init__(
        self, monkeypatch: Any, *, install: GuestInstall = GuestInstall.ENABLED, paused: bool = False
    ) -> None:
        served = SimpleNamespace(paused=paused)
        monkeypatch.setattr(
            "fipop.operator.rollout_parts.served_floating_ips", lambda _cache, _guest: [served]
        )
        self.passes: list[tuple[str, bool]] = []
        self.told: list[tuple[str, str, bool]] = []
        configuration = SimpleNamespace(
            settings=replace(DEFAULTS, kubevip_guest_install=install),
            annotations={"rollout": "retry"},
            tell=lambda reason, message, *, is_warning: self.told.append((reason, message, is_warning)),
            complain=lambda reason, message: self.told.append((reason, message, True)),
        )
        self.parts = RolloutParts(
            cache=cast("Any", None),
            guests=cast("Any", SimpleNamespace(all=lambda: (A, B))),
            router=cast(
                "Any",
                SimpleNamespace(
                    add_pass=lambda guest: self.passes.append((guest, True)),
                    add_routine_pass=lambda guest: self.passes.append((guest, False)),
                ),
            ),
            configuration=cast("Any", configuration),
        )


def test_the_fleet_is_who_gets_releases_and_has_an_address(monkeypatch: Any) -> None:
    assert set(World(monkeypatch).parts.fleet()) == {"a", "b"}
    assert set(World(monkeypatch, install=GuestInstall.CLUSTER_LABEL).parts.fleet()) == {"a"}
    assert World(monkeypatch, install=GuestInstall.DISABLED).parts.fleet() == {}
    assert World(monkeypatch, paused=True).parts.fleet() == {}


def test_who_goes_back_is_looked_at_before_others(monkeypatch: Any) -> None:
    world = World(monkeypatch)
    world.parts.wake("a", urgent=True)
    world.parts.wake("b", urgent=False)
    assert world.passes == [("a", True), ("b", False)]


def test_people_are_told_where_the_options_are(monkeypatch: Any) -> None:
    world = World(monkeypatch)
    world.parts.tell(Notice(reason="WaveStarted", message="wave 1"))
    world.parts.complain("no such step")
    assert world.told == [("WaveStarted", "wave 1", False), ("BadOption", "no such step", True)]
    assert (world.parts.annotation("rollout"), world.parts.annotation("none")) == ("retry", "")
