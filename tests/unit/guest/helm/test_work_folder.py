"""Temporary folders: ours while we live, nobody's afterwards."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fipop.guest.helm.work_folder import WorkFolder, sweep

HOLD = """
import sys
from fipop.guest.helm.work_folder import WorkFolder
work_folder = WorkFolder()
print(work_folder.folder("helm-"), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_folders_are_private_and_gone_with_their_root(temporary: Path) -> None:
    work_folder = WorkFolder()
    first, second = work_folder.folder("helm-"), work_folder.folder("helm-")
    assert first != second
    assert first.parent == second.parent
    assert [path.stat().st_mode & 0o777 for path in (first, first.parent)] == [0o700, 0o700]
    work_folder.close()
    work_folder.close()
    assert list(temporary.iterdir()) == []
    assert work_folder.folder("helm-").is_dir(), "it may be asked again"
    work_folder.close()


def test_what_a_killed_process_left_goes_and_what_a_living_one_uses_stays(temporary: Path) -> None:
    stranger = temporary / "fipop-notes"
    stranger.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        held = Path(process.stdout.readline().strip())
        (held / "kubeconfig").write_text("token")
        beside = WorkFolder()
        beside.folder("helm-")
        assert (held / "kubeconfig").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
    beside.close()
    after = WorkFolder()
    mine = after.folder("helm-")
    assert not held.exists()
    assert sorted(temporary.iterdir()) == sorted([stranger, mine.parent])
    after.close()


def test_a_sweep_needs_no_folder_of_ours_and_no_place_for_one(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = temporary / "fipop-left" / "helm-1"
    left.mkdir(parents=True)
    (left.parent / "lock").touch()
    sweep()
    assert list(temporary.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", list)
    sweep()
