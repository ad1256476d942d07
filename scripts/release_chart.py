"""The chart of a release: it names the released image by digest, and its archive is the same whenever it is made."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from pathlib import Path

from scripts.release_tools import ReleaseError, capture

_IMAGE = re.compile(
    r'(?P<before>^image:\n  repository: )\S+(?P<between>\n(?:  .*\n)*?  digest: )""$', re.MULTILINE
)


def name_image(values: str, *, repository: str, digest: str) -> str:
    """Return the text of values.yaml with the image of a release as its default.

    Raises: ReleaseError
    """
    named, count = _IMAGE.subn(rf'\g<before>{repository}\g<between>"{digest}"', values)
    if count != 1:
        raise ReleaseError('values.yaml must have image.repository, and image.digest: "".')
    return named


def pack_chart(helm: Path, source: Path, target: Path, *, epoch: int) -> Path:
    """Pack the chart in `source` into the folder `target`, with `epoch` as the time of all that is in it.

    Raises: ToolFailedError
    """
    capture((str(helm), "package", str(source), "--destination", str(target)))
    (archive,) = target.glob("*.tgz")
    archive.write_bytes(normalize(archive.read_bytes(), epoch=epoch))
    # helm takes the archive's time for the time at which the chart was made, when it pushes it.
    os.utime(archive, (epoch, epoch))
    return archive


def normalize(archive: bytes, *, epoch: int) -> bytes:
    """Return a packed chart with the same files in order of their names, all of the time `epoch`.

    helm writes the present time into each entry.
    """
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as before,
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda each: each.name):
            entry = tarfile.TarInfo(member.name)
            entry.size, entry.mtime, entry.mode = member.size, epoch, 0o644
            after.addfile(entry, before.extractfile(member))
    return packed.getvalue()
