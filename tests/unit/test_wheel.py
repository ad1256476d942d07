"""The wheel that people install the command line from."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what git has: a build leaves folders behind in its source."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    for path in (ROOT / "fipop").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source))
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = target.glob("*.whl")
    return found


def test_the_wheel_brings_the_page_and_both_names_of_the_command_line(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        text = archive.read(entry_points).decode()
    page = ROOT / "fipop" / "report" / "page"
    for path in [*(page / "templates").iterdir(), *(page / "static").iterdir()]:
        assert path.relative_to(ROOT).as_posix() in names
    for name in ("fipop", "kubectl-fip", "kube-vip-cloud-provider", "keepalived-cloud-provider"):
        assert f"{name} = fipop.cli" in text
    assert not any(name.startswith(("tests/", "localfleet/", "bench/")) for name in names)


def test_the_wheel_carries_the_license_and_the_notice(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        assert "\nLicense-Expression: Apache-2.0\n" in archive.read(folder).decode()
        for name in ("LICENSE", "NOTICE"):
            packed = archive.read(folder.replace("METADATA", f"licenses/{name}"))
            assert packed == (ROOT / name).read_bytes()


RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from fipop.cli.main import main
for arguments in (["--version"], ["status", "--help"], ["web", "--help"]):
    main(arguments, standalone_mode=False)
import fipop.report.page
print(fipop.report.page.__file__)
"""


def test_what_is_installed_from_it_runs(wheel: Path, tmp_path: Path) -> None:
    """Into a folder of its own, before everything else on the path; what it depends on is here already."""
    with zipfile.ZipFile(wheel) as archive:  # of pure Python: its files are what pip installs
        archive.extractall(tmp_path)
    done = subprocess.run(
        (sys.executable, "-P", "-c", RUN, tmp_path), capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(str(tmp_path)), done.stdout
