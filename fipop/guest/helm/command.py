"""pyhelm3's command lines, run our way, in a folder of their own."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pyhelm3
import yaml

from fipop.guest.errors import HelmError, HelmFailure
from fipop.guest.helm.chart_access import ChartAccess, write_authority, write_registry_config
from fipop.guest.helm.guest_process import HelmTarget
from fipop.guest.helm.processes import STDOUT_BYTES

logger = logging.getLogger(__name__)

HISTORY = 10
"""So many revisions of a release helm keeps."""
_GO_MEMORY = "112MiB"
"""From where on helm's garbage collector does its best: DATA_BYTES without what a Go program never touches."""
_NO_FOLDER = "/dev/null/none"
"""Nothing can be made below it: what a guest's API serves is not kept on our disk."""
_REPOSITORY = "charts"
_MAX_INDEX_BYTES = 16 * 1024 * 1024


class Executor(Protocol):
    """Who runs the processes."""

    executable: str
    deadline_seconds: float

    async def execute(
        self,
        arguments: list[str],
        *,
        env: Mapping[str, str],
        folder: Path,
        stdin: bytes | None,
        action: str,
        subject: str,
        guest: HelmTarget | None,
        stdout_bytes: int | None,
    ) -> bytes:
        """Run helm; give its output, or raise HelmError."""


class ChartFetch:
    """Fetches charts with one helm cache, and the access that their source asks for. Raises HelmError."""

    def __init__(self, command: HelmCommand, folder: Path) -> None:
        self._command = command
        self._folder = folder
        self._access = ChartAccess()
        self._options: list[str] = []

    def use(self, access: ChartAccess) -> None:
        """Have an access, for all that follows."""
        self._access = access
        authority = write_authority(self._folder, access)
        self._options = ["--ca-file", str(authority)] if authority is not None else []

    async def index(self, url: str) -> bytes:
        """Give the index of a chart repository and make its charts ready to `pull`."""
        command = ["repo", "add", _REPOSITORY, url, "--force-update", *self._options]
        password = None
        if self._access.username:
            command += ["--username", self._access.username, "--password-stdin"]
            password = self._access.password.encode()
        await self._command.run(command, password)
        path = self._command.cache / "repository" / f"{_REPOSITORY}-index.yaml"
        if path.stat().st_size > _MAX_INDEX_BYTES:
            raise self._command.failed(HelmFailure.INVALID)
        return path.read_bytes()

    async def newest_version(self, ref: str) -> str:
        """Give the newest version that an OCI registry has of a chart."""
        try:
            shown = await self._command.run(["show", "chart", ref, *self._registry(ref)])
            metadata = yaml.load(shown, yaml.CSafeLoader)
        except yaml.YAMLError as error:
            raise self._command.failed(HelmFailure.UNKNOWN) from error
        version = metadata.get("version") if isinstance(metadata, dict) else None
        if not isinstance(version, str):
            raise self._command.failed(HelmFailure.CHART_NOT_FOUND)
        return version

    async def pull(self, chart: str, version: str, destination: Path) -> Path:
        """Fetch one version of a chart (`oci://…`, or a name of the repository whose index was read) as an archive."""
        ref = chart if "://" in chart else f"{_REPOSITORY}/{chart}"
        options = self._registry(ref) if "://" in chart else []
        command = ["pull", ref, "--version", version, "--destination", str(destination), *options]
        await self._command.run(command)
        archives = [name for name in os.listdir(destination) if name.endswith(".tgz")]  # noqa: PTH208 - a name or two
        if len(archives) != 1:
            raise self._command.failed(HelmFailure.CHART_NOT_FOUND)
        return destination / archives[0]

    def _registry(self, ref: str) -> list[str]:
        config = write_registry_config(self._folder, ref, self._access)
        return [*self._options, *(["--registry-config", str(config)] if config is not None else [])]


class HelmCommand(pyhelm3.Command):  # type: ignore[misc]
    """pyhelm3's command lines, run our way, in a folder of their own."""

    def __init__(
        self,
        runner: Executor,
        folder: Path,
        *,
        action: str,
        subject: str,
        guest: HelmTarget | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            executable=runner.executable,
            default_timeout=f"{runner.deadline_seconds:.0f}s",
            history_max_revisions=HISTORY,
        )
        self.labels: Mapping[str, str] = {}
        self.cache = folder / "cache"
        self.failed = functools.partial(helm_error, action, subject)
        self._runner = runner
        self._folder = folder
        self._action = action
        self._subject = subject
        self._guest = guest
        self.stdout_bytes = STDOUT_BYTES
        self._env = {**_environment(folder), **(env or {})}

    async def run(self, command: list[Any], input: bytes | None = None) -> bytes:  # noqa: A002 - pyhelm3's name
        """Run one helm; HelmError where it fails."""
        arguments = [str(part) for part in command]
        is_upgrade = arguments[0] == "upgrade"
        if self.labels and is_upgrade:
            # Not among pyhelm3's options. Helm keeps them on the release's Secret.
            arguments += ["--labels", ",".join(f"{name}={value}" for name, value in self.labels.items())]
        logger.debug("Running helm", extra={"action": self._action, "subject": self._subject})
        stdout = await self._runner.execute(
            arguments,
            env=self._env,
            folder=self._folder,
            stdin=input,
            action=self._action,
            subject=self._subject,
            guest=self._guest,
            stdout_bytes=None if is_upgrade else self.stdout_bytes,
        )
        # An upgrade tells the whole release, which pyhelm3 would read: how it ended says enough.
        return b"{}" if is_upgrade else stdout


def _environment(folder: Path) -> dict[str, str]:
    """Give the whole environment of a helm process: none of ours, above all no proxy and no kubeconfig."""
    return {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "KUBECACHEDIR": _NO_FOLDER,
        "HELM_CACHE_HOME": str(folder / "cache"),
        "HELM_CONFIG_HOME": str(folder / "config"),
        "HELM_DATA_HOME": str(folder / "data"),
        "HELM_PLUGINS": str(folder / "plugins"),
        "HELM_DRIVER": "secret",
        "GOMEMLIMIT": _GO_MEMORY,
    }


def helm_error(action: str, subject: str, failure: HelmFailure, *, cause: str = "") -> HelmError:
    """Give the error of a helm run; `cause` says what failed if it is known."""
    return HelmError(action=action, subject=subject, failure=failure, cause=cause)
