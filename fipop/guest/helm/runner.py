"""The helm program: run with files and an environment of its own, never longer than its deadline.

A helm that works on a guest talks to a door of ours and to nothing else; one that fetches charts goes out by itself.

pyhelm3 knows helm's command line; how the process is run is ours (its own way leaves helm behind when it is
cancelled, logs command lines and goes through a shell).
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fipop.boundary import Finished, HelmProcess
from fipop.deadlines import HELM_DEADLINE_SECONDS
from fipop.errors import StartError
from fipop.guest.errors import HelmError, HelmFailure
from fipop.guest.helm.command import HISTORY, ChartFetch, HelmCommand, helm_error
from fipop.guest.helm.door import RefusedAnswerError
from fipop.guest.helm.failures import classify
from fipop.guest.helm.guest_process import HelmTarget
from fipop.guest.helm.processes import FILE_BYTES, STDOUT_BYTES
from fipop.guest.helm.releases import ReleaseDescription, ReleaseRecord
from fipop.guest.helm.slots import Slots
from fipop.guest.helm.work_folder import WorkFolder
from fipop.texts import clean

log = logging.getLogger(__name__)

_UPGRADE, _DESCRIBE, _FETCH = "upgrade", "inspection", "fetch"
_ROLL_BACK, _UNINSTALL = "roll-back", "uninstall"
_CRASHED = 2
"""How a Go program ends that gets no more memory; helm's own failures end with 1."""
_LONGEST_CHART = 253
_EXPLAINED = frozenset(
    {
        HelmFailure.UNREACHABLE,
        HelmFailure.UNKNOWN,
        HelmFailure.TIMED_OUT,
        HelmFailure.CERTIFICATE,
        HelmFailure.INVALID,
        HelmFailure.CHART_NOT_FOUND,
    }
)
"""Failures of which the door may know better why."""
_MANIFEST_BYTES = 1024 * 1024
_FETCHED_FILE_BYTES = 64 * 1024 * 1024
_PASSED_TO_FETCHES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Charts come from the outside world, as the administrator of this process set it up; guests do not."""


def find_helm(given: str | None = None) -> str:
    """Give the absolute path of the helm program: the given one, else that on PATH. Raises StartError."""
    path = shutil.which(given or "helm")
    if path is None:
        where = "cannot be run" if given else "is not on PATH. Install it, or name it with --helm"
        raise StartError(what=f"helm program {given or 'helm'}", problem=where)
    return str(Path(path).resolve())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOrder:
    """One install or upgrade; `chart` is an archive or folder on our disk, values may hold secrets."""

    name: str
    namespace: str
    chart: Path
    values: Mapping[str, Any] = field(repr=False)
    labels: Mapping[str, str]


class HelmRunner:
    """Runs helm, at most `concurrency` processes at a time for guests, and as many that fetch charts.

    A source of charts that hangs keeps no guest from its upgrade. `runs` counts the processes that were started.

    `observe` hears of each run that ended by itself or at its deadline: helm's subcommand, and whether it succeeded.
    """

    def __init__(
        self,
        executable: str,
        *,
        concurrency: int = 2,
        deadline_seconds: float = HELM_DEADLINE_SECONDS,
        environ: Mapping[str, str] | None = None,
        observe: Callable[[str, bool], None] | None = None,
        process: HelmProcess,
    ) -> None:
        self.executable = executable
        self._process = process
        self._observe = observe
        self.deadline_seconds = deadline_seconds
        self.runs = 0
        self.work_folder = WorkFolder()
        for_guests, for_charts = Slots(concurrency), Slots(concurrency)
        self._slots = dict.fromkeys((_UPGRADE, _ROLL_BACK, _UNINSTALL, _DESCRIBE), for_guests) | {
            _FETCH: for_charts
        }
        surroundings = os.environ if environ is None else environ
        self._fetch_environment = {
            name: surroundings[name] for name in _PASSED_TO_FETCHES if name in surroundings
        }

    def resize(self, concurrency: int) -> None:
        """Have another number of processes at once from now on."""
        for slots in self._slots.values():
            slots.resize(concurrency)

    async def upgrade(self, target: HelmTarget, order: ReleaseOrder) -> None:
        """Install or upgrade a release without waiting for its workloads. Raises HelmError.

        The namespace is created where it is missing. When this task is cancelled helm ends before this does.
        """
        async with self._visit(target, _UPGRADE, order) as command:
            command.labels = order.labels
            await command.install_or_upgrade(
                order.name, order.chart, dict(order.values), namespace=order.namespace, create_namespace=True
            )

    async def roll_back(self, target: HelmTarget, release: ReleaseRecord, revision: int) -> None:
        """Make a new revision of what an earlier one was, without its chart and hooks. Raises HelmError."""
        async with self._visit(target, _ROLL_BACK, release) as command:
            place = ("--namespace", release.namespace, "--history-max", str(HISTORY))
            await command.run(["rollback", release.name, str(revision), "--no-hooks", *place])

    async def uninstall(self, target: HelmTarget, release: ReleaseRecord) -> None:
        """Remove a release and what it made. The hooks in its record are not run. Raises HelmError."""
        async with self._visit(target, _UNINSTALL, release) as command:
            place = ("--namespace", release.namespace, "--ignore-not-found")
            await command.run(["uninstall", release.name, "--no-hooks", *place])

    async def describe(self, target: HelmTarget, release: ReleaseRecord) -> ReleaseDescription:
        """Ask helm what a revision was made from. Raises HelmError, also where it tells more than is read."""
        async with self._visit(target, _DESCRIBE, release) as command:
            metadata = _parse_mapping(
                await command.run(_get("metadata", release, "--output", "json")), command
            )
            values = _parse_mapping(await command.run(_get("values", release, "--output", "json")), command)
        return ReleaseDescription(
            chart_name=clean(metadata.get("chart"), _LONGEST_CHART),
            chart_version=clean(metadata.get("version"), _LONGEST_CHART),
            values=values,
        )

    async def manifest(self, target: HelmTarget, release: ReleaseRecord) -> str:
        """Ask helm for the objects of a revision, at most 1 MiB of YAML. Raises HelmError."""
        async with self._visit(target, _DESCRIBE, release) as command:
            command.stdout_bytes = _MANIFEST_BYTES
            return (await command.run(_get("manifest", release))).decode(errors="replace")

    @asynccontextmanager
    async def _visit(
        self, target: HelmTarget, action: str, release: ReleaseOrder | ReleaseRecord
    ) -> AsyncIterator[HelmCommand]:
        """Lend helm's command line for a guest, for one run or two."""
        subject = f"release {release.namespace}/{release.name}"
        async with self._private_folder(action) as folder:
            yield HelmCommand(self, folder, action=action, subject=subject, guest=target)

    @asynccontextmanager
    async def fetching(self, subject: str) -> AsyncIterator[ChartFetch]:
        """Lend a place from which charts are fetched; what it wrote is gone afterwards."""
        async with self._private_folder(_FETCH) as folder:
            command = HelmCommand(self, folder, action=_FETCH, subject=subject, env=self._fetch_environment)
            yield ChartFetch(command, folder)

    @asynccontextmanager
    async def _private_folder(self, action: str) -> AsyncIterator[Path]:
        """Lend a folder that only we can read; gone afterwards, whatever stands in it."""
        try:
            folder = self.work_folder.folder("helm-")
        except OSError as error:
            raise HelmError(action=action, subject="helm", failure=HelmFailure.FILES) from error
        try:
            yield folder
        except OSError as error:
            raise HelmError(action=action, subject="helm", failure=HelmFailure.FILES) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def execute(
        self,
        arguments: list[str],
        *,
        env: Mapping[str, str],
        folder: Path,
        stdin: bytes | None,
        action: str,
        subject: str,
        guest: HelmTarget | None = None,
        stdout_bytes: int | None = STDOUT_BYTES,
    ) -> bytes:
        """Run helm once and give its stdout; raise HelmError with the class of its failure.

        More than `stdout_bytes` is a failure; None: whatever it says there is dropped.
        """
        failed = functools.partial(helm_error, action, subject)
        try:
            async with self._slots[action]:
                if (seconds := self._seconds_until(guest)) <= 0:
                    raise failed(HelmFailure.TIMED_OUT)
                self.runs += 1
                try:
                    ended = await self._process(
                        arguments,
                        guest=guest,
                        env=env,
                        folder=folder,
                        stdin=stdin,
                        deadline_seconds=seconds,
                        stdout_bytes=stdout_bytes or 0,
                        file_bytes=_FETCHED_FILE_BYTES if action == _FETCH else FILE_BYTES,
                    )
                except OSError as error:
                    raise failed(HelmFailure.NOT_STARTED) from error
            stdout = _judge(ended, failed, is_read=stdout_bytes is not None)
        except HelmError:
            self._tell(arguments[0], success=False)
            raise
        self._tell(arguments[0], success=True)
        return stdout

    def _seconds_until(self, guest: HelmTarget | None) -> float:
        """Give what a helm may take from now on, where all that is done has a deadline, too."""
        if guest is None:
            return self.deadline_seconds
        return min(self.deadline_seconds, guest.deadline - asyncio.get_running_loop().time())

    def _tell(self, command: str, *, success: bool) -> None:
        if self._observe is not None:
            self._observe(command, success)


