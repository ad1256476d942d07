"""Names that people and other programs rely on, and booleans as Go reads them in annotations."""

from pathlib import Path

import pytest

from fipop.api.names import GROUP, parse_go_bool
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS

CRDS = Path(__file__).parents[3] / "crds"


def test_the_crds_are_of_the_group_and_names_that_the_code_asks_for() -> None:
    for resource in (FLOATING_IPS, FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS):
        assert resource.group == GROUP
        wanted = f"name: {resource.plural}.{GROUP}"
        assert any(wanted in path.read_text() for path in CRDS.glob("*.yaml"))


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_what_go_takes_for_true(text: str) -> None:
    assert parse_go_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_what_go_takes_for_false(text: str) -> None:
    assert parse_go_bool(text) is False


@pytest.mark.parametrize("text", [None, "", "yes", "on", "tRue", " true"])
def test_what_is_no_boolean_to_go(text: str | None) -> None:
    assert parse_go_bool(text) is None
