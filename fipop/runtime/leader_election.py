"""One replica works, the others stand by: leader election by a Lease (coordination.k8s.io).

A process leads once. It counts its hold from before the request that gained it, by a clock that runs on while the
machine is suspended. If it cannot renew the Lease before the renew deadline, it stops its work and ends, while every
other replica still waits; a new process knows nothing but what is stored. A holder of which no renewal was seen for the
duration that it promised has stopped by its own clock: what a Lease says about times is another machine's.

The election of the kubernetes package is not used: a lost connection ends it and leaves the work running, a request may
take five minutes, and the Lease is never released.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from fipop.deadlines import (
    LEASE_DURATION_SECONDS,
    LEASE_RENEW_DEADLINE_SECONDS,
    LEASE_RENEW_SECONDS,
    LEASE_RETRY_SECONDS,
    STOP_MARGIN_SECONDS,
)
from fipop.errors import ConflictError, FipopError, NotFoundError, StartError
from fipop.jsons import Json, as_mapping
from fipop.kube.client import KubeClient
from fipop.kube.resources import LEASES

LONGEST_DURATION_SECONDS = 600
"""A Lease that promises more is wrong: no other replica could take over."""
STOP_GRACE_SECONDS = 5.0
"""What work gets to stop if the Lease is another replica's already: it looks before each write, helm ends in 3 s."""
RELEASE_SECONDS = 2.0
MOST_UNANSWERED = 8
"""How many writes are remembered whose answer was lost."""

logger = logging.getLogger(__name__)

Annotate = Callable[[Mapping[str, str], bool], Mapping[str, str]]
"""Takes the annotations of the Lease, and whether it is as this process last wrote it. Returns those to set on it; an
empty one is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Seconds. Between the renew deadline and the end of the Lease the work has time to stop.

    A new leader is there after `retry` if the former one stopped, after `duration` + 2 `retry` if it was killed.
    """

    duration_seconds: int = LEASE_DURATION_SECONDS
    renew_deadline_seconds: float = LEASE_RENEW_DEADLINE_SECONDS
    renew_seconds: float = LEASE_RENEW_SECONDS
    retry_seconds: float = LEASE_RETRY_SECONDS

    def __post_init__(self) -> None:
        if not (0 < self.retry_seconds <= self.renew_seconds < self.renew_deadline_seconds):
            raise ValueError("lease times: needed is 0 < retry <= renew < renew deadline")
        if not self.renew_deadline_seconds < self.duration_seconds:
            raise ValueError("lease times: needed is renew deadline < duration")


