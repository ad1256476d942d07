"""Charts on our disk: fetched once per (source, version), verified, and used for all guests."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fipop.boundary import loop_time
from fipop.guest.errors import ChartError, HelmError, HelmFailure
from fipop.guest.helm.chart_access import AccessReader, ChartAccess, ChartAccessError, no_access
from fipop.guest.helm.chart_archives import (
    CachedChart,
    chart_problem,
    choose_version,
    copy_archive,
    verify_archive,
)
from fipop.guest.helm.charts import ChartSource
from fipop.guest.helm.command import ChartFetch
from fipop.guest.helm.detours import find_detour
from fipop.guest.helm.runner import HelmRunner

RESOLVE_SECONDS = 600.0
"""How long the answer to "which version is the newest" holds."""
FAILURE_SECONDS = 30.0
"""How long a failure holds: a source that is away is not asked by every guest in turn."""

_PATIENCE_SECONDS = 20.0
"""How long after its start a fetch is waited for: a source that hangs is not to hold one pass after the other."""
_MAX_SOURCES = 16
_CONDITIONS = {
    HelmFailure.UNAUTHORIZED: "ChartUnauthorized",
    HelmFailure.FORBIDDEN: "ChartUnauthorized",
    HelmFailure.CERTIFICATE: "ChartSourceUntrusted",
}
"""What is said of a source that helm could not fetch from, where there is a word of its own for it."""


@dataclass(slots=True)
class _Entry:
    chart: CachedChart | None = None
    checked_at: float = 0.0
    error: ChartError | None = None
    failed_at: float = 0.0
    used_at: float = 0.0
    task: asyncio.Task[None] | None = None
    began_at: float = 0.0
    outdated: CachedChart | None = None


class ChartCache:
    """Gives charts; many passes that ask for the same one at once cause one fetch."""

    def __init__(
        self,
        helm: HelmRunner,
        *,
        resolve_seconds: float = RESOLVE_SECONDS,
        failure_seconds: float = FAILURE_SECONDS,
        monotonic: Callable[[], float] = loop_time,
        read_access: AccessReader = no_access,
    ) -> None:
        self._helm = helm
        self._read_access = read_access
        self._resolve_seconds = resolve_seconds
        self._failure_seconds = failure_seconds
        self._monotonic = monotonic
        self._entries: dict[ChartSource, _Entry] = {}
        self._folder: Path | None = None

    async def get(self, source: ChartSource, *, content: str = "") -> CachedChart:
        """Give the chart of a source; raise ChartError where it cannot be had, or is not of this `content`.

        The newest version, once resolved, is looked up again when its time is over, beside the passes: they are
        given the one at hand.
        """
        chart = await self._get(source)
        if not content or chart.identity.content == content:
            return chart
        outdated = self._entries[source].outdated if source in self._entries else None
        if outdated is not None and outdated.identity.content == content:
            return outdated
        raise chart_problem(source, "the source returns another content than at the start of this rollout")

    async def _get(self, source: ChartSource) -> CachedChart:
        entry = self._entries.setdefault(source, _Entry())
        entry.used_at = self._monotonic()
        # What is mounted may be mounted anew, whatever its version.
        is_settled = bool(source.version) and not source.file
        if entry.chart is not None and (is_settled or self._is_fresh(entry)):
            return entry.chart
        if entry.task is None and not self._rests(entry):
            entry.began_at = self._monotonic()
            entry.task = asyncio.create_task(self._refresh(source, entry))
            self._forget_unused()
        if entry.chart is not None:
            return entry.chart
        patience = entry.began_at + _PATIENCE_SECONDS - self._monotonic()
        if entry.task is not None and patience > 0:
            # Not awaited itself: the pass that happened to begin the fetch may be cancelled, the others want it still.
            await asyncio.wait({entry.task}, timeout=patience)
            if entry.chart is not None:
                return entry.chart
        # While it is tried again, what went wrong the last time says more than that it takes long.
        raise (
            entry.error.with_traceback(None)
            if entry.error
            else chart_problem(source, "it is still being fetched")
        )

    async def close(self) -> None:
        """Stop what is under way and remove the charts from the disk, with all that helm was lent there."""
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._entries.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self._helm.work_folder.close()

    async def _refresh(self, source: ChartSource, entry: _Entry) -> None:
        try:
            self._replace(entry, await self._fetch(source, entry.chart))
            entry.checked_at = self._monotonic()
            entry.error = None
        except ChartError as error:
            entry.error = error
        except ChartAccessError as error:
            entry.error = chart_problem(source, str(error), "ChartAccessMissing")
        except HelmError as error:
            entry.error = chart_problem(
                source, error.failure.value, _CONDITIONS.get(error.failure, "ReleaseFailed")
            )
            entry.error.__cause__ = error
        except OSError as error:
            entry.error = chart_problem(source, "could not store it on the disk of the pod")
            entry.error.__cause__ = error
        finally:
            entry.failed_at = self._monotonic()
            entry.task = None

    async def _fetch(self, source: ChartSource, known: CachedChart | None) -> CachedChart:
        if source.file:
            return await self._take_file(source, known)
        access = await self._read_access(source)
        if access.token and not source.ref:
            reason = "a repository over HTTP needs username and password, not a token"
            raise chart_problem(source, reason, "ChartAccessMissing")
        if problem := access.problem_with(source.url):
            access = ChartAccess(authority=access.authority)
        elif access.username or access.token:
            detour = await find_detour(source, access)
            if detour:
                raise chart_problem(source, f"it redirects: {detour}", "ChartUnauthorized")
        try:
            return await self._fetch_with(access, source, known)
        except HelmError as error:
            condition = _CONDITIONS.get(error.failure, "")
            if problem and condition == "ChartUnauthorized":
                raise chart_problem(source, f"{error.failure.value}: {problem}", condition) from error
            raise

    async def _fetch_with(
        self, access: ChartAccess, source: ChartSource, known: CachedChart | None
    ) -> CachedChart:
        async with self._helm.fetching(f"chart {source}") as fetch:
            fetch.use(access)
            version, sha256 = await self._resolve(fetch, source)
            if known is not None and known.identity.version == version and sha256 in ("", known.sha256):
                return known
            folder = Path(tempfile.mkdtemp(dir=self._home()))
            try:
                archive = await fetch.pull(source.ref or source.name, version, folder)
                # Hashing and unzipping what strangers made: not on the loop that all guests share.
                return await asyncio.to_thread(verify_archive, archive, source, version, sha256)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise

    async def _take_file(self, source: ChartSource, known: CachedChart | None) -> CachedChart:
        """Take a mounted archive; a copy of it, so that it does not change while helm reads it."""
        folder = Path(tempfile.mkdtemp(dir=self._home()))
        try:
            archive = folder / "chart.tgz"
            await asyncio.to_thread(copy_archive, Path(source.file), archive, source)
            chart = await asyncio.to_thread(verify_archive, archive, source, source.version, "")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if known is not None and known.sha256 == chart.sha256:
            shutil.rmtree(folder, ignore_errors=True)
            return known
        return chart

    def _replace(self, entry: _Entry, chart: CachedChart) -> None:
        if entry.chart is None or entry.chart == chart:
            entry.chart = chart
            return
        # The one before may be what a helm installs right now; the one before that is not.
        _remove(entry.outdated)
        entry.outdated, entry.chart = entry.chart, chart

    async def _resolve(self, fetch: ChartFetch, source: ChartSource) -> tuple[str, str]:
        """Give the version to fetch, and its digest where the index tells it."""
        if source.ref:
            # A registry addresses archives by their digest, which helm verifies.
            return source.version or await fetch.newest_version(source.ref), ""
        index = await fetch.index(source.repo_url)
        return await asyncio.to_thread(choose_version, index, source)

    def _is_fresh(self, entry: _Entry) -> bool:
        return self._monotonic() - entry.checked_at < self._resolve_seconds

    def _rests(self, entry: _Entry) -> bool:
        return entry.error is not None and self._monotonic() - entry.failed_at < self._failure_seconds

    def _home(self) -> Path:
        if self._folder is None:
            self._folder = self._helm.work_folder.folder("charts-")
        return self._folder

    def _forget_unused(self) -> None:
        idle = sorted(
            (entry.used_at, str(source), source) for source, entry in self._entries.items() if not entry.task
        )
        for _, _, source in idle[: max(len(self._entries) - _MAX_SOURCES, 0)]:
            entry = self._entries.pop(source)
            _remove(entry.chart)
            _remove(entry.outdated)


def _remove(chart: CachedChart | None) -> None:
    if chart is not None:
        shutil.rmtree(chart.path.parent, ignore_errors=True)
