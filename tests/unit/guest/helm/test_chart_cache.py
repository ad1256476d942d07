"""Which version of a chart is taken, and which archive is not."""

import asyncio
import contextlib
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fipop.errors import ChartError
from fipop.guest.helm.chart_archives import choose_version, verify_archive
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.charts import ChartSource
from fipop.guest.helm.runner import HelmRunner
from localfleet.waiting import eventually

SOURCE = ChartSource(name="kube-vip", repo_url="https://charts.example")
CHART_YAML = "name: kube-vip\nversion: 0.11.0\n"


def index(*versions: str, name: str = "kube-vip") -> bytes:
    entries = [{"version": version, "digest": f"sha-{version}"} for version in versions]
    return yaml.safe_dump({"apiVersion": "v1", "entries": {name: entries}}).encode()


def pinned(version: str) -> ChartSource:
    return ChartSource(name="kube-vip", repo_url="https://charts.example", version=version)


def test_the_newest_is_by_precedence_and_no_pre_release() -> None:
    versions = ("0.9.9", "0.11.0", "0.10.12", "1.0.0-rc.1", "nonsense", "v0.2.0")
    assert choose_version(index(*versions), SOURCE) == ("0.11.0", "sha-0.11.0")


@pytest.mark.parametrize(
    ("asked", "given"), [("0.9.9", "0.9.9"), ("v0.9.9", "0.9.9"), ("1.0.0-rc.1", "1.0.0-rc.1")]
)
def test_a_version_that_is_asked_for_is_taken_as_it_is_listed(asked: str, given: str) -> None:
    assert choose_version(index("0.11.0", "0.9.9", "1.0.0-rc.1"), pinned(asked))[0] == given
    assert choose_version(index("v0.9.9"), pinned("0.9.9"))[0] == "v0.9.9"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"entries: 7",
        b"entries: {kube-vip: 7}",
        b"entries: {kube-vip: [7, {}, {version: 7}]}",
        b"{",
        b"\xff",
        index("1.0.0", name="other"),
        index("1.0.0-rc.1"),
    ],
)
def test_an_index_that_does_not_list_it_is_our_error(content: bytes) -> None:
    with pytest.raises(ChartError):
        choose_version(content, SOURCE)


@given(st.binary(max_size=200))
def test_an_index_of_any_bytes_is_our_error(content: bytes) -> None:
    with pytest.raises(ChartError):
        choose_version(content, SOURCE)


@pytest.mark.parametrize(
    ("content", "given"),
    [
        (b"entries: {kube-vip: [{version: 1.0.0, digest: a}, {digest: b, version: 1.0.0}]}", ("1.0.0", "a")),
        (
            b"entries: {kube-vip: [{digest: sha256:a, urls: [{version: 3.0.0}], version: 1.0.0}]}",
            ("1.0.0", "a"),
        ),
        (b"entries: {other: [{version: 3.0.0}], kube-vip: [{version: 2.0.0}, {digest: a}]}", ("2.0.0", "")),
        (b"kube-vip: [{version: 3.0.0}]\nentries: {kube-vip: [{version: 2.0.0, digest: ~}]}", ("2.0.0", "")),
    ],
)
def test_a_version_and_its_digest_are_of_one_item_of_the_charts_own_list(
    content: bytes, given: tuple[str, str]
) -> None:
    assert choose_version(content, SOURCE) == given


CHOOSE = """
import resource, sys
from fipop.guest.helm.chart_archives import choose_version
from fipop.guest.helm.charts import ChartSource
content = sys.stdin.buffer.read()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
print(*choose_version(content, ChartSource(name="kube-vip", repo_url="https://charts.example")), peak() - before)
"""


