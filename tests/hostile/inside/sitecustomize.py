"""Put before the operator's own modules by the hostile run, never by the product: it times the loop's callbacks.

For each callback that took more than 20 ms of its thread's processor time a line goes to the file that
FIPOP_CALLBACKS names: when it ended (monotonic seconds), milliseconds, thread, what it was.
"""

import asyncio
import os
import threading
import time
from pathlib import Path

_TOLD_MS = 20.0
_path = os.environ.get("FIPOP_CALLBACKS")

if _path:
    _file = Path(_path).open("a", buffering=1)  # noqa: SIM115 - as long as the process
    _run = asyncio.events.Handle._run

    def _innermost(handle):  # type: ignore[no-untyped-def]
        """Give the coroutines of the task that ran, down to the one that waits now."""
        task = getattr(handle._callback, "__self__", None)
        coro = task.get_coro() if hasattr(task, "get_coro") else None
        names = []
        while coro is not None and hasattr(coro, "__qualname__"):
            frame = getattr(coro, "cr_frame", None)
            names.append(f"{coro.__qualname__}:{frame.f_lineno if frame else 'done'}")
            coro = getattr(coro, "cr_await", None)
        return " > ".join(names)

    def _timed(self):  # type: ignore[no-untyped-def]
        began = time.thread_time()
        try:
            _run(self)
        finally:
            took = 1000 * (time.thread_time() - began)
            if took > _TOLD_MS:
                what = (_innermost(self) or repr(self))[:500].replace("\n", " ")
                _file.write(f"{time.monotonic():.3f} {took:.1f} {threading.current_thread().name} {what}\n")

    asyncio.events.Handle._run = _timed
