"""Archives and indexes of charts, whatever bytes they are of."""

import contextlib
import gzip
import hashlib
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.guest.errors import ChartError
from fipop.guest.helm.chart_archives import choose_version, verify_archive
from fipop.guest.helm.charts import ChartSource
from tests.unit.guest.helm.archives import SOURCE, index, pack

CHART_YAML = "name: kube-vip\nversion: 0.11.0\n"


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


@pytest.mark.parametrize("charts", [300, pytest.param(1, marks=pytest.mark.slow)])
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
    with pytest.raises(ChartError):
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
    files = {"Chart.yaml": CHART_YAML.encode()}
    verify_archive(pack(tmp_path, files), SOURCE, "0.11.0", "")
    with pytest.raises(ChartError):
        verify_archive(pack(tmp_path, {**files, "bomb": b"\0" * 40 * 1024 * 1024}), SOURCE, "0.11.0", "")


@pytest.mark.parametrize("content", [b"", b"plain", b"\x1f\x8b\x08\x00"])
def test_what_is_no_archive_is_our_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.tgz"
    path.write_bytes(content)
    with pytest.raises(ChartError):
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
    with pytest.raises(ChartError):
        verify_archive(path, SOURCE, "0.11.0", "")


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
        200_000_000,
    ],
)
def test_headers_of_an_archive_that_lie_are_the_charts_error(tmp_path: Path, content: bytes | int) -> None:
    """A number stands for so many zero bytes, which are not kept from the collection to the end."""
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(bytes(content), 1))
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
