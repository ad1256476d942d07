"""Charts as sources give them: versions of an index, archives that are read within bounds."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fipop.guest.errors import ChartError
from fipop.guest.helm.charts import ChartIdentity, ChartSource
from fipop.settings.yaml import YamlRefusedError, iterate_yaml_scalars, parse_yaml_mapping

_MAX_CHART_BYTES = 32 * 1024 * 1024
_MAX_CHART_FILES = 2000
_MAX_ARCHIVE_BYTES = 64 * 1024 * 1024
_MAX_INDEX_BYTES = 16 * 1024 * 1024
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
        raise chart_problem(source, "could not read the index of the repository") from None
    if not version:
        raise chart_problem(source, "the repository does not list it")
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


def copy_archive(mounted: Path, target: Path, source: ChartSource) -> None:
    """Copy an archive that is mounted into our pod. Raises ChartError."""
    try:
        with mounted.open("rb") as stream:
            content = stream.read(_MAX_ARCHIVE_BYTES + 1)
    except OSError as error:
        raise chart_problem(
            source, "the file does not exist in the pod of the operator, or fipop cannot read it"
        ) from error
    if len(content) > _MAX_ARCHIVE_BYTES:
        raise chart_problem(source, f"the archive has more than {_MAX_ARCHIVE_BYTES} bytes")
    target.write_bytes(content)


def verify_archive(archive: Path, source: ChartSource, version: str, sha256: str) -> CachedChart:
    """Check that an archive is the chart that was asked for, and of a sensible size; give what it is.

    Its identity is a digest over the contents of its files: packed again, it is the same chart. Raises ChartError.
    """
    with archive.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 and found != sha256:
        raise chart_problem(source, "the archive has another digest than the index of the repository")
    if source.sha256 and found != source.sha256:
        reason = f"the archive has digest sha256:{found}, and the options have another"
        raise chart_problem(source, reason, "ChartDigestMismatch")
    files = _read_files(archive, source)
    try:
        metadata = parse_yaml_mapping(files.get("Chart.yaml", b"").decode())
    except (YamlRefusedError, UnicodeDecodeError):
        raise chart_problem(source, "could not read its Chart.yaml") from None
    is_named_so = metadata.get("name") == source.name
    # Of an archive that is mounted nobody but itself tells the version.
    version = version or str(metadata.get("version"))
    if not is_named_so or str(metadata.get("version")).removeprefix("v") != version.removeprefix("v"):
        raise chart_problem(source, "the archive holds another chart or version")
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
    too_large = chart_problem(
        source, f"it holds more than {_MAX_CHART_FILES} files or {_MAX_CHART_BYTES} bytes"
    )
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
        raise chart_problem(source, "could not read the archive") from error
    return files


def _precedence(version: str) -> tuple[int, int, int, bool, str]:
    match = _SEMVER.fullmatch(version)
    if match is None:
        return 0, 0, 0, False, version
    return int(match[1]), int(match[2]), int(match[3]), match[4] is None, version


def chart_problem(source: ChartSource, reason: str, condition: str = "ReleaseFailed") -> ChartError:
    """Give the error of a source."""
    return ChartError(source=str(source), version=source.version, reason=reason, condition=condition)
