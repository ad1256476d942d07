"""The command line as a whole."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fipop.cli.cloud_provider import cloud_provider
from fipop.cli.main import _COMMANDS, main
from fipop.cli.operator import operator
from localfleet.rancher_objects import build_kubeconfig


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


FIPOP = Path(sys.executable).parent / "fipop"


def test_a_reader_that_has_seen_enough_ends_a_command_as_shells_expect() -> None:
    """As in `fipop status | head -1`."""
    process = subprocess.Popen(
        [FIPOP, "operator", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        said = process.stderr.read()
    assert (process.wait(), said) == (141, "")


def test_a_full_disk_ends_a_command_with_a_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [FIPOP, "operator", "--help"], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: ")
    assert "no space left" in ended.stderr
    assert ended.stderr.count("\n") == 1, "no traceback"


def test_ctrl_c_ends_a_command_as_shells_expect(tmp_path: Path) -> None:
    """A server that never answers is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server_url = f"https://127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "config").write_text(build_kubeconfig(server=server_url, token="t"))
        argv = [FIPOP, "status", "--kubeconfig", tmp_path / "config"]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        connection, _ = server.accept()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
        connection.close()
    assert (process.returncode, said) == (130, "")
