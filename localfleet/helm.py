"""Real helm for the fleet's own needs: packing charts, pushing them, installing fipop's chart."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localfleet.errors import ToolFailedError
from localfleet.guard import guarded

CHARTS = Path(__file__).parent / "charts"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartVersion:
    """A version under which one of our charts is published, as its real namesake was."""

    name: str
    version: str
    app_version: str


KUBE_VIP_OLD = ChartVersion(name="kube-vip", version="0.9.9", app_version="v1.0.4")
KUBE_VIP = ChartVersion(name="kube-vip", version="0.11.0", app_version="v1.2.2")
CLOUD_PROVIDER_OLD = ChartVersion(name="kube-vip-cloud-provider", version="0.2.9", app_version="v0.0.11")
CLOUD_PROVIDER = ChartVersion(name="kube-vip-cloud-provider", version="0.2.10", app_version="v0.0.12")
PUBLISHED = (KUBE_VIP_OLD, KUBE_VIP, CLOUD_PROVIDER_OLD, CLOUD_PROVIDER)
"""What a freshly made repository serves: of each chart the version before and the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """The helm program with settings and cache of its own in the folder `home`, none of the user's."""

    program: Path
    home: Path

    async def run(self, *arguments: str | Path, environment: Mapping[str, str] | None = None) -> str:
        """Run helm to its end and answer what it wrote to stdout. Raises ToolFailedError."""
        argv = [str(self.program), *(str(one) for one in arguments)]
        process = await asyncio.create_subprocess_exec(
            *guarded(argv),
            env=self._environment(environment or {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode:
            raise ToolFailedError(
                argv=argv, returncode=process.returncode, output=(output + errors).decode(errors="replace")
            )
        return output.decode()

    async def pack(self, chart: ChartVersion, target: Path, *, source: Path = CHARTS) -> Path:
        """Pack the chart of that name below `source` as `<name>-<version>.tgz` into the folder `target`."""
        await self.run(
            "package",
            source / chart.name,
            "--version",
            chart.version,
            "--app-version",
            chart.app_version,
            "--destination",
            target,
        )
        return target / f"{chart.name}-{chart.version}.tgz"

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        home = str(self.home)
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
        own = {f"HELM_{kind}_HOME": f"{home}/{kind.lower()}" for kind in ("CACHE", "CONFIG", "DATA")}
        return {**kept, "HOME": home, **own, **extra}
