"""Guests of a proxy in Rancher's place, and passes over them."""

import base64
import json
from pathlib import Path

from fipop.guest.helm.chart_archives import CachedChart
from fipop.guest.helm.charts import ChartIdentity, ChartSource
from fipop.guest.release_gate import gate_of_settings
from fipop.guest.reports import GuestTask
from fipop.settings.options import DEFAULTS
from localfleet.proxy import Fault, RancherProxy
from localfleet.simulated import SimulatedGuest
from tests.harness.tasks import asking, build_task

TOKEN = "token"


def add_guest(proxy: RancherProxy, guest_id: str, *, fault: Fault | None = None) -> GuestTask:
    route = proxy.add_guest(guest_id, SimulatedGuest(latency_seconds=0.01))
    route.fault = fault
    proxy.bind_token(TOKEN, guest_id)
    ca = base64.b64encode(proxy.ca_pem.encode()).decode()
    kubeconfig = {
        "clusters": [
            {"name": "c", "cluster": {"server": proxy.url_of(guest_id), "certificate-authority-data": ca}}
        ],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "d", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "d",
    }
    return build_task(
        asking(namespace=guest_id),
        guest_id=guest_id,
        kubeconfig=json.dumps(kubeconfig).encode(),
        gate=gate_of_settings(DEFAULTS),
    )


class Charts:
    """Every chart is there at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def get(self, source: ChartSource, *, content: str = "") -> CachedChart:
        del content
        identity = ChartIdentity(name=source.name, version="1.2.3", content="c0ffee")
        return CachedChart(identity=identity, path=self._folder, sha256="")

    async def close(self) -> None:
        """Nothing was fetched."""
