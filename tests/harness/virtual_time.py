"""An event loop whose clock jumps: waiting costs no time, and how long something takes is exact."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, TypeVar

from tests.harness.crashes import crashes

T = TypeVar("T")
P = ParamSpec("P")

START = datetime(2026, 1, 1, tzinfo=UTC)
"""What clocks show when a virtual loop begins."""


MAX_TURNS = 10_000
"""Of the loop at one instant; then a microsecond passes: a wait for less than a float can hold would never end."""
SPINNING_TURNS = 30_000
"""Of the loop without a wait: what runs then goes on for ever, and no time limit of the test would ever pass."""


class _JumpingSelector(selectors.DefaultSelector):
    """Moves the clock instead of waiting. If the loop waits for no time either, nothing would ever happen again."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # The loop's own pipe is for threads and signals: one who interrupts a test writes to it when it is over.
        ready = super().select(0) if len(self.get_map() or ()) > 1 else []
        if not ready:
            assert timeout is not None, "everything waits for something that never comes"
            before, self.now = self.now, self.now + max(0.0, timeout)
            self._turns = self._turns + 1 if self.now == before else 0
            if self._turns == SPINNING_TURNS:
                self._turns = 0
                raise AssertionError(f"something runs for ever at {self.now} s: it never waits")
            if self._turns and self._turns % MAX_TURNS == 0:
                self.now += 1e-6
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop of `run_virtually`; its time begins at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def jump(self, seconds: float) -> None:
        """Let time pass while nothing runs, as on a machine that is suspended."""
        self._jumping.now += seconds

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run in place: a thread takes real time."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future


def virtual_now() -> datetime:
    """Return what the clocks of the running loop show."""
    return START + timedelta(seconds=asyncio.get_running_loop().time())


class VirtualClock:
    """The clocks of a process in virtual time (`fipop.interfaces.Clock`)."""

    def now(self) -> datetime:
        """Return the time."""
        return virtual_now()

    def boottime(self) -> float:
        """Return the seconds of the loop."""
        return asyncio.get_running_loop().time()


def run_virtually(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time; only for what waits for no socket, thread or process."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def in_virtual_time(
    test: Callable[P, Coroutine[Any, Any, None]], *, may_crash: bool = True
) -> Callable[P, None]:
    """Have an async test run in virtual time; its fixtures must not need a loop."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with crashes() as found:
            run_virtually(test(*args, **kwargs))
        assert may_crash or not found, f"{len(found)} crashes, the first one: {found[0]}"

    return run


def use_virtual_time(module: Any, name: str, obj: object, *, may_crash: bool = True) -> None:
    """Replace an async test of a module by one that runs in virtual time; for the conftest of a folder."""
    if name.startswith("test_") and iscoroutinefunction(obj):
        setattr(module, name, in_virtual_time(obj, may_crash=may_crash))
