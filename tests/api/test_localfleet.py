"""The local fleet leaves nothing behind, however it ends."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from localfleet.guard import guarded
from localfleet.waiting import eventually
from localfleet.workspace import Workspace

pytestmark = pytest.mark.slow

OWNER = """
import signal

# A shell that starts tests in the background has them ignore ctrl-C, and what they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

import asyncio
from localfleet.fleet import LocalFleet
from localfleet.guard import guarded

async def main():
    async with LocalFleet() as fleet:
        plane = await fleet.management(controllers=())
        print(plane.api.pid, plane.etcd.process.pid, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


async def start_owner(folder: Path) -> tuple[asyncio.subprocess.Process, list[str]]:
    """A process with a fleet of its own below `folder`, and the ids of the processes that it started."""
    owner = await asyncio.create_subprocess_exec(
        *guarded([sys.executable, "-c", OWNER]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert owner.stdout is not None
    return owner, (await owner.stdout.readline()).decode().split()


async def test_ctrl_c_ends_everything_and_leaves_nothing(tmp_path: Path) -> None:
    owner, pids = await start_owner(tmp_path)
    owner.send_signal(signal.SIGINT)
    await owner.wait()
    assert not any(is_alive(pid) for pid in pids)
    assert not fleet_folders(tmp_path)


async def test_nothing_survives_a_killed_owner_and_its_folder_goes_with_the_next(tmp_path: Path) -> None:
    """The kernel ends the processes; the folder is removed by the next fleet, as the dead can't."""
    owner, pids = await start_owner(tmp_path)
    owner.send_signal(signal.SIGKILL)
    await owner.wait()

    async def are_dead() -> bool:
        return not any(is_alive(pid) for pid in pids)

    await eventually(are_dead, seconds=30, what="the processes to end")
    assert fleet_folders(tmp_path)
    with Workspace(tmp_path) as workspace:
        assert fleet_folders(tmp_path) == [workspace.path]


def fleet_folders(parent: Path) -> list[Path]:
    return list(parent.glob("fipop-fleet-*"))


def is_alive(pid: str) -> bool:
    """Whether it runs; a dead one that nobody has buried yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
