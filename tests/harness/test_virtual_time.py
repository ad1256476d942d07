"""The loop in virtual time ends what would hang."""

import asyncio

import pytest

from tests.harness.virtual_time import run_virtually


async def spin() -> None:
    """Take turns of the loop for ever."""
    loop, turn = asyncio.get_running_loop(), asyncio.Event()

    def take_turn() -> None:
        loop.call_soon(take_turn)

    take_turn()
    await turn.wait()


async def wait_for_nothing() -> None:
    """Wait for what never comes."""
    await asyncio.get_running_loop().create_future()


def test_what_never_waits_ends_in_an_error() -> None:
    with pytest.raises(AssertionError, match="runs for ever"):
        run_virtually(spin())


def test_what_waits_for_nothing_ends_in_an_error() -> None:
    with pytest.raises(AssertionError, match="never comes"):
        run_virtually(wait_for_nothing())
