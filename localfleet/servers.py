"""Servers: processes that listen on a port of their own."""

from collections.abc import Awaitable, Callable

from localfleet.errors import ProcessFailedError
from localfleet.ports import Ports, is_free
from localfleet.processes import Process

_ATTEMPTS = 3


async def start_server(
    ports: Ports,
    build: Callable[[int], Process],
    is_ready: Callable[[int], Awaitable[bool]],
    *,
    timeout_seconds: float,
) -> tuple[int, Process]:
    """Start a server on a free port and wait until it is ready; the port (it stays reserved) and the process.

    A program takes its port some time after we have chosen it. Where another was faster, the next port is
    tried. Raises ProcessFailedError.
    """
    attempt = 1
    while True:
        port = ports.reserve()
        process = build(port)
        try:
            await process.start()
            await process.wait_until(lambda: is_ready(port), timeout_seconds=timeout_seconds)  # noqa: B023
        except BaseException as error:
            await process.stop(grace_seconds=0)
            was_taken = not is_free(port)
            ports.release(port)
            if not isinstance(error, ProcessFailedError) or not was_taken or attempt == _ATTEMPTS:
                raise
            attempt += 1
        else:
            return port, process
