"""The helm program: run with files and an environment of its own, never longer than its deadline.

pyhelm3 knows helm's command line; how the process is run is ours (its own way leaves helm behind when it is
cancelled, logs command lines and goes through a shell).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyhelm3
import yaml

from fipop.errors import HelmError, HelmFailure, StartError
from fipop.guest.helm_failures import classify
from fipop.guest.processes import run_process
from fipop.guest.scratch import Scratch

log = logging.getLogger(__name__)

DEADLINE_SECONDS = 120.0
"""Of one helm process. None of them waits for workloads, so each is done within seconds where all is well."""

_UPGRADE, _FETCH = "upgrade", "fetch"
_HISTORY = 10
_CRASHED = 2
"""How a Go program ends that gets no more memory; helm's own failures end with 1."""
_GO_MEMORY = "112MiB"
"""From where on helm's garbage collector does its best: DATA_BYTES without what a Go program never touches."""
_REPOSITORY = "charts"
_MAX_INDEX_BYTES = 16 * 1024 * 1024
_PASSED_TO_FETCHES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Charts come from the outside world, as the administrator of this process set it up; guests do not."""


def find_helm(given: str | None = None) -> str:
    """Give the absolute path of the helm program: the given one, else that on PATH. Raises StartError."""
    path = shutil.which(given or "helm")
    if path is None:
        where = "cannot be run" if given else "is not on PATH: install it, or name it with --helm"
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
        deadline_seconds: float = DEADLINE_SECONDS,
        environ: Mapping[str, str] | None = None,
        observe: Callable[[str, bool], None] | None = None,
    ) -> None:
        self.executable = executable
        self._observe = observe
        self.deadline_seconds = deadline_seconds
        self.runs = 0
        self.scratch = Scratch()
        self._slots = {action: asyncio.Semaphore(concurrency) for action in (_UPGRADE, _FETCH)}
        surroundings = os.environ if environ is None else environ
        self._fetch_environment = {
            name: surroundings[name] for name in _PASSED_TO_FETCHES if name in surroundings
        }

    async def upgrade(self, kubeconfig: str, order: ReleaseOrder) -> None:
        """Install or upgrade a release without waiting for its workloads. Raises HelmError.

        The namespace is created where it is missing. When this task is cancelled helm ends before this does.
        """
        async with self._private_folder(_UPGRADE) as folder:
            command = _Command(
                self,
                folder,
                action=_UPGRADE,
                subject=f"release {order.namespace}/{order.name}",
                kubeconfig=kubeconfig,
            )
            command.labels = order.labels
            await command.install_or_upgrade(
                order.name, order.chart, dict(order.values), namespace=order.namespace, create_namespace=True
            )

    @asynccontextmanager
    async def fetching(self, subject: str) -> AsyncIterator[ChartFetch]:
        """Lend a place from which charts are fetched; what it wrote is gone afterwards."""
        async with self._private_folder(_FETCH) as folder:
            yield ChartFetch(
                _Command(self, folder, action=_FETCH, subject=subject, env=self._fetch_environment)
            )

    @asynccontextmanager
    async def _private_folder(self, action: str) -> AsyncIterator[Path]:
        """Lend a folder that only we can read; gone afterwards, whatever stands in it."""
        try:
            folder = self.scratch.folder("helm-")
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
    ) -> bytes:
        """Run helm once and give its stdout; raise HelmError with the class of its failure."""
        try:
            stdout = await self._execute(arguments, env, folder, stdin, action, subject)
        except HelmError:
            self._tell(arguments[0], success=False)
            raise
        self._tell(arguments[0], success=True)
        return stdout

    def _tell(self, command: str, *, success: bool) -> None:
        if self._observe is not None:
            self._observe(command, success)

    async def _execute(
        self,
        arguments: list[str],
        env: Mapping[str, str],
        folder: Path,
        stdin: bytes | None,
        action: str,
        subject: str,
    ) -> bytes:
        async with self._slots[action]:
            self.runs += 1
            try:
                ended = await run_process(
                    [self.executable, *arguments],
                    env=env,
                    folder=folder,
                    stdin=stdin,
                    deadline_seconds=self.deadline_seconds,
                )
            except OSError as error:
                raise HelmError(action=action, subject=subject, failure=HelmFailure.NOT_STARTED) from error
        if ended.timed_out:
            raise HelmError(action=action, subject=subject, failure=HelmFailure.TIMED_OUT)
        if ended.returncode < 0 or ended.returncode == _CRASHED:
            raise HelmError(action=action, subject=subject, failure=HelmFailure.KILLED)
        if ended.returncode:
            raise HelmError(action=action, subject=subject, failure=classify(ended.stderr))
        return ended.stdout


class ChartFetch:
    """Fetches charts with one helm cache."""

    def __init__(self, command: _Command) -> None:
        self._command = command

    async def index(self, url: str) -> bytes:
        """Give the index of a chart repository and make its charts ready to `pull`."""
        await self._command.repo_add(_REPOSITORY, url)
        path = self._command.cache / "repository" / f"{_REPOSITORY}-index.yaml"
        if path.stat().st_size > _MAX_INDEX_BYTES:
            raise self._command.failed(HelmFailure.INVALID)
        return path.read_bytes()

    async def newest_version(self, ref: str) -> str:
        """Give the newest version that an OCI registry has of a chart."""
        try:
            metadata = await self._command.show_chart(ref)
        except yaml.YAMLError as error:
            raise self._command.failed(HelmFailure.UNKNOWN) from error
        version = metadata.get("version") if isinstance(metadata, dict) else None
        if not isinstance(version, str):
            raise self._command.failed(HelmFailure.CHART_NOT_FOUND)
        return version

    async def pull(self, chart: str, version: str, destination: Path) -> Path:
        """Fetch one version of a chart (`oci://…`, or a name of the repository whose index was read) as an archive."""
        ref = chart if "://" in chart else f"{_REPOSITORY}/{chart}"
        await self._command.run(["pull", ref, "--version", version, "--destination", str(destination)])
        archives = [name for name in os.listdir(destination) if name.endswith(".tgz")]  # noqa: PTH208 - a name or two
        if len(archives) != 1:
            raise self._command.failed(HelmFailure.CHART_NOT_FOUND)
        return destination / archives[0]


class _Command(pyhelm3.Command):  # type: ignore[misc]
    """pyhelm3's command lines, run our way, in a folder of their own."""

    def __init__(
        self,
        runner: HelmRunner,
        folder: Path,
        *,
        action: str,
        subject: str,
        kubeconfig: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            executable=runner.executable,
            default_timeout=f"{runner.deadline_seconds:.0f}s",
            history_max_revisions=_HISTORY,
        )
        self.labels: Mapping[str, str] = {}
        self.cache = folder / "cache"
        self.failed = functools.partial(_failure, action, subject)
        self._runner = runner
        self._folder = folder
        self._action = action
        self._subject = subject
        self._env = {**_environment(folder), **(env or {})}
        if kubeconfig is not None:
            path = folder / "kubeconfig"
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(kubeconfig)
            self._env["KUBECONFIG"] = str(path)

    async def run(self, command: list[Any], input: bytes | None = None) -> bytes:  # noqa: A002 - pyhelm3's name
        arguments = [str(part) for part in command]
        if self.labels and arguments[0] == "upgrade":
            # Not among pyhelm3's options. Helm keeps them on the release's Secret.
            arguments += ["--labels", ",".join(f"{name}={value}" for name, value in self.labels.items())]
        log.debug("running helm", extra={"action": self._action, "subject": self._subject})
        return await self._runner.execute(
            arguments,
            env=self._env,
            folder=self._folder,
            stdin=input,
            action=self._action,
            subject=self._subject,
        )

    async def install_or_upgrade(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().install_or_upgrade(*args, **kwargs)
        except ValueError as error:  # it said that all went well, and yet no JSON
            raise self.failed(HelmFailure.UNKNOWN) from error


def _environment(folder: Path) -> dict[str, str]:
    """Give the whole environment of a helm process: none of ours, above all no proxy and no kubeconfig."""
    return {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "HELM_CACHE_HOME": str(folder / "cache"),
        "HELM_CONFIG_HOME": str(folder / "config"),
        "HELM_DATA_HOME": str(folder / "data"),
        "HELM_PLUGINS": str(folder / "plugins"),
        "HELM_DRIVER": "secret",
        "GOMEMLIMIT": _GO_MEMORY,
    }


def _failure(action: str, subject: str, failure: HelmFailure) -> HelmError:
    return HelmError(action=action, subject=subject, failure=failure)