@pytest.mark.parametrize("charts", [300, 1])
def test_an_index_of_megabytes_costs_no_memory_beside_it(charts: int) -> None:
    """Built as a whole it took thirty times its size: 520 MiB, of the container's 512."""
    versions = [
        f"  - {{version: 1.{number}.0, digest: a{number:063}, keywords: [a, b, c, d]}}"
        for number in range(400)
    ]
    listing = "\n".join(versions * (300 // charts))
    lists = [f"  {'kube-vip' if number == 0 else f'chart-{number}'}:\n{listing}" for number in range(charts)]
    content = "\n".join(["entries:", *lists]).encode()
    assert len(content) > 12_000_000
    ended = subprocess.run([sys.executable, "-c", CHOOSE], input=content, capture_output=True, check=True)
    version, digest, growth_mib = ended.stdout.split()
    assert (version, digest) == (b"1.399.0", f"a{399:063}".encode())
    assert int(growth_mib) < 64


def pack(
    folder: Path, files: dict[str, bytes], *, root: str = "kube-vip", mtime: int = 0, name: str = "a.tgz"
) -> Path:
    path = folder / name
    with tarfile.open(path, "w:gz") as archive:
        for file, content in files.items():
            member = tarfile.TarInfo(f"{root}/{file}")
            member.size, member.mtime = len(content), mtime
            archive.addfile(member, io.BytesIO(content))
    return path


def test_packed_again_it_is_the_same_chart(tmp_path: Path) -> None:
    files = {"Chart.yaml": CHART_YAML.encode(), "templates/a.yaml": b"a"}
    first = verify_archive(pack(tmp_path, files), SOURCE, "0.11.0", "")
    again = dict(reversed(files.items()))
    second = verify_archive(pack(tmp_path, again, root="other", mtime=9, name="b.tgz"), SOURCE, "v0.11.0", "")
    assert first.identity == second.identity
    changed = files | {"templates/a.yaml": b"b"}
    assert verify_archive(pack(tmp_path, changed), SOURCE, "0.11.0", "").identity != first.identity


def test_the_digest_of_the_index_is_held_to(tmp_path: Path) -> None:
    path = pack(tmp_path, {"Chart.yaml": CHART_YAML.encode()})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert verify_archive(path, SOURCE, "0.11.0", digest).sha256 == digest
    with pytest.raises(ChartError, match="not the one"):
        verify_archive(path, SOURCE, "0.11.0", "0" * 64)


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"Chart.yaml": CHART_YAML.encode()}, "0.12.0"),
        ({"Chart.yaml": b"name: other\nversion: 0.11.0\n"}, "0.11.0"),
        ({"Chart.yaml": b"{"}, "0.11.0"),
        ({"Chart.yaml": b"\xff"}, "0.11.0"),
        ({"values.yaml": b""}, "0.11.0"),
        ({f"file-{number}": b"" for number in range(2001)}, "0.11.0"),
    ],
)
def test_an_archive_that_is_not_what_was_asked_for_is_refused(
    tmp_path: Path, files: dict[str, bytes], version: str
) -> None:
    with pytest.raises(ChartError):
        verify_archive(pack(tmp_path, files), SOURCE, version, "")


def test_an_archive_that_unpacks_to_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(ChartError, match="more than"):
        verify_archive(pack(tmp_path, {"bomb": b"\0" * 40 * 1024 * 1024}), SOURCE, "0.11.0", "")


@pytest.mark.parametrize("content", [b"", b"plain", b"\x1f\x8b\x08\x00"])
def test_what_is_no_archive_is_our_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.tgz"
    path.write_bytes(content)
    with pytest.raises(ChartError, match="cannot be read"):
        verify_archive(path, SOURCE, "0.11.0", "")


def test_an_archive_with_a_damaged_middle_is_our_error(tmp_path: Path) -> None:
    """zlib has an exception of its own; without a digest in the index nothing stood before it."""
    path = pack(tmp_path, {"Chart.yaml": CHART_YAML.encode(), "values.yaml": bytes(range(256)) * 400})
    content = gzip.decompress(path.read_bytes())
    packed = gzip.compress(content, 1, mtime=0)
    for place in range(10, len(packed)):
        path.write_bytes(packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :])
        with contextlib.suppress(ChartError):
            verify_archive(path, SOURCE, "0.11.0", "")
    path.write_bytes(packed[:10] + b"\xff" * 40 + packed[50:])
    with pytest.raises(ChartError, match="cannot be read"):
        verify_archive(path, SOURCE, "0.11.0", "")


