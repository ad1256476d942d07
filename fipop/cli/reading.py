"""What reading commands share: the cluster they read, the rights they use, and the output."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import click
from kubernetes.aio.client.configuration import Configuration

from fipop.api import names
from fipop.cli.go_flags import GoDuration
from fipop.errors import ApiError, FipopError, UnavailableError
from fipop.kube.client import KubeClient
from fipop.kube.config import (
    DEFAULT_KUBECONFIG,
    SERVICE_ACCOUNT,
    configure_from_kubeconfig,
    configure_in_cluster,
)
from fipop.kube.server import HttpServer
from fipop.report.reading import read_snapshot
from fipop.report.rendering import Output, dump, table, to_csv
from fipop.report.snapshot import ClusterSnapshot, Unread
from fipop.texts import clean, sentence

POLL_SECONDS = 2.0
"""Between two checks while a command waits."""
P = ParamSpec("P")
T = TypeVar("T")

EXIT_WRONG = 1
EXIT_NO_ACCESS = 3
EXIT_INCOMPLETE = 4
EXIT_CODES = """\b
Exit codes: 0 all is well, 1 something is wrong or was not found, 2 a mistake in the command line,
3 the API server did not answer, 4 all is well as far as your rights go.
"""

_COLORS = {"critical": "red", "failed": "red", "warning": "yellow", "info": "blue", "ok": "green"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The cluster that a command reads, and the format of its output."""

    kubeconfig: Path | None
    context: str | None
    operator_namespace: str
    output: Output = Output.TABLE
    color: bool = False

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[KubeClient]:
        """Lend a client with the rights of the user. Raises StartError if no access is configured."""
        async with KubeClient(HttpServer(await self._configure())) as client:
            yield client

    async def _configure(self) -> Configuration:
        is_configured = self.kubeconfig or self.context or os.environ.get("KUBECONFIG")
        if not is_configured and SERVICE_ACCOUNT.exists() and not DEFAULT_KUBECONFIG.exists():
            return configure_in_cluster()
        return await configure_from_kubeconfig(self.kubeconfig, context=self.context)

    @property
    def is_for_people(self) -> bool:
        """Whether the output is a table."""
        return self.output in {Output.TABLE, Output.SHORT, Output.WIDE}

    def tell(self, view: object, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a view: whole as JSON or YAML, its rows as a table or CSV."""
        if self.output in {Output.JSON, Output.YAML}:
            click.echo(dump(view, self.output), nl=False)
        elif self.output is Output.CSV:
            click.echo(to_csv(header, rows), nl=False)
        else:
            click.echo(table(header, rows), nl=False)

    def paint(self, text: str, kind: str) -> str:
        """Return a word, in color if the terminal shows colors."""
        return click.style(text, fg=_COLORS.get(kind)) if self.color else text


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all commands that look; the command gets them as `reading`."""

    @functools.wraps(command)
    def read_options(
        *,
        kubeconfig: Path | None,
        context: str | None,
        operator_namespace: str,
        output: str,
        no_color: bool,
        **rest: object,
    ) -> object:
        reading = Reading(
            kubeconfig=kubeconfig,
            context=context,
            operator_namespace=operator_namespace,
            output=Output(output),
            color=sys.stdout.isatty() and not no_color and not os.environ.get("NO_COLOR"),
        )
        return command(reading=reading, **rest)

    return access_options(_add(_TELLING, read_options))


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the management cluster and the credential."""
    return _add(_ACCESS, command)


def _add(options: Sequence[Callable[..., Any]], command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


wait_option = click.option(
    "--wait",
    type=GoDuration(),
    default=0.0,
    is_flag=False,
    flag_value="5m",
    help="Wait until nothing is wrong or pending, for example 90s; the default duration is 5m.",
)
"""For the commands that `wait_until` runs."""

_ACCESS = (
    click.option(
        "--kubeconfig",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Kubeconfig of the management cluster; default: that of kubectl, in a pod its ServiceAccount.",
    ),
    click.option("--context", help="Context of the kubeconfig; default: its current one."),
    click.option(
        "--operator-namespace",
        default=names.OPERATOR_NAMESPACE,
        envvar="FIPOP_NAMESPACE",
        show_default=True,
        help="Namespace in which the operator is installed.",
    ),
)
_TELLING = (
    click.option(
        "-o",
        "--output",
        type=click.Choice([each.value for each in Output]),
        default=Output.TABLE.value,
        show_default=True,
        help="Format of the output.",
    ),
    click.option("--no-color", is_flag=True, help="Print without colors, as NO_COLOR=1 does."),
)


async def wait_until(read: Callable[[], Awaitable[T]], waits_for: Callable[[T], str], seconds: float) -> T:
    """Return what `read` returns once `waits_for` it is nothing, or once `seconds` are over.

    Meanwhile, standard error shows what it waits for. Until then, an UnavailableError is retried.
    """
    until, shown = time.monotonic() + seconds, ""
    while True:
        try:
            found = await read()
            awaited = waits_for(found)
            if not awaited or time.monotonic() >= until:
                return found
        except UnavailableError as error:
            if time.monotonic() >= until:
                raise
            awaited = str(error)
        if awaited != shown:
            click.echo(f"Waiting: {clean(awaited)}", err=True)
            shown = awaited
        await asyncio.sleep(min(POLL_SECONDS, max(0.0, until - time.monotonic())))


def run_reading(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work`; if the API server does not answer, exit with a sentence and EXIT_NO_ACCESS."""
    found: list[T] = []

    async def look_once() -> None:
        # Not the task's own result: at its end asyncio writes that out as a text, all of it (a handler's repr).
        found.append(await work())

    # All that is read is needed until the process ends: there is nothing to collect.
    gc.disable()
    if threading.current_thread() is threading.main_thread():
        # The command only reads, so it ends at once, even if a server hangs.
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    try:
        asyncio.run(look_once())
        return found[0]
    except ApiError as error:
        fail(f"{error}. Check --kubeconfig and --context, then run kubectl version", EXIT_NO_ACCESS)
    except (FipopError, OSError) as error:
        fail(str(error), EXIT_NO_ACCESS)


async def look(reading: Reading, *, about_operator: bool = False) -> ClusterSnapshot:
    """Read the management cluster once with the reader's rights."""
    async with reading.connect() as client:
        return await read_snapshot(
            client, namespace=reading.operator_namespace, about_operator=about_operator
        )


def tell_unread(unread: Sequence[Unread]) -> None:
    """Print on standard error what could not be read."""
    for each in unread:
        click.echo(f"Not read: {each.what} ({clean(each.problem)})", err=True)


def fail(message: str, code: int = EXIT_WRONG) -> NoReturn:
    """End with a sentence."""
    click.echo(f"Error: {clean(sentence(message))}", err=True)
    sys.exit(code)
