"""The command line of fipop."""

from __future__ import annotations

import errno
import importlib
import importlib.metadata
import io
import os
import signal
import sys
from typing import Any

import click

_COMMANDS = {
    "operator": "fipop.cli.operator",
    "cloud-provider": "fipop.cli.cloud_provider",
    "status": "fipop.cli.status",
    "who": "fipop.cli.who",
    "free": "fipop.cli.who",
    "check": "fipop.cli.check",
    "adopt": "fipop.cli.adopt",
    "web": "fipop.cli.web",
    "values": "fipop.cli.values",
    "rollout": "fipop.cli.rollout",
}


class LazyGroup(click.Group):
    """Imports a command when it is asked for: a role in a guest has no room for what the other one needs."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return the command of a name; None if there is none, for which click suggests another one."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name])
        command: Any = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; kubectl takes options before the command, so many users write them there."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ctx.fail(
                f"{error.format_message()} Write options after the command, such as fipop status --context."
            )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe (`| head`) and ctrl-C end it with the exit codes that shells expect.

        If the disk is full, it ends with an error message.
        """
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal that is not UTF-8 gets "?" for a character that it does not have.
            sys.stdout.reconfigure(errors="replace")
        ctx.color = False if os.environ.get("NO_COLOR") else None
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno not in {errno.EPIPE, errno.ENOSPC}:
                raise
            # Python flushes the stream once more when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if error.errno == errno.EPIPE:
                sys.exit(128 + signal.SIGPIPE)
            sys.exit("Error: could not write the output: no space left on device.")
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)


@click.group(
    cls=LazyGroup,
    commands=dict.fromkeys(_COMMANDS),  # the names alone
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(importlib.metadata.version("fipop"), prog_name="fipop")
def main() -> None:
    """Floating IP addresses for the guest clusters of a Rancher fleet, and for the Services in them."""