class Source:
    """A chart repository, as a helm program that reads what stands in a folder; it hangs where `hang` is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = 1000.0
        program = folder / "helm"
        program.write_text(
            "#!/bin/sh\n"
            f'cd "{folder}"\n'
            "echo >>runs\n"
            "if [ -e hang ]; then exec sleep 60; fi\n"
            'case "$1" in\n'
            'repo) mkdir -p "$HELM_CACHE_HOME/repository" && '
            'cp index.yaml "$HELM_CACHE_HOME/repository/charts-index.yaml";;\n'
            'pull) for folder in "$@"; do :; done; cp kube-vip.tgz "$folder/";;\n'
            "esac\n"
        )
        program.chmod(0o755)
        self.offer("0.11.0")
        self.cache = ChartCache(HelmRunner(str(program), environ={}), monotonic=lambda: self.clock)

    def offer(self, version: str, *, digest: str = "") -> None:
        chart = f"name: kube-vip\nversion: {version}\n".encode()
        archive = pack(self.folder, {"Chart.yaml": chart}, name="kube-vip.tgz")
        digest = digest or hashlib.sha256(archive.read_bytes()).hexdigest()
        entries = {"kube-vip": [{"version": version, "digest": digest}]}
        (self.folder / "index.yaml").write_text(yaml.safe_dump({"entries": entries}))

    def hang(self) -> None:
        (self.folder / "hang").touch()

    @property
    def runs(self) -> int:
        runs = self.folder / "runs"
        return len(runs.read_text()) if runs.exists() else 0

    def kept(self) -> list[Path]:
        return list((self.folder / "temporary").glob("fipop-*/charts-*/*"))

    async def version(self) -> str:
        return (await self.cache.get(SOURCE)).identity.version


@pytest_asyncio.fixture
async def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Source]:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    source = Source(tmp_path)
    yield source
    await source.cache.close()
    assert not list((tmp_path / "temporary").iterdir()), "nothing stays on the disk"


async def test_a_chart_at_hand_is_given_at_once_while_a_newer_one_is_looked_for(source: Source) -> None:
    assert await source.version() == "0.11.0"
    source.hang()
    source.clock += 1000
    async with asyncio.timeout(1):
        assert [await source.version() for _ in range(3)] == ["0.11.0"] * 3


async def test_a_newer_chart_takes_the_place_of_the_one_at_hand(source: Source) -> None:
    for number in range(1, 5):
        source.offer(f"0.{number}.0")
        source.clock += 1000
        await source.version()

        async def is_taken(version: str = f"0.{number}.0") -> bool:
            return await source.version() == version

        await eventually(is_taken, what="the newer chart")
    assert len(source.kept()) == 2, "it, and the one before that a helm may be installing"


async def test_a_fetch_that_hangs_is_waited_for_from_its_start_and_not_by_each_pass_anew(
    source: Source,
) -> None:
    source.hang()
    first = asyncio.create_task(source.version())

    async def is_fetching() -> bool:
        return source.runs == 1

    await eventually(is_fetching, what="the fetch")
    source.clock += 20.5
    async with asyncio.timeout(1):
        with pytest.raises(ChartError, match="still being fetched"):
            await source.version()
    first.cancel()
    assert source.runs == 1


async def test_a_failed_fetch_leaves_nothing_and_its_cause_is_told_while_it_is_tried_again(
    source: Source,
) -> None:
    source.offer("0.11.0", digest="0" * 64)
    with pytest.raises(ChartError, match="not the one"):
        await source.version()
    assert source.kept() == []
    source.hang()
    source.clock += 31
    again = asyncio.create_task(source.version())
    await asyncio.sleep(0)
    source.clock += 21
    with pytest.raises(ChartError, match="not the one"):
        await source.version()
    again.cancel()


@pytest.mark.parametrize("version", ["9" * 5000 + ".0.0", "1." + "9" * 5000 + ".0", "1.0.0-" + "9" * 5000])
def test_a_version_of_thousands_of_digits_is_none(version: str) -> None:
    with pytest.raises(ChartError):
        choose_version(index(version), SOURCE)


def header(name: bytes, size: bytes, kind: bytes) -> bytes:
    block = bytearray(512)
    block[:100], block[124:136], block[156:157] = name.ljust(100, b"\0"), size.ljust(12, b"\0"), kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def extended(content: bytes) -> bytes:
    return header(b"pax", b"%o" % len(content), b"x") + content.ljust(-(-len(content) // 512) * 512, b"\0")


@pytest.mark.parametrize(
    "content",
    [
        extended(b"20 mtime=notanumber\n") + header(b"kube-vip/Chart.yaml", b"0", b"0"),
        extended(b"14 size=-1024\n") + header(b"kube-vip/Chart.yaml", b"0", b"0"),
        extended(b"99999999999999999999 path=x\n"),
        extended(b"0 path=x\n"),
        extended(b"5000 size=" + b"9" * 4989 + b"\n") + header(b"kube-vip/Chart.yaml", b"0", b"0"),
        extended(b"30 GNU.sparse.size=x\n" + b"30 GNU.sparse.major=1\n" * 9) + header(b"x", b"0", b"0"),
        header(b"pax", b"77777777777", b"x"),
        header(b"kube-vip/Chart.yaml", b"-1", b"0"),
        header(b"kube-vip/Chart.yaml", b"\xff" * 12, b"0"),
        header(b"x", b"0", b"S"),
        header(b"L", b"77777777777", b"L"),
        b"\0" * 200_000_000,
    ],
)
def test_headers_of_an_archive_that_lie_are_the_charts_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(content, 1))
    tracemalloc.start()
    try:
        with pytest.raises(ChartError):
            verify_archive(path, SOURCE, "1.0.0", "")
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=1500))
def test_an_archive_of_any_bytes_is_the_charts_error(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".tgz") as file:
        file.write(gzip.compress(content))
        file.flush()
        with pytest.raises(ChartError):
            verify_archive(Path(file.name), SOURCE, "1.0.0", "")
