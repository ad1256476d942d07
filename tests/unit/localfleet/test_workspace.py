from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from localfleet.workspace import Workspace


def test_the_folder_is_private(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        assert workspace.path.stat().st_mode & 0o077 == 0


def test_the_folder_of_a_living_neighbour_is_left_alone(tmp_path: Path) -> None:
    with Workspace(tmp_path) as one, Workspace(tmp_path) as other:
        assert one.path.is_dir()
        assert other.path.is_dir()


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
