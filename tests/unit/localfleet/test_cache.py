import threading
from pathlib import Path

from localfleet.cache import Cache


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
