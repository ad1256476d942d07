"""The port of the metrics, as the settings have it: one that is taken is tried again until it is free."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fipop.metrics.server import MetricsPortError, MetricsServer

logger = logging.getLogger(__name__)

RETRY_SECONDS = 2.0


class MetricsPort:
    """Keeps a server of metrics on the wanted port; `complain` tells people, once, that it cannot be had."""

    def __init__(
        self, server: MetricsServer, *, wanted: Callable[[], int], complain: Callable[[str], None]
    ) -> None:
        self._server = server
        self._wanted = wanted
        self._complain = complain
        self._listening: asyncio.Task[None] | None = None

    def move(self) -> None:
        """Go to the port that is wanted now."""
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.create_task(self._listen())

    async def close(self) -> None:
        """Stop serving."""
        if self._listening is not None:
            self._listening.cancel()
        await self._server.stop()

    async def _listen(self) -> None:
        told = 0
        while (port := self._wanted()) != self._server.port:
            try:
                await self._server.listen(port)
            except MetricsPortError as error:
                if port != told:
                    logger.warning("Could not change metrics port", extra={"error": str(error)})
                    self._complain(str(error))
                told = port
                await asyncio.sleep(RETRY_SECONDS)
