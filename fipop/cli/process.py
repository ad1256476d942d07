"""How a role runs as a process: until SIGTERM or ctrl-C, and at most STOP_SECONDS after that."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import traceback
import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from fipop.deadlines import STOP_SECONDS
from fipop.errors import FipopError

logger = logging.getLogger(__name__)

LOOKUP_THREADS = 64


def build_identity() -> str:
    """Return a name for this process, with that of its pod.

    A pod that is restarted is another process: it must not believe the Lease of the former one its own.
    """
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}"


@contextmanager
def ending_on_failure(message: str) -> Iterator[None]:
    """Log by a message what a role cannot start or go on for, and end the process."""
    try:
        yield
    except (FipopError, OSError) as error:
        logger.critical(message, extra={"error": str(error)})
        sys.exit(1)


async def run_until_asked(
    role: Coroutine[Any, Any, None], stopping: asyncio.Event | None = None, *, failure: str = ""
) -> None:
    """Run a role until SIGTERM or SIGINT, which set `stopping`.

    What ends the role is raised. With a `failure` it is logged by that message, and ends the process.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_error)
    # Names are resolved here. A lookup that hangs cannot be cancelled: a few are not to keep the rest from theirs.
    loop.set_default_executor(ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="fipop"))
    running = asyncio.create_task(role)
    stopping = stopping or asyncio.Event()
    take_signals(stopping)
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait({running, stop}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        stop.cancel()
        start_watchdog()
        try:
            running.result()
        except Exception as error:
            if not failure:
                raise
            # Here: what kopf leaves can outlive its cancellation, and the watchdog says nothing.
            is_known = isinstance(error, FipopError | OSError)
            text = str(error) if is_known else repr(error)
            logger.critical(failure, extra={"error": text}, exc_info=None if is_known else error)
            _exit(1)
        return
    logger.info("Stopping")
    start_watchdog()
    running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        logger.info("Stopped")
    # All is put away. Python would wait for threads without end now: a name may be looked up still.
    _exit(0)


def _log_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log the class and place of an error that no code handled: its words, and the call, can be those of a server."""
    error = context.get("exception")
    frames = traceback.extract_tb(error.__traceback__) if isinstance(error, BaseException) else []
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    logger.error("Unhandled error in a task", extra={"error": type(error).__name__, "place": place})


def take_signals(stopping: asyncio.Event) -> None:
    """Have SIGTERM and SIGINT set an event of the running loop, whoever took them before."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)


def start_watchdog() -> threading.Timer:
    """End the process in STOP_SECONDS, by a thread: a loop that hangs cannot end itself."""
    watchdog = threading.Timer(STOP_SECONDS, lambda: os._exit(1))
    watchdog.daemon = True
    watchdog.start()
    return watchdog


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
