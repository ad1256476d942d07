"""The chart of a release names the image by digest, and its archive does not show when it was packed."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
import yaml

from scripts.release_chart import name_image, normalize
from scripts.release_tools import ReleaseError

VALUES = (Path(__file__).parents[3] / "values.yaml").read_text()
DIGEST = f"sha256:{'0a' * 32}"
EPOCH = 1_700_000_000


def test_the_values_name_the_image_of_the_release_and_are_otherwise_the_same() -> None:
    before = yaml.safe_load(VALUES)
    named = name_image(VALUES, repository="registry.example/platform/fipop", digest=DIGEST)
    after = yaml.safe_load(named)
    assert after["image"] == {
        **before["image"],
        "repository": "registry.example/platform/fipop",
        "digest": DIGEST,
    }
    assert {**after, "image": None} == {**before, "image": None}
    assert len(named.splitlines()) == len(VALUES.splitlines()), "comments stay"


@pytest.mark.parametrize(
    "values", ["replicas: 2\n", "image:\n  repository: fipop\n", "other:\n  repository: a\n  digest: ''\n"]
)
def test_values_without_an_image_are_refused(values: str) -> None:
    with pytest.raises(ReleaseError, match=r"image\.repository"):
        name_image(values, repository="registry.example/fipop", digest=DIGEST)


def pack(files: dict[str, bytes], mtime: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.uname = len(content), mtime, "somebody"
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def test_two_archives_of_the_same_files_are_the_same() -> None:
    files = {"fipop/Chart.yaml": b"name: fipop", "fipop/templates/a.yaml": b"a", "fipop/crds/b.yaml": b""}
    first = normalize(pack(files, 1), epoch=EPOCH)
    second = normalize(pack(dict(reversed(files.items())), 2), epoch=EPOCH)
    assert first == second
    assert normalize(pack({**files, "fipop/crds/b.yaml": b"b"}, 1), epoch=EPOCH) != first
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(first))) as archive:
        found = {
            each.name: (archive.extractfile(each) or io.BytesIO(b"?")).read() for each in archive.getmembers()
        }
        assert {(each.mtime, each.mode, each.uname) for each in archive.getmembers()} == {(EPOCH, 0o644, "")}
    assert found == files
