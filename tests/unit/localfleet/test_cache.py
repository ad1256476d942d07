import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from localfleet.cache import Cache

START = multiprocessing.get_context("spawn")


def not_waiting() -> None:
    raise AssertionError("nobody else builds")


def fill_with(text: str) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / "program").write_text(text)

    return fill


def test_what_was_filled_once_is_found_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "not" / "there" / "yet")
    assert cache.find("tool-1") is None
    made = cache.make("tool-1", fill_with("first"), on_wait=not_waiting)
    again = cache.make("tool-1", fill_with("second"), on_wait=not_waiting)
    assert made == again == cache.find("tool-1")
    assert (made / "program").read_text() == "first"


def test_keys_do_not_share(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.make("tool-1", fill_with("one"), on_wait=not_waiting)
    cache.make("tool-2", fill_with("two"), on_wait=not_waiting)
    assert [(tmp_path / key / "program").read_text() for key in ("tool-1", "tool-2")] == ["one", "two"]


def test_a_failed_filling_leaves_nothing_behind_and_may_be_tried_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def fail(folder: Path) -> None:
        (folder / "program").write_text("half")
        raise RuntimeError("no space left")

    with pytest.raises(RuntimeError):
        cache.make("tool", fail, on_wait=not_waiting)
    assert cache.find("tool") is None
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert (cache.make("tool", fill_with("whole"), on_wait=not_waiting) / "program").read_text() == "whole"


def _write_half_and_hang(root: Path, half_written: "multiprocessing.synchronize.Event") -> None:
    def fill(folder: Path) -> None:
        (folder / "program").write_text("half")
        half_written.set()
        signal.pause()

    Cache(root).make("tool", fill, on_wait=not_waiting)


def test_a_killed_builder_leaves_no_broken_program_and_blocks_nobody(tmp_path: Path) -> None:
    half_written = START.Event()
    builder = START.Process(target=_write_half_and_hang, args=(tmp_path, half_written))
    builder.start()
    assert half_written.wait(30)
    assert builder.pid is not None
    os.kill(builder.pid, signal.SIGKILL)
    builder.join()

    cache = Cache(tmp_path)
    assert cache.find("tool") is None
    made = cache.make("tool", fill_with("whole"), on_wait=not_waiting)
    assert (made / "program").read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "tool"], "no leftovers"


def test_parallel_builders_wait_and_the_work_is_done_once(tmp_path: Path) -> None:
    fillings: list[str] = []
    somebody_waits = threading.Event()

    def fill(folder: Path) -> None:
        fillings.append(folder.name)
        assert somebody_waits.wait(30)
        (folder / "program").write_text("whole")

    def build() -> None:
        found = Cache(tmp_path).make("tool", fill, on_wait=somebody_waits.set)
        assert (found / "program").read_text() == "whole"

    builders = [threading.Thread(target=build) for _ in range(3)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(30)
    assert len(fillings) == 1
