"""What a mode of the cloud provider gives to the process that it runs in."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from fipop.kube.client import KubeClient
from fipop.metrics.services import ServiceSnapshot


class Mode(Protocol):
    """One of the programs whose place the role takes."""

    async def load(self) -> None:
        """Read what it needs before it can work. ApiError."""

    def follow(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Give what keeps up with the cluster, for ever, whether this replica leads or not."""

    async def work(self, client: KubeClient) -> None:
        """Serve Services while this replica leads, until cancelled; `client` writes only then."""

    def last_heard(self) -> Mapping[str, float | None]:
        """Give the monotonic time of each watch's last sign of life; None before the first."""

    def snapshot(self) -> ServiceSnapshot | None:
        """Give what the metrics show; None while this replica does not work."""
