import pytest

from fipop.backoff import Backoff
from fipop.errors import FipopError, ForbiddenError, UnavailableError
from fipop.runtime.retry import retry_passing

AT_ONCE = Backoff(first_seconds=0.0, limit_seconds=0.0)
PASSES = UnavailableError("get ConfigMap", status=500)
STAYS = ForbiddenError("get ConfigMap", status=403)


class Step:
    def __init__(self, *errors: FipopError) -> None:
        self.errors = list(errors)
        self.tries = 0

    async def __call__(self) -> str:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_what_passes_is_waited_for() -> None:
    assert await retry_passing(Step(*[PASSES] * 20), AT_ONCE) == "done"


async def test_the_last_attempt_raises_and_so_does_what_does_not_pass() -> None:
    step = Step(*[PASSES] * 3)
    with pytest.raises(UnavailableError):
        await retry_passing(step, AT_ONCE, attempts=3)
    assert step.tries == 3
    step = Step(STAYS)
    with pytest.raises(ForbiddenError):
        await retry_passing(step, AT_ONCE)
    assert step.tries == 1
