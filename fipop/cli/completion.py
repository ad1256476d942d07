"""`fipop completion`: what a shell needs to complete fipop's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PROGRAMS = ("fipop", "kubectl-fip")


@click.command(
    short_help="Shell completion for bash, zsh or fish.",
    epilog="""\b
bash:  source <(fipop completion bash)
zsh:   source <(fipop completion zsh)
fish:  fipop completion fish | source
""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.option("--program", type=click.Choice(_PROGRAMS), default=_PROGRAMS[0], show_default=True)
@click.pass_context
def completion(context: click.Context, shell: str, program: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    click.echo(kind(context.find_root().command, {}, program, variable).source())