def _judge(ended: Finished, failed: Callable[..., HelmError], *, is_read: bool) -> bytes:
    """Give the stdout of a helm that succeeded. Raises HelmError."""
    failure = _find_failure(ended, is_read=is_read)
    if failure is None:
        return ended.stdout
    error = failed(failure)
    if ended.problem is None or failure not in _EXPLAINED:
        raise error
    # helm saw a failing server; what failed is ours to tell.
    failure = HelmFailure.REFUSED if isinstance(ended.problem, RefusedAnswerError) else failure
    raise failed(failure, cause=str(ended.problem)) from error


def _find_failure(ended: Finished, *, is_read: bool) -> HelmFailure | None:
    if ended.timed_out:
        return HelmFailure.TIMED_OUT
    if ended.returncode < 0 or ended.returncode == _CRASHED:
        return HelmFailure.KILLED
    if ended.returncode:
        return classify(ended.stderr)
    return HelmFailure.TOO_MUCH if ended.is_cut and is_read else None


def _get(what: str, release: ReleaseRecord, *options: str) -> list[str]:
    place = ("--namespace", release.namespace, "--revision", str(release.revision))
    return ["get", what, release.name, *place, *options]


def _parse_mapping(output: bytes, command: HelmCommand) -> dict[str, Any]:
    try:
        found = json.loads(output) or {}
    except (ValueError, RecursionError):
        raise command.failed(HelmFailure.UNKNOWN) from None
    if not isinstance(found, dict):
        raise command.failed(HelmFailure.UNKNOWN)
    return found
