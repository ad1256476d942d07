"""The pipelines of the forge: what they run is in the repository, and what they take from others is pinned."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PIPELINES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def read(pipeline: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(pipeline.read_text(encoding="utf-8"))
    return found


def steps(pipeline: Path) -> list[dict[str, Any]]:
    return [step for job in read(pipeline)["jobs"].values() for step in job["steps"]]


def test_there_is_one_for_changes_and_one_for_releases() -> None:
    assert [each.name for each in PIPELINES] == ["ci.yml", "release.yml"]


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda each: each.name)
def test_every_action_of_others_is_pinned_by_the_hash_of_a_commit(pipeline: Path) -> None:
    actions = [step["uses"] for step in steps(pipeline) if "uses" in step]
    assert actions
    for action in actions:
        assert re.fullmatch(r"actions/checkout@[0-9a-f]{40}", action), action


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda each: each.name)
def test_rights_are_read_only_unless_a_job_names_more_and_no_credential_stays_in_the_clone(
    pipeline: Path,
) -> None:
    assert read(pipeline)["permissions"] == {"contents": "read"}
    assert all(step["with"]["persist-credentials"] is False for step in steps(pipeline) if "uses" in step)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("ci.yml", "bash .ci/run"),
        ("release.yml", 'make release VERSION="${VERSION#v}" REGISTRY="${REGISTRY,,}"'),
    ],
)
def test_a_pipeline_runs_the_command_of_the_repository(name: str, command: str) -> None:
    commands = [step["run"].strip() for step in steps(ROOT / ".github" / "workflows" / name) if "run" in step]
    assert command in commands
    for target in re.findall(r"\bmake ([a-z-]+)", "\n".join(commands)):
        assert target in TARGETS


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda each: each.name)
def test_no_text_of_the_forge_becomes_a_part_of_a_command(pipeline: Path) -> None:
    """The name of a branch or a tag is anybody's: it comes by the environment."""
    assert not [step["run"] for step in steps(pipeline) if "${{" in step.get("run", "")]
