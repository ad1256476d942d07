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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import click
from kubernetes.aio.client.configuration import Configuration

from fipop.api import names
from fipop.cli.go_flags import GoDuration, check_namespace
from fipop.errors import ApiError, FipopError, StartError, UnavailableError
from fipop.kube.client import KubeClient
from fipop.kube.config import (
    DEFAULT_KUBECONFIG,
    SERVICE_ACCOUNT,
    configure_from_kubeconfig,
    configure_in_cluster,
)
from fipop.kube.server import HttpServer
from fipop.report.findings import Finding, Severity
from fipop.report.reading import NotManagementClusterError, read_snapshot
from fipop.report.rendering import clean_whole, table, to_json
from fipop.report.snapshot import Kind, Snapshot, Unread
from fipop.texts import clean, sentence, suggest

POLL_SECONDS = 2.0
"""Between two checks while a command waits."""
_MOST_CHANGES = 10
"""The most changes between two checks that are shown one by one."""
P = ParamSpec("P")
T = TypeVar("T")

EXIT_WRONG = 1
EXIT_MISTAKE = 2
EXIT_NO_ACCESS = 3
EXIT_INCOMPLETE = 4
EXIT_CODES = """\b
Exit codes: 0 all is well, 1 something is wrong or was not found, 2 a mistake in the command line or the
kubeconfig, 3 the API server did not answer, 4 all is well as far as your rights go.
"""

_SIGNS = {
    Severity.OK: click.style("√", fg="green"),
    Severity.INFO: click.style("i", fg="blue"),
    Severity.WARNING: click.style("‼", fg="yellow"),
    Severity.CRITICAL: click.style("×", fg="red"),
}
"""How findings of each severity begin. Only a terminal gets the colors."""


class Output(StrEnum):
    """The formats that `-o` knows."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """The cluster that a command reads, and the format of its output."""

    kubeconfig: Path | None
    context: str | None
    operator_namespace: str
    output: Output = Output.TABLE

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[KubeClient]:
        """Lend a client with the rights of the user. Raises StartError if no access is configured."""
        configuration = await self._configure()
        async with KubeClient(HttpServer(configuration)) as client:
            try:
                yield client
            except FipopError as error:
                context = f'context "{self.context}"' if self.context else "the current context"
                error.add_note(f"{context} at {configuration.host}")
                raise

    async def _configure(self) -> Configuration:
        is_configured = self.kubeconfig or self.context or os.environ.get("KUBECONFIG")
        if not is_configured and SERVICE_ACCOUNT.exists() and not DEFAULT_KUBECONFIG.exists():
            return configure_in_cluster()
        return await configure_from_kubeconfig(self.kubeconfig, context=self.context)

    def show(
        self, report: object, header: Sequence[str], rows: Iterable[Sequence[str]], lines: Iterable[str] = ()
    ) -> bool:
        """Print a report as JSON, or its rows as a table with lines below; return whether more lines can follow."""
        if self.output is Output.JSON:
            click.echo(to_json(report), nl=False)
            return False
        click.echo("\n".join((table(header, rows), *map(clean_whole, lines))))
        return True

    def show_finding(self, found: Finding) -> None:
        """Print a finding, and in a second line the remedy that its message does not have."""
        reason = "" if found.severity is Severity.OK else f"{found.reason}: "
        click.echo(f"{_SIGNS[found.severity]} {clean(f'{found.subject}: {reason}{found.message}')}")
        if found.advice:
            click.echo(f"    -> {clean(found.advice)}")


def _add(options: Sequence[Callable[..., Any]], command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def read_options(
        *,
        kubeconfig: Path | None,
        context: str | None,
        operator_namespace: str,
        output: str = Output.TABLE.value,
        **rest: object,
    ) -> object:
        reading = ReadingOptions(
            kubeconfig=kubeconfig,
            context=context,
            operator_namespace=operator_namespace,
            output=Output(output),
        )
        return command(reading=reading, **rest)

    added: Callable[..., Any] = read_options
    for option in reversed(options):
        added = option(added)
    return added


wait_option = click.option(
    "--wait",
    type=GoDuration(),
    default=0.0,
    is_flag=False,
    flag_value="5m",
    help="Wait until nothing is wrong or pending, for example 90s; the default duration is 5m.",
)
"""For the commands that `wait_until` runs."""

all_option = click.option(
    "--all",
    "all_each",
    is_flag=True,
    help="Show each finding. Without it, more than 5 of one kind are counted.",
)

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
        callback=check_namespace,
        help="Namespace in which the operator is installed.",
    ),
)
_OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Choice([each.value for each in Output]),
    default=Output.TABLE.value,
    show_default=True,
    help="Format of the output.",
)
access_options = functools.partial(_add, _ACCESS)
"""Adds the options of the management cluster and the credential; the command gets them as `reading`."""
reading_options = functools.partial(_add, (*_ACCESS, _OUTPUT))
"""Adds the options of all commands that read; the command gets them as `reading`."""


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


async def watch(
    read: Callable[[], Awaitable[T]], describe: Callable[[T], Mapping[str, str]], is_over: Callable[[T], bool]
) -> T:
    """Return the first thing read that `is_over`. Until then, a terminal gets one line for each change."""
    found = await read()
    before = describe(found)
    while not is_over(found):
        await asyncio.sleep(POLL_SECONDS)
        with suppress(UnavailableError):
            found = await read()
        after = describe(found)
        changed = [each for each in {**before, **after} if before.get(each) != after.get(each)]
        lines = [clean(f"{name}: {after.get(name, 'no longer')}") for name in changed[:_MOST_CHANGES]]
        lines += [f"{len(changed) - _MOST_CHANGES} more changes"] if len(changed) > _MOST_CHANGES else []
        for text in lines if sys.stderr.isatty() else ():
            click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)
        before = after
    return found


def run_reading(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work`. Exit with a sentence if the kubeconfig is wrong, or if the API server does not answer."""
    found: list[T] = []

    async def work_once() -> None:
        # Not the task's own result: at its end asyncio writes that out as a text, all of it (a handler's repr).
        found.append(await work())

    # All that is read is needed until the process ends: there is nothing to collect.
    gc.disable()
    if threading.current_thread() is threading.main_thread():
        # The command only reads, so it ends at once, even if a server hangs.
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    try:
        asyncio.run(work_once())
        return found[0]
    except NotManagementClusterError as error:
        where = next(iter(getattr(error, "__notes__", ())), "the cluster")
        fail(f"{where} {error} Name another one with --context or --kubeconfig", EXIT_NO_ACCESS)
    except ApiError as error:
        where = next((f" ({each})" for each in getattr(error, "__notes__", ())), "")
        advice = "Check --kubeconfig and --context, then run kubectl version"
        fail(f"{error}{where}. {advice}", EXIT_NO_ACCESS)
    except StartError as error:
        fail(str(error), EXIT_MISTAKE)
    except (FipopError, OSError) as error:
        fail(str(error), EXIT_NO_ACCESS)


