"""Archives and indexes of charts."""

import io
import tarfile
from pathlib import Path

import yaml

from fipop.guest.helm.charts import ChartSource

SOURCE = ChartSource(name="kube-vip", repo_url="https://charts.example")


def index(*versions: str, name: str = "kube-vip") -> bytes:
    entries = [{"version": version, "digest": f"sha-{version}"} for version in versions]
    return yaml.safe_dump({"apiVersion": "v1", "entries": {name: entries}}).encode()


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
