"""Programs in helm's place, which tell how they were run."""

import asyncio
from pathlib import Path
from typing import Any

from fipop.guest.helm.guest_process import HelmTarget
from fipop.guest.helm.releases import parse_record
from fipop.guest.helm.runner import ReleaseOrder
from fipop.kube.guests import GuestAccess
from tests.unit.guest.conftest import release_secret

GUEST = GuestAccess("https://127.0.0.1:1/k8s/clusters/c-m-a", "verysecret")


RECORD = parse_record(release_secret())


assert RECORD is not None


TELL = """\
#!/bin/sh
# Tells what it was given and goes on as {after}.
{{ printf '%s\\0' "$@"; }} > {folder}/argv
env -0 > {folder}/env
cat > {folder}/stdin
[ -z "$KUBECONFIG" ] || cat "$KUBECONFIG" > {folder}/kubeconfig
[ -z "$KUBECONFIG" ] || stat -c %a "$KUBECONFIG" "$HOME" > {folder}/modes
{after}
"""


class Stub:
    """A program in helm's place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "helm"

    def make(self, after: str = "echo '{}'") -> str:
        self.program.write_text(TELL.format(folder=self.folder, after=after))
        self.program.chmod(0o755)
        return str(self.program)

    def told(self, what: str) -> list[str]:
        return [part for part in (self.folder / what).read_text().split("\0") if part]

    @property
    def env(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.told("env"))


def order(tmp_path: Path, **values: Any) -> ReleaseOrder:
    return ReleaseOrder(
        name="kube-vip",
        namespace="networking",
        chart=tmp_path / "chart.tgz",
        values=values,
        labels={"example.org/role": "vip", "example.org/digest": "abc"},
    )


def target(seconds: float = 60.0) -> HelmTarget:
    return HelmTarget(access=GUEST, deadline=asyncio.get_running_loop().time() + seconds)
