"""The command line of fipop."""

from __future__ import annotations

import importlib.metadata

import click

from fipop.cli.operator import operator


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(importlib.metadata.version("fipop"), prog_name="fipop")
def main() -> None:
    """Floating IP addresses for the guest clusters of a Rancher fleet."""


main.add_command(operator)