class LeaderElector:
    """Holds a Lease for this process.

    `identity` must be this process's alone: a restarted container is another one. `client` has connections that no
    other work takes. Each write sets what `annotate` returns, too. `end` is called if the work does not stop before
    another replica can lead.
    """

    def __init__(  # noqa: PLR0913 - the Lease, and what is outside of the process
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        random: Random,
        clock: Callable[[], float],
        end: Callable[[], None],
        times: LeaseTimes | None = None,
        annotate: Annotate = lambda _found, _is_as_written: {},
    ) -> None:
        self.place = f"Lease {namespace}/{name}"
        self.holder = ""
        """Who held it when it was last seen; "" if it is free. A Lease that vanished counts as it was seen last."""
        self._client = client
        self._namespace, self._name, self._identity = namespace, name, identity
        self._random = random
        self._times = times or LeaseTimes()
        self._clock = clock
        self._annotate = annotate
        self._end = end
        self._held_since = -math.inf
        self._lease: Json | None = None
        self._version: object = None
        self._written: list[object] = []
        """What this process wrote last: with an answer, and without one since then."""
        self._waits_until = 0.0
        """When the holder that was last seen has stopped, unless it renews the Lease."""
        self._problem = ""

    @property
    def is_foreign(self) -> bool:
        """Whether another replica was last seen holding it."""
        return self.holder not in ("", self._identity)

    def leads_for(self, seconds: float = 0.0) -> bool:
        """Return whether this replica leads, and no other one can within the next `seconds`: for use before a write."""
        age, times = self._clock() - self._held_since, self._times
        return age < times.renew_deadline_seconds and age + seconds < times.duration_seconds

    async def is_ours(self) -> bool:
        """Read the Lease; return whether it names this process. Raises: ApiError."""
        lease = await self._client.get(LEASES, self._name, namespace=self._namespace)
        return lease is not None and _holder_of(lease) == self._identity

    async def lead(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do `work` once, when this replica leads, until it ends or until cancelled; then release the Lease.

        Raises: StartError if the Lease is lost meanwhile, and what `work` raises.
        """
        while not await self._try():  # noqa: ASYNC110 - it polls the API server
            # Jitter, so that candidates do not ask in step for ever.
            await asyncio.sleep(self._times.retry_seconds * self._random.uniform(0.8, 1.0))
        logger.info("This replica leads", extra={"lease": self.place})
        working = asyncio.create_task(work())
        keeping = asyncio.create_task(self._keep())
        try:
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            keeping.cancel()
            await self._stop(working)
            logger.info("This replica stopped leading", extra={"lease": self.place})
        if working.cancelled():
            raise StartError(
                what=self.place, problem="was lost: this process ends, and a new one waits for it"
            )
        working.result()

    async def _keep(self) -> None:
        """Renew for as long as that works; return when the work has to stop."""
        while True:
            age, times = self._clock() - self._held_since, self._times
            pause = times.retry_seconds if self._problem else times.renew_seconds - age
            await asyncio.sleep(max(0.0, min(pause, times.renew_deadline_seconds - age)))
            if not self.leads_for() or not await self._try():
                return

    async def _stop(self, working: asyncio.Task[None]) -> None:
        """Stop the work before another replica can lead, then release the Lease, so that it can at once."""
        working.cancel()
        left = self._held_since + self._times.duration_seconds - self._clock() - STOP_MARGIN_SECONDS
        late = asyncio.get_running_loop().call_later(max(STOP_GRACE_SECONDS, left), self._give_up)
        self._held_since = -math.inf
        while not working.done():
            with contextlib.suppress(asyncio.CancelledError):  # asked for again: the work stops all the same
                await asyncio.wait({working})
        late.cancel()
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._read()
                if self._lease is not None and self.holder == self._identity:
                    await self._write(holder="", seconds=1)
        except (FipopError, TimeoutError) as error:
            logger.warning("Could not release Lease, it will expire", extra={"error": _describe(error)})

    def _give_up(self) -> None:
        logger.critical("The work of the leader did not stop: the process ends at once")
        self._end()

    async def _try(self) -> bool:
        """Take or renew the Lease; return whether this replica leads. The log says once why that fails."""
        deadline = self._times.renew_deadline_seconds
        left = self._held_since + deadline - self._clock()
        try:
            # A renewal that hangs leaves time for another one. Who does not lead has to read first.
            async with asyncio.timeout(min(left, deadline / 2) if left > 0 else deadline):
                await self._hold()
            self._problem = ""
        except (FipopError, TimeoutError) as error:
            if not self._problem:
                logger.warning("Could not hold Lease, retrying", extra={"error": _describe(error)})
            self._problem = _describe(error)
        return self.leads_for()

    async def _hold(self) -> None:
        """Take or renew the Lease, unless another replica holds it. Raises ApiError, and nothing has changed then."""
        if not self.leads_for():
            await self._read()
        for _ in range(2):
            if self.is_foreign and self._clock() < self._waits_until:
                self._held_since = -math.inf
                return
            began = self._clock()
            try:
                await self._write(holder=self._identity, seconds=self._times.duration_seconds)
                self._held_since = began
                return
            except (ConflictError, NotFoundError) as error:
                problem = error
                # Our own write with a lost answer, an edit, or another holder: only a read shows which.
                await self._read()
        raise problem

    async def _read(self) -> None:
        self._note(await self._client.get(LEASES, self._name, namespace=self._namespace))

    def _note(self, lease: Json | None) -> None:
        self._lease = lease
        if lease is None or lease["metadata"]["resourceVersion"] == self._version:
            return
        self._version, before = lease["metadata"]["resourceVersion"], self.holder
        self.holder = _holder_of(lease)
        if self.is_foreign and self.holder != before:
            logger.info("Waiting for Lease", extra={"lease": self.place, "holder": self.holder})
        seconds = as_mapping(lease.get("spec")).get("leaseDurationSeconds")
        if not isinstance(seconds, int) or not 0 < seconds <= LONGEST_DURATION_SECONDS:
            seconds = self._times.duration_seconds
        self._waits_until = self._clock() + seconds

    async def _write(self, *, holder: str, seconds: int) -> None:
        """Write the Lease over the version that was read last, or create it if there was none."""
        now = self._client.server_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = as_mapping((self._lease or {}).get("spec"))
        spec = {**old, "holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": now}
        if holder and old.get("holderIdentity") != holder:
            transitions = old.get("leaseTransitions")
            spec["acquireTime"] = now
            spec["leaseTransitions"] = transitions + 1 if isinstance(transitions, int) else 0
        place = {"name": self._name, "namespace": self._namespace}
        metadata: dict[str, Any] = dict(self._lease["metadata"]) if self._lease is not None else place
        metadata["annotations"] = self._build_annotations(metadata.get("annotations") or {})
        body = {**(self._lease or {}), "metadata": metadata, "spec": spec}
        self._written = [*self._written[-MOST_UNANSWERED:], _content_of(body)]
        write = self._client.create if self._lease is None else self._client.replace
        answer = await write(LEASES, body)
        self._written = [_content_of(answer)]
        self._note(answer)

    def _build_annotations(self, found: Mapping[str, str]) -> dict[str, str]:
        is_as_written = self._lease is not None and _content_of(self._lease) in self._written
        ours = self._annotate(found, is_as_written)
        kept = {name: text for name, text in found.items() if name not in ours}
        return kept | {name: text for name, text in ours.items() if text}


def _holder_of(lease: Json) -> str:
    return as_mapping(lease.get("spec")).get("holderIdentity") or ""


def _content_of(lease: Json) -> object:
    """Return what a holder writes, in a form that two Leases can be compared by."""
    return lease.get("spec") or {}, lease["metadata"].get("annotations") or {}


def _describe(error: BaseException) -> str:
    return str(error) or type(error).__name__
