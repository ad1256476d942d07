"""The command line as a whole."""

import click
import pytest
from click.testing import CliRunner

from fipop.cli.cloud_provider import cloud_provider
from fipop.cli.main import _COMMANDS, main
from fipop.cli.operator import operator


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["operator", "--help"], ["--version"]])
def test_what_people_ask_to_know_is_answered_with_success(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="fipop")
    assert result.exit_code == 0
    assert "fipop" in result.stdout


def test_the_help_tells_every_command_in_a_whole_sentence() -> None:
    help_text = CliRunner().invoke(main, ["--help"], prog_name="fipop").stdout
    commands = help_text.partition("Commands:\n")[2].splitlines()
    assert {line.split()[0] for line in commands} == set(_COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)


@pytest.mark.parametrize("command", [operator, cloud_provider], ids=["operator", "cloud-provider"])
def test_the_help_of_a_command_tells_every_option(command: click.Command) -> None:
    help_text = CliRunner().invoke(main, [str(command.name), "--help"], prog_name="fipop").stdout
    for option in command.params:
        assert option.opts[0] in help_text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "fipop"),
        (["oprator"], "oprator"),
        (["operator", "--unknown"], "--unknown"),
        (["operator", "--health-port", "x"], "--health-port"),
        (["operator", "--health-port", "65536"], "65536"),
        (["operator", "--kubeconfig", "/none"], "--kubeconfig"),
        (["operator", "--crds", "/none"], "--crds"),
        (["operator", "--settings-defaults", __file__], "--settings-defaults"),
        (["operator", "--namespace", "Kube_Fip"], "--namespace"),
        (["operator", "--log-format", "xml"], "xml"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_says_what_is_wrong(arguments: list[str], named: str) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="fipop")
    assert result.exit_code == 2
    assert named in result.stderr
    assert "Traceback" not in result.output
