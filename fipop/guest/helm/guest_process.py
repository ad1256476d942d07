"""One run of helm, with a proxy between it and the guest cluster that it works on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fipop.boundary import Finished, GuestFactory
from fipop.guest.helm.door import open_door
from fipop.guest.helm.processes import run_process
from fipop.kube.client import RequestRecord
from fipop.kube.guests import GuestAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class HelmTarget:
    """The guest that a helm works on, and until when (the loop's time); `on_request` sees its requests."""

    access: GuestAccess
    deadline: float
    on_request: Callable[[RequestRecord], None] | None = None


class LocalHelm:
    """The helm program of this machine; `executable` is its absolute path, `guests` reaches guest clusters."""

    def __init__(self, executable: str, guests: GuestFactory) -> None:
        self._executable = executable
        self._guests = guests

    async def __call__(
        self,
        arguments: list[str],
        *,
        guest: HelmTarget | None,
        env: Mapping[str, str],
        folder: Path,
        stdin: bytes | None,
        deadline_seconds: float,
        stdout_bytes: int,
        file_bytes: int,
    ) -> Finished:
        """Run helm once; for a guest its kubeconfig names a proxy that ends with it. Raises OSError."""

        async def run(env: Mapping[str, str]) -> Finished:
            return await run_process(
                [self._executable, *arguments],
                env=env,
                folder=folder,
                stdin=stdin,
                deadline_seconds=deadline_seconds,
                stdout_bytes=stdout_bytes,
                file_bytes=file_bytes,
            )

        if guest is None:
            return await run(env)
        async with open_door(
            self._guests(guest.access), deadline=guest.deadline, on_request=guest.on_request
        ) as door:
            path = folder / "kubeconfig"
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(door.render_kubeconfig())
            ended = await run({**env, "KUBECONFIG": str(path)})
            return replace(ended, problem=door.error)
