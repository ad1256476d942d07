"""Programs from Debian packages, with an apt-get and a dpkg-deb that only pretend."""

import io
from pathlib import Path

import pytest

from localfleet.assets import Assets
from localfleet.errors import AssetError
from localfleet.progress import Progress
from localfleet.recipes import Catalogue

# As the real one does it: the lists are where -o Dir::State::Lists says, and without them nothing is known.
APT_GET = """#!/bin/sh
lists={lists}
while [ "$1" = -o ]; do
  case "$2" in Dir::State::Lists=*) lists="${{2#*=}}" ;; esac
  shift 2
done
echo "$*" >> {calls}
case "$1" in
update) {update} ;;
download) [ -e "$lists/known" ] || {{ echo "E: Unable to locate package $2"; exit 100; }}; : > "$2_1.0_all.deb" ;;
esac
"""
DPKG_DEB = """#!/bin/sh
mkdir -p "$3/usr/bin" && echo "from $(basename "$2")" > "$3/usr/bin/promtool"
"""


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def assets(tmp_path: Path) -> Assets:
    return Assets(
        environment={"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(tmp_path / "bin")},
        modules=tmp_path,
        catalogue=Catalogue(debian={"promtool": "prometheus"}),
        progress=Progress(stream=io.StringIO()),
    )


def pretend_debian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_lists: bool, update: str = 'touch "$lists/known"'
) -> Path:
    """Put the two tools on PATH; the file to which apt-get writes how it was called."""
    lists = tmp_path / "lists"
    lists.mkdir()
    if has_lists:
        (lists / "known").touch()
    calls = tmp_path / "calls"
    write_program(tmp_path / "bin" / "apt-get", APT_GET.format(lists=lists, calls=calls, update=update))
    write_program(tmp_path / "bin" / "dpkg-deb", DPKG_DEB)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return calls


def test_a_program_on_path_is_taken(tmp_path: Path, assets: Assets) -> None:
    write_program(tmp_path / "bin" / "promtool", "")
    assert assets.ensure(["promtool"]) == {"promtool": tmp_path / "bin" / "promtool"}


def test_a_package_is_fetched_and_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assets: Assets
) -> None:
    calls = pretend_debian(tmp_path, monkeypatch, has_lists=True)
    program = assets.ensure(["promtool"])["promtool"]
    assert program.read_text() == "from prometheus_1.0_all.deb\n"
    assert assets.ensure(["promtool"])["promtool"] == program
    assert calls.read_text() == "download prometheus\n"


def test_on_a_machine_without_package_lists_they_are_fetched_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assets: Assets
) -> None:
    calls = pretend_debian(tmp_path, monkeypatch, has_lists=False)
    program = assets.ensure(["promtool"])["promtool"]
    assert calls.read_text() == "download prometheus\nupdate\ndownload prometheus\n"
    assert not list((tmp_path / "lists").iterdir()), "the machine's own lists are root's"
    assert [path.name for path in program.parents[2].iterdir()] == ["usr"]


def test_a_package_that_cannot_be_fetched_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assets: Assets
) -> None:
    pretend_debian(tmp_path, monkeypatch, has_lists=False, update="echo 'E: no network'; exit 100")
    with pytest.raises(
        AssetError, match=r"prometheus: could not be fetched; install the package(.|\n)*no network"
    ):
        assets.ensure(["promtool"])


def test_a_machine_that_is_no_debian_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assets: Assets
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        AssetError, match="prometheus: not on PATH, and no Debian to fetch it from: install it"
    ):
        assets.ensure(["promtool"])
