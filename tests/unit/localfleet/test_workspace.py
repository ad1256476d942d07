import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localfleet.workspace import Workspace

START = multiprocessing.get_context("spawn")


def fail_in(parent: Path) -> None:
    with Workspace(parent) as workspace:
        (workspace.path / "data").write_text("much")
        raise RuntimeError("a failed test")


def test_the_folder_goes_at_the_end_also_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        fail_in(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_private(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        assert workspace.path.stat().st_mode & 0o077 == 0


def test_the_folder_of_a_living_neighbour_is_left_alone(tmp_path: Path) -> None:
    with Workspace(tmp_path) as one, Workspace(tmp_path) as other:
        assert one.path.is_dir()
        assert other.path.is_dir()


def _hold(parent: Path, entered: "multiprocessing.synchronize.Event") -> None:
    with Workspace(parent) as workspace:
        (workspace.path / "data").write_text("much")
        entered.set()
        signal.pause()


def test_the_folder_of_a_killed_owner_is_removed_by_the_next(tmp_path: Path) -> None:
    entered = START.Event()
    owner = START.Process(target=_hold, args=(tmp_path, entered))
    owner.start()
    assert entered.wait(30)
    (abandoned,) = tmp_path.iterdir()
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    assert abandoned.is_dir()
    with Workspace(tmp_path) as workspace:
        assert list(tmp_path.iterdir()) == [workspace.path]


def test_other_folders_beside_it_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "fipop-fleet-without-lock").mkdir()
    (tmp_path / "foreign").mkdir()
    with Workspace(tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fipop-fleet-without-lock", "foreign"]


def test_folders_that_are_made_side_by_side_are_not_taken_for_abandoned(tmp_path: Path) -> None:
    """A lock that is there before it is held belonged to nobody for a moment."""

    def enter_and_leave(_: int) -> bool:
        with Workspace(tmp_path) as workspace:
            return (workspace.path / ".lock").exists()

    with ThreadPoolExecutor(max_workers=16) as pool:
        assert all(pool.map(enter_and_leave, range(2000)))
