"""Holding a Lease (coordination.k8s.io): who may, for how long, and how it is given up.

Own code, because the kubernetes package's leader election cannot be used with asyncio: its create fails
validation, a connection error leaves the leader running, and it neither limits a call nor releases the Lease.
The loop that renews and stops the work in time is in runtime.leader_election.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fipop.errors import ConflictError, NotFoundError
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import LEASES

_LONGEST_DURATION_SECONDS = 600
"""A Lease that claims to hold for longer than this is wrong: nobody could ever take over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """What counts of a Lease; an empty `holder` means that it was given up."""

    holder: str
    duration_seconds: float
    resource_version: str


def can_hold(seen: LeaseView | None, identity: str, *, observed_at: float, now: float) -> bool:
    """Whether `identity` may take a Lease whose last known version it first saw at `observed_at`.

    Both times are the candidate's own monotonic seconds: what the Lease says about times is another machine's
    clock and plays no part. A holder that renews shows a new version; one that has not for the duration it
    promised has stopped working by its own clock. None: no Lease was ever seen.
    """
    return seen is None or seen.holder in {"", identity} or now >= observed_at + seen.duration_seconds


def view_of(lease: Json, *, default_duration_seconds: float) -> LeaseView:
    """Read a Lease; one without a sensible duration is held for the default."""
    spec = lease.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if not isinstance(duration, int) or not 0 < duration <= _LONGEST_DURATION_SECONDS:
        duration = default_duration_seconds
    return LeaseView(
        holder=spec.get("holderIdentity") or "",
        duration_seconds=duration,
        resource_version=str(lease["metadata"].get("resourceVersion")),
    )


class LeaseLock:
    """One candidate's dealings with one Lease.

    `identity` must be this process's alone (a restarted pod is another one). `valid_until` is the monotonic time
    up to which everybody else respects our hold, counted from before the write that gained it; None while we hold
    nothing. `holder` is who was last seen holding it. Failed calls raise ApiError and change neither: after an
    unknown outcome the next call finds out. Each write over a Lease that exists sets these `annotations`, too.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration_seconds: int,
        monotonic: Callable[[], float] = time.monotonic,
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._client = client
        self._annotations = annotations
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration_seconds = duration_seconds
        self._monotonic = monotonic
        self._lease: Json | None = None
        self._last_seen: LeaseView | None = None
        self._observed_at = 0.0
        self.valid_until: float | None = None
        self.holder = ""

    @property
    def place(self) -> str:
        """Namespace and name of the Lease."""
        return f"Lease {self._namespace}/{self._name}"

    @property
    def is_foreign(self) -> bool:
        """Whether another candidate was last seen holding it."""
        return self.holder not in ("", self._identity)

    async def is_ours(self) -> bool:
        """Read the Lease; return whether it names us as the holder. This changes nothing that is known of it."""
        lease = await self._client.get(LEASES, self._name, namespace=self._namespace)
        return lease is not None and self._view(lease).holder == self._identity

    async def try_acquire(self) -> bool:
        """Take the Lease if it is free, expired or ours already; False while another holds it."""
        await self._read()
        # A Lease that vanished counts as it was seen last: its holder may work on by it.
        if not can_hold(
            self._last_seen, self._identity, observed_at=self._observed_at, now=self._monotonic()
        ):
            self.valid_until = None
            return False
        try:
            await self._hold()
        except ConflictError:
            return False  # another was faster; the next look shows who
        return True

    async def renew(self) -> bool:
        """Renew what we hold with one write; False when another holds it, and then nothing of it is left to us."""
        try:
            await self._hold()
        except (ConflictError, NotFoundError):
            # Our own write with a lost answer, an admin's edit, or another holder: only a look tells.
            lease = await self._read()
            if lease is not None and lease.holder != self._identity:
                self.valid_until = None
                return False
            await self._hold()
        return True

    async def release(self) -> None:
        """Give the Lease up, so that another can take it at once; the work it protects must have stopped before."""
        self.valid_until = None
        lease = await self._read()
        if lease is None or lease.holder != self._identity:
            return
        try:
            await self._write(holder="", duration_seconds=1)
        except ConflictError:
            return  # it changed hands meanwhile

    async def _hold(self) -> None:
        started = self._monotonic()
        await self._write(holder=self._identity, duration_seconds=self._duration_seconds)
        self.valid_until = started + self._duration_seconds

    async def _read(self) -> LeaseView | None:
        lease = await self._client.get(LEASES, self._name, namespace=self._namespace)
        self._remember(lease)
        return None if lease is None else self._view(lease)

    def _remember(self, lease: Json | None) -> None:
        self._lease = lease
        if lease is None:
            return
        view, before = self._view(lease), self._last_seen
        if before is None or view.resource_version != before.resource_version:
            self._observed_at = self._monotonic()
        self._last_seen = view
        self.holder = view.holder

    def _view(self, lease: Json) -> LeaseView:
        return view_of(lease, default_duration_seconds=self._duration_seconds)

    async def _write(self, *, holder: str, duration_seconds: int) -> None:
        """Write the Lease over the version that was read last, or create it where there was none."""
        now = self._client.server_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if self._lease is None:
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": self._spec({}, holder=holder, duration_seconds=duration_seconds, now=now),
            }
            self._remember(await self._client.create(LEASES, body))
            return
        spec = self._spec(
            self._lease.get("spec") or {}, holder=holder, duration_seconds=duration_seconds, now=now
        )
        metadata = dict(self._lease["metadata"])
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **self._annotations()}
        self._remember(await self._client.replace(LEASES, self._lease | {"metadata": metadata, "spec": spec}))

    def _spec(self, old: Json, *, holder: str, duration_seconds: int, now: str) -> dict[str, Any]:
        spec = old | {"holderIdentity": holder, "leaseDurationSeconds": duration_seconds, "renewTime": now}
        if holder and old.get("holderIdentity") != holder:
            spec["acquireTime"] = now
            transitions = old.get("leaseTransitions")
            spec["leaseTransitions"] = transitions + 1 if isinstance(transitions, int) else 0
        return spec