async def read_once(reading: ReadingOptions, *, about_operator: bool = True) -> Snapshot:
    """Read the management cluster once with the user's rights."""
    async with reading.connect() as client:
        return await read_snapshot(
            client, namespace=reading.operator_namespace, about_operator=about_operator
        )


def show_unread(unread: Sequence[Unread]) -> None:
    """Print on standard error what could not be read."""
    for each in unread:
        click.echo(f"Not read: {each.what} ({clean(each.problem)})", err=True)


def end(unread: Sequence[Unread], *, is_wrong: bool = False) -> None:
    """Print what could not be read, and end with the exit code of what was found."""
    show_unread(unread)
    if is_wrong:
        sys.exit(EXIT_WRONG)
    if unread:
        sys.exit(EXIT_INCOMPLETE)


def show_ambiguity(snapshot: Snapshot, name: str | None) -> None:
    """Print if the name of a guest cluster fits several."""
    text = snapshot.describe_ambiguity(name) if name else ""
    if text:
        click.echo(clean(text), err=True)


def fail_missing(snapshot: Snapshot, what: str, name: str, known: Iterable[str], *kinds: Kind) -> NoReturn:
    """End because no object has a name of the `known` ones; as not known if not all of its `kinds` could be read."""
    if not snapshot.is_read(*kinds):
        message = f'{what} "{name}" is not known: not all objects could be read'
        fail(message, EXIT_INCOMPLETE, snapshot.unread)
    like = suggest(name, known)
    fail(f'{what} "{name}" does not exist{like}. Run fipop check to see all', unread=snapshot.unread)


def fail(message: str, code: int = EXIT_WRONG, unread: Sequence[Unread] = ()) -> NoReturn:
    """Print what could not be read, and end with a sentence."""
    show_unread(unread)
    click.echo(f"Error: {clean(sentence(message))}", err=True)
    sys.exit(code)
