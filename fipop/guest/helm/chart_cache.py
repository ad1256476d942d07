"""Charts on our disk: fetched once per (source, version), verified, and used for all guests."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import itertools
import re
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fipop.errors import ChartError, HelmError
from fipop.guest.helm.charts import ChartIdentity, ChartSource
from fipop.guest.helm.runner import ChartFetch, HelmRunner
from fipop.settings.yaml import YamlRefusedError, iterate_yaml_scalars, parse_yaml_mapping

RESOLVE_SECONDS = 600.0
"""How long the answer to "which version is the newest" holds."""
FAILURE_SECONDS = 30.0
"""How long a failure holds: a source that is away is not asked by every guest in turn."""

_PATIENCE_SECONDS = 20.0
"""How long after its start a fetch is waited for: a source that hangs is not to hold one pass after the other."""
_MAX_INDEX_BYTES = 16 * 1024 * 1024
_MAX_CHART_BYTES = 32 * 1024 * 1024
_MAX_CHART_FILES = 2000
_MAX_SOURCES = 16
_NUMBER = "([0-9]{1,18})"
_SEMVER = re.compile(rf"v?{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_UNREADABLE = (
    *(tarfile.TarError, zlib.error, EOFError, OSError, MemoryError),
    # What tarfile lets through where the extended headers of a member hold nonsense.
    *(ValueError, OverflowError, TypeError, LookupError, AttributeError, RecursionError),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedChart:
    """A chart that may be installed: what it is, and its archive on our disk."""

    identity: ChartIdentity
    path: Path
    sha256: str


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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._helm = helm
        self._resolve_seconds = resolve_seconds
        self._failure_seconds = failure_seconds
        self._monotonic = monotonic
        self._entries: dict[ChartSource, _Entry] = {}
        self._folder: Path | None = None

    async def get(self, source: ChartSource) -> CachedChart:
        """Give the chart of a source; raise ChartError where it cannot be had.

        The newest version, once resolved, is looked up again when its time is over, beside the passes: they are
        given the one at hand.
        """
        entry = self._entries.setdefault(source, _Entry())
        entry.used_at = self._monotonic()
        if entry.chart is not None and (source.version or self._is_fresh(entry)):
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
            entry.error.with_traceback(None) if entry.error else _problem(source, "it is still being fetched")
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
        except HelmError as error:
            entry.error = _problem(source, error.failure.value)
            entry.error.__cause__ = error
        except OSError as error:
            entry.error = _problem(source, "it cannot be kept on our disk")
            entry.error.__cause__ = error
        finally:
            entry.failed_at = self._monotonic()
            entry.task = None

    async def _fetch(self, source: ChartSource, known: CachedChart | None) -> CachedChart:
        async with self._helm.fetching(f"chart {source}") as fetch:
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


def choose_version(index: bytes, source: ChartSource) -> tuple[str, str]:
    """Give the wanted or the newest version of a chart that a repository's index lists, and its digest ("": none).

    As helm does, the newest is never a pre-release. Raises ChartError.
    """
    wanted = source.version.removeprefix("v")
    try:
        # Of versions that are listed twice, the first: so does `max`.
        version, digest = max(
            (listed for listed in _iterate_listed(index, source.name) if _is_candidate(listed[0], wanted)),
            key=lambda listed: _precedence(listed[0]),
            default=("", ""),
        )
    except YamlRefusedError:
        raise _problem(source, "the repository's index cannot be read") from None
    if not version:
        raise _problem(source, "the repository does not list it")
    return version, digest.removeprefix("sha256:")


def _iterate_listed(index: bytes, chart: str) -> Iterator[tuple[str, str]]:
    # Never the index as a whole: its objects take thirty times its size, which our container does not have.
    scalars = iterate_yaml_scalars(index, below=("entries", chart), max_bytes=_MAX_INDEX_BYTES)
    for position, group in itertools.groupby(scalars, key=lambda scalar: scalar[0][:1]):
        fields = {place[1:]: value for place, value in group if place[1:] in (("version",), ("digest",))}
        version = fields.get(("version",))
        if isinstance(version, str) and position and isinstance(position[0], int):
            yield version, str(fields.get(("digest",)) or "")


def _is_candidate(version: str, wanted: str) -> bool:
    if wanted:
        return version.removeprefix("v") == wanted
    match = _SEMVER.fullmatch(version)
    return match is not None and not match[4]


def verify_archive(archive: Path, source: ChartSource, version: str, sha256: str) -> CachedChart:
    """Check that an archive is the chart that was asked for, and of a sensible size; give what it is.

    Its identity is a digest over the contents of its files: packed again, it is the same chart. Raises ChartError.
    """
    with archive.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 and found != sha256:
        raise _problem(source, "the archive is not the one that the repository's index describes")
    files = _read_files(archive, source)
    try:
        metadata = parse_yaml_mapping(files.get("Chart.yaml", b"").decode())
    except (YamlRefusedError, UnicodeDecodeError):
        raise _problem(source, "its Chart.yaml cannot be read") from None
    if metadata.get("name") != source.name or str(metadata.get("version")).removeprefix(
        "v"
    ) != version.removeprefix("v"):
        raise _problem(source, "the archive holds another chart or version")
    content = hashlib.sha256()
    for name in sorted(files):
        content.update(f"{name}\n{hashlib.sha256(files[name]).hexdigest()}\n".encode())
    identity = ChartIdentity(name=source.name, version=str(metadata["version"]), content=content.hexdigest())
    return CachedChart(identity=identity, path=archive, sha256=found)


class _Unpacked(io.RawIOBase):
    """An archive as it unpacks, up to a limit: a header of a member may say that it has gigabytes."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int = -1) -> bytes:
        """Give the next bytes. Raises _TooLargeError."""
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise _TooLargeError
        return data


class _TooLargeError(Exception):
    """An archive unpacks to more than is read."""


def _read_files(archive: Path, source: ChartSource) -> dict[str, bytes]:
    """Give the files of a chart's archive by their path below the chart's own folder. Raises ChartError."""
    files: dict[str, bytes] = {}
    too_large = _problem(source, f"it holds more than {_MAX_CHART_FILES} files or {_MAX_CHART_BYTES} bytes")
    try:
        with (
            gzip.open(archive) as packed,
            tarfile.open(fileobj=_Unpacked(packed, _MAX_CHART_BYTES), mode="r|") as tar,
        ):
            for member in tar:
                if len(files) >= _MAX_CHART_FILES:
                    raise too_large
                stream = tar.extractfile(member) if member.isfile() else None
                if stream is not None:
                    files["/".join(PurePosixPath(member.name).parts[1:])] = stream.read()
    except _TooLargeError:
        raise too_large from None
    except _UNREADABLE as error:
        raise _problem(source, "the archive cannot be read") from error
    return files


def _precedence(version: str) -> tuple[int, int, int, bool, str]:
    match = _SEMVER.fullmatch(version)
    if match is None:
        return 0, 0, 0, False, version
    return int(match[1]), int(match[2]), int(match[3]), match[4] is None, version


def _problem(source: ChartSource, reason: str) -> ChartError:
    return ChartError(source=str(source), version=source.version, reason=reason)
