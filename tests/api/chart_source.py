"""A local chart repository for operators that run under test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from localfleet.assets import ensure
from localfleet.chartrepo import ChartRepository
from localfleet.helm import PUBLISHED, Helm

INSTALLABLE = {
    "kubevipChartValues": "env: {vip_interface: eth0}\n",
    "kubevipCloudProviderChartValues": "replicasCount: 1\n",
}
"""Options with which both charts run on the nodes of the fleet."""


async def pack_charts(folder: Path) -> list[Path]:
    """Pack all that is published, into this folder: helm makes it."""
    helm = Helm(program=ensure("helm"), home=folder / "home")
    return [await helm.pack(chart, folder) for chart in PUBLISHED]


@asynccontextmanager
async def chart_repository(archives: list[Path]) -> AsyncIterator[ChartRepository]:
    """Serve these archives over HTTP."""
    async with ChartRepository() as repository:
        for archive in archives:
            repository.publish(archive)
        yield repository
