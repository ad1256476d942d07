"""Where Rancher's proxy leads for each guest, what it has seen there, and what harm it does."""

import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from localfleet.controlplane import ControlPlane
from localfleet.simulated import SimulatedGuest

_REMEMBERED_REQUESTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A guest's real API server, and what the proxy shows there: a token, or a certificate in `tls`."""

    url: str
    tls: ssl.SSLContext
    token: str | None = None


def upstream_of(plane: ControlPlane) -> Upstream:
    """The way into a control plane of ours, as its administrator."""
    tls = ssl.create_default_context(cadata=plane.ca_pem.decode())
    tls.load_cert_chain(plane.files.certificate("admin"), plane.files.key("admin"))
    return Upstream(url=plane.url, tls=tls)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """A request as it came in: `path` is the guest's (without the prefix), `at` is monotonic seconds."""

    method: str
    path: str
    query: str
    user_agent: str
    at: float

    @property
    def is_write(self) -> bool:
        """Whether the request asks for a change."""
        return self.method not in ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Harm to a guest's traffic; what is set applies together, `delay_seconds` first.

    `lose_answer` lets the guest do the work and then cuts the connection. `only` narrows the harm to the
    requests for which it says yes; `times` ends it after so many.
    """

    delay_seconds: float = 0.0
    hang: bool = False
    refuse: bool = False
    status: int | None = None
    lose_answer: bool = False
    bytes_per_second: float | None = None
    times: int | None = None
    only: Callable[[SeenRequest], bool] | None = None


@dataclass(slots=True, kw_only=True)
class GuestRoute:
    """What the proxy knows of one guest. Set `fault` to hurt it, `connected=False` to cut its tunnel."""

    cluster_id: str
    target: Upstream | SimulatedGuest
    fault: Fault | None = None
    connected: bool = True
    provisioned: bool = True
    requests: deque[SeenRequest] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_REQUESTS))
    _hurt: int = 0

    def harm_for(self, seen: SeenRequest) -> Fault | None:
        """Answer the fault that applies to this request and count it."""
        fault = self.fault
        if fault is None or (fault.only is not None and not fault.only(seen)):
            return None
        self._hurt += 1
        if fault.times is not None and self._hurt >= fault.times:
            self.fault, self._hurt = None, 0
        return fault
