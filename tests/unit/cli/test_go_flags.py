"""Flags as Go's programs read them."""

import click
import pytest
from click.testing import CliRunner

from fipop.cli.go_flags import GoDuration, GoInt, go_flag


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@go_flag("--elect", default=True)
@click.option("--pause", type=GoDuration(), default="2s")
@click.option("--name", default="none")
@click.option("-v", "--v", "verbosity", type=GoInt(), default=0)
@click.pass_context
def program(ctx: click.Context, /, *, elect: bool, pause: float, name: str, verbosity: int) -> None:
    click.echo(f"{elect} {pause:g} {name} {verbosity} {ctx.args}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "True 2 none 0 []"),
        (["--elect"], "True 2 none 0 []"),
        (["--elect=false", "--pause=1m30s", "--name=x"], "False 90 x 0 []"),
        (["--elect=f", "--name", "x", "-v=4"], "False 2 x 4 []"),
        (["-v4", "--elect", "--unknown=7", "--other"], "True 2 none 4 ['--unknown=7', '--other']"),
        (["-v", "2", "--v=3"], "True 2 none 3 []"),
    ],
)
def test_flags_are_read_as_go_does(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(program, arguments)
    assert result.output.strip() == said


@pytest.mark.parametrize("arguments", [["--elect=maybe"], ["--pause=soon"], ["-v=x"]])
def test_what_cannot_be_read_ends_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(program, arguments).exit_code == 2
