"""How kopf is run here: it watches and calls back, and nothing else."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import kopf

from fipop.api.names import GROUP
from fipop.backoff import Delays


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTimes:
    """Seconds. The server ends each watch after `server_seconds`; what lasts longer is frozen and given up.

    kopf is taken to hang when it neglects a resource for `idle_seconds` beyond the longest back-off.
    """

    server_seconds: int = 60
    client_seconds: float = 75.0
    connect_seconds: float = 10.0
    request_seconds: float = 30.0
    first_backoff_seconds: float = 0.5
    longest_backoff_seconds: float = 10.0
    idle_seconds: float = 15.0
    stop_seconds: float = 5.0


def build_kopf_settings(times: WatchTimes, delays: Delays) -> kopf.OperatorSettings:
    """Build settings for a kopf that only watches, and has no say in how the process ends."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.watching.server_timeout = times.server_seconds
    settings.watching.client_timeout = times.client_seconds
    # Never together with the client's: kopf would take the two for one, and fail at the next event.
    settings.watching.inactivity_timeout = 2 * times.client_seconds
    settings.watching.connect_timeout = times.connect_seconds
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = times.request_seconds
    settings.networking.connect_timeout = times.connect_seconds
    settings.networking.error_backoffs = delays
    settings.queueing.exit_timeout = 1.0
    # A worker lives for each object that has news; after a list of thousands they must be gone at once.
    settings.queueing.idle_timeout = 0.05
    # kopf's last resort is a SIGKILL to the whole process, also when a single watch of its died.
    settings.process.ultimate_exiting_timeout = None
    # kopf removes its finalizer where no handler needs one: the default name may be another operator's.
    settings.persistence.finalizer = f"{GROUP}/unused"
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    return settings


class _NoDiffBase(kopf.DiffBaseStorage):
    """Keeps kopf from copying every object of every event to compare it with what we never ask for."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Find nothing essential."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Remember nothing."""

    def store(self, **_: Any) -> None:
        """Store nothing."""


class _NoProgress(kopf.ProgressStorage):
    """No handler of ours has progress: nothing is read from objects, nothing written to them."""

    def fetch(self, **_: Any) -> None:
        """Remember nothing."""

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Remove nothing."""

    def touch(self, **_: Any) -> None:
        """Change nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Leave all as it is."""
        return essence


def quieten_kopf() -> None:
    """Keep kopf's own words out of the log where ours say the same, or where nobody needs to know.

    A line per event and handler; one per failed attempt, and five per watch that died, with the server's words in
    them: what is worth knowing of that, `streams` and this module say once.
    """
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    logging.getLogger("kopf.activities").setLevel(logging.WARNING)
    logging.getLogger("kopf._core").setLevel(logging.CRITICAL)
    logging.getLogger("kopf._cogs").setLevel(logging.CRITICAL)
