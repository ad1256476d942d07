"""What the settings ask for, with the charts there are, and what was kept where those cannot be had."""

from dataclasses import replace

from fipop.guest.helm.targets import hash_asked
from fipop.operator.rollout.targets import Targets
from fipop.settings.options import DEFAULTS, Settings, parse_settings
from tests.harness.rollout_world import FakeCharts, FakeSessions, FakeStore


def build() -> tuple[Targets, FakeCharts]:
    sessions = FakeSessions()
    return Targets(store=FakeStore(), sessions=sessions), sessions.charts  # type: ignore[arg-type]


def asking(tag: str) -> Settings:
    return parse_settings({"kubevipChartValues": f"image: {{tag: {tag}}}\n"}, DEFAULTS)[0]


async def name_of(targets: Targets, settings: Settings, current: str = "") -> str:
    found = await targets.find(settings, current)
    assert found is not None
    return found.name


async def test_the_same_charts_and_values_are_the_same_target() -> None:
    targets, _ = build()
    first = await name_of(targets, DEFAULTS)
    assert await name_of(targets, DEFAULTS, first) == first
    assert await name_of(targets, asking("v9"), first) != first
    assert len(targets.known) == 2


async def test_a_newer_chart_is_no_other_target_while_the_options_ask_for_the_same() -> None:
    targets, sources = build()
    first = await name_of(targets, DEFAULTS)
    sources.newest = "2.0.0"
    assert await name_of(targets, DEFAULTS, first) == first
    assert await name_of(targets, asking("v9"), first) != first


async def test_the_same_charts_asked_for_in_other_words_are_the_same_target_that_remembers_those() -> None:
    targets, sources = build()
    first = await name_of(targets, DEFAULTS)
    pinned = replace(DEFAULTS, kubevip_chart_version="1.0.0", kubevip_cloud_provider_chart_version="1.0.0")
    assert await name_of(targets, pinned, first) == first
    assert targets.known[first].asked == hash_asked(pinned)
    sources.away = True
    assert await name_of(targets, pinned, first) == first


async def test_where_the_charts_cannot_be_had_what_was_kept_of_the_same_options_is_given() -> None:
    targets, sources = build()
    first = await name_of(targets, DEFAULTS)
    sources.away = True
    assert await name_of(targets, DEFAULTS, first) == first
    assert await name_of(targets, DEFAULTS) == first, "it is found by what was asked"
    assert await targets.find(asking("v9"), first) is None


async def test_a_target_is_applied_to_the_settings_in_force() -> None:
    targets, _ = build()
    name = await name_of(targets, asking("v9"))
    aim = targets.aim(name, DEFAULTS)
    assert aim is not None
    assert "v9" in aim.settings.kubevip_chart_values.text
    assert targets.aim(name, DEFAULTS) is aim
    moved = targets.aim(name, replace(DEFAULTS, kubevip_namespace="elsewhere"))
    assert moved is not None
    assert moved.settings.kubevip_namespace == "elsewhere"
    assert targets.aim("unknown", DEFAULTS) is None


async def test_only_what_is_still_needed_is_kept() -> None:
    targets, _ = build()
    first, second = await name_of(targets, DEFAULTS), await name_of(targets, asking("v9"))
    await targets.keep_only(second)
    assert set(targets.known) == {second}
    assert targets.aim(first, DEFAULTS) is None
    await targets.load()
    assert set(targets.known) == {second}
