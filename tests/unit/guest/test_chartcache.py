"""Which version of a chart is taken, and which archive is not."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fipop.errors import ChartError
from fipop.guest.chartcache import choose_version, verify_archive
from fipop.guest.charts import ChartSource

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
