import pytest

from localfleet.errors import ApiError, DeadlineError
from localfleet.waiting import eventually

NOT_FOUND = ApiError(method="GET", path="/thing", status=404, reason="NotFound", message="no thing")


async def test_what_is_seen_at_last_is_given_back() -> None:
    answers: list[object] = [
        None,
        False,
        [],
        NOT_FOUND,
        KeyError("status"),
        AssertionError("not yet"),
        "there",
    ]

    async def look() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await eventually(look) == "there"


async def test_waiting_in_vain_tells_for_what_and_what_was_seen_last() -> None:
    async def look() -> str:
        raise NOT_FOUND

    with pytest.raises(
        DeadlineError, match=r"waited 0\.1 s in vain for the thing.*404 NotFound: no thing"
    ) as failed:
        await eventually(look, seconds=0.1, what="the thing")
    assert failed.value.__cause__ is NOT_FOUND


async def test_an_error_in_the_test_itself_ends_the_waiting() -> None:
    async def look() -> str:
        raise TypeError("wrong call")

    with pytest.raises(TypeError):
        await eventually(look)
