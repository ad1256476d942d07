"""A room is run with its unit tests and the scenarios that drive it."""

from pathlib import Path

import pytest

from scripts.rooms import ROOT, SCENARIOS, UnknownRoomError, main, paths_of, room_names

SIMULATION = "tests/scenarios/simulation/test_simulation.py"
ROLLOUTS = "tests/scenarios/test_rollouts.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for path in (
        "tests/unit/ipam/test_pool.py",
        "tests/unit/operator/test_app.py",
        "tests/unit/operator/addresses/test_next_step.py",
        "tests/unit/operator/rollout/test_plan.py",
        "tests/scenarios/test_waiting.py",
        ROLLOUTS,
        SIMULATION,
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("room", "paths"),
    [
        (
            "operator/addresses",
            ("tests/unit/operator/addresses", SIMULATION, "tests/scenarios/test_waiting.py"),
        ),
        ("operator/rollout", ("tests/unit/operator/rollout", ROLLOUTS)),
        ("operator", ("tests/unit/operator", SIMULATION, ROLLOUTS, "tests/scenarios/test_waiting.py")),
        ("fipop/ipam/", ("tests/unit/ipam", SIMULATION, "tests/scenarios/test_waiting.py")),
    ],
)
def test_a_room_has_its_unit_tests_and_its_scenarios(
    checkout: Path, room: str, paths: tuple[str, ...]
) -> None:
    assert paths_of(room, checkout) == paths


def test_mutants_go_without_long_scenarios(checkout: Path) -> None:
    assert SIMULATION not in paths_of("operator/addresses", checkout, with_long=False)


@pytest.mark.parametrize("room", ["operator/nothing", "oper", "", "..", "tests"])
def test_an_unknown_room_is_refused_with_the_rooms_that_there_are(checkout: Path, room: str) -> None:
    with pytest.raises(
        UnknownRoomError, match=r"The rooms are ipam, operator, operator/addresses, operator/r"
    ):
        paths_of(room, checkout)


@pytest.mark.parametrize("arguments", [["nowhere"], [], ["-x"]])
def test_the_command_lists_the_rooms_and_fails_where_there_is_no_room(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "operator/addresses" in capsys.readouterr().out


def test_each_row_of_the_table_is_a_room_and_each_of_its_patterns_finds_a_file() -> None:
    assert SCENARIOS.keys() <= set(room_names())
    for room, scenarios in SCENARIOS.items():
        for pattern in (*scenarios.files, *scenarios.besides, *scenarios.long):
            assert list(ROOT.glob(pattern)), f"{room}: {pattern}"


def test_each_scenario_belongs_to_a_room() -> None:
    in_rooms = {path for room in SCENARIOS for path in paths_of(room)}
    existing = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/scenarios").rglob("test_*.py")}
    assert existing <= in_rooms
