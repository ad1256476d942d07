"""A whole fleet: one management cluster, any number of guests, and all that they share.

The API is asynchronous; one event loop, best that of the main thread, owns the fleet from beginning to end.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from localfleet.assets import ensure_all
from localfleet.components import NAMESPACE_CONTROLLERS, WORKLOAD_CONTROLLERS
from localfleet.controlplane import ControlPlane
from localfleet.etcd import Etcd
from localfleet.ports import Ports
from localfleet.workspace import Workspace

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kube-scheduler", "kwok")


class LocalFleet:
    """Control planes in one temporary folder, `folder`, for the length of an `async with`.

    At its end everything is stopped and removed. A management cluster has its own etcd and the guests share
    one, so that one can be restored to an earlier state without the other.
    """

    def __init__(self, programs: Mapping[str, Path] | None = None) -> None:
        self.programs: Mapping[str, Path] = programs or {}
        self._exits = AsyncExitStack()
        self._planes: dict[str, ControlPlane] = {}
        self._etcds: dict[str, Etcd] = {}
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        # This may take minutes and blocks the loop, in which nothing else runs yet: in a thread of its own it
        # could not be interrupted.
        self.programs = self.programs or ensure_all(*PROGRAMS)
        self.folder = self._exits.enter_context(Workspace()).path
        self.ports = self._exits.enter_context(Ports())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(plane.stop() for plane in self._planes.values()))
        await asyncio.gather(*(etcd.stop() for etcd in self._etcds.values()))
        await self._exits.aclose()

    async def management(
        self, name: str = "management", *, controllers: Sequence[str] = NAMESPACE_CONTROLLERS
    ) -> ControlPlane:
        """Start a management cluster: with controllers, without nodes. Each has its own etcd."""
        return await self._start(name, etcd=f"etcd-{name}", controllers=controllers)

    async def guest(
        self, name: str, *, controllers: Sequence[str] = NAMESPACE_CONTROLLERS, nodes: int = 0
    ) -> ControlPlane:
        """Start a guest cluster. With `nodes` it has a scheduler too, and workloads become ready on them."""
        workloads: Iterable[str] = WORKLOAD_CONTROLLERS if nodes else ()
        return await self._start(
            name, etcd="etcd-guests", controllers=(*controllers, *workloads), scheduler=nodes > 0, nodes=nodes
        )

    async def remove(self, plane: ControlPlane) -> None:
        """Stop one control plane for good, with its etcd if that was its own.

        Its name is not to be used again.
        """
        del self._planes[plane.name]
        await plane.stop()
        if all(other.etcd is not plane.etcd for other in self._planes.values()):
            del self._etcds[plane.etcd.name]
            await plane.etcd.stop()

    async def _start(
        self, name: str, *, etcd: str, controllers: Sequence[str], scheduler: bool = False, nodes: int = 0
    ) -> ControlPlane:
        if name in self._planes:
            raise ValueError(f"the fleet has a control plane {name!r} already")
        plane = ControlPlane(
            name,
            etcd=await self._etcd(etcd),
            folder=self.folder,
            ports=self.ports,
            programs=self.programs,
            controllers=controllers,
            scheduler=scheduler,
            nodes=nodes,
        )
        self._planes[name] = plane
        await plane.start()
        return plane

    async def _etcd(self, name: str) -> Etcd:
        async with self._lock:  # guests start side by side, and share one
            if name not in self._etcds:
                etcd = Etcd(name, folder=self.folder, ports=self.ports, programs=self.programs)
                await etcd.start()
                self._etcds[name] = etcd
            return self._etcds[name]
