"""Simulated guest clusters behind a proxy in Rancher's place, and their kubeconfigs."""

import base64
import json

from localfleet.proxy import Fault, RancherProxy
from localfleet.simulated import SimulatedGuest

TOKEN = "token"


def add_guest(proxy: RancherProxy, guest_id: str, *, fault: Fault | None = None) -> bytes:
    """Have a guest cluster behind the proxy, and return its kubeconfig."""
    route = proxy.add_guest(guest_id, SimulatedGuest(latency_seconds=0.01))
    route.fault = fault
    proxy.bind_token(TOKEN, guest_id)
    ca = base64.b64encode(proxy.ca_pem.encode()).decode()
    cluster = {"server": proxy.url_of(guest_id), "certificate-authority-data": ca}
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "d", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "d",
    }
    return json.dumps(kubeconfig).encode()
