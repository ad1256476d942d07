"""Charts at hand: fetched once, looked for again, and kept where that fails."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from fipop.guest.errors import ChartError
from fipop.guest.helm.chart_cache import ChartCache
from localfleet.waiting import eventually
from tests.harness.reaching import build_runner
from tests.unit.guest.helm.archives import SOURCE, pack


class Source:
    """A chart repository, as a helm program that reads what stands in a folder; it hangs where `hang` is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = 1000.0
        program = folder / "helm"
        program.write_text(
            "#!/bin/sh\n"
            f'cd "{folder}"\n'
            "echo >>runs\n"
            "if [ -e hang ]; then exec sleep 60; fi\n"
            'case "$1" in\n'
            'repo) mkdir -p "$HELM_CACHE_HOME/repository" && '
            'cp index.yaml "$HELM_CACHE_HOME/repository/charts-index.yaml";;\n'
            'pull) for folder in "$@"; do :; done; cp kube-vip.tgz "$folder/";;\n'
            "esac\n"
        )
        program.chmod(0o755)
        self.offer("0.11.0")
        self.cache = ChartCache(build_runner(str(program), environ={}), monotonic=lambda: self.clock)

    def offer(self, version: str, *, digest: str = "") -> None:
        chart = f"name: kube-vip\nversion: {version}\n".encode()
        archive = pack(self.folder, {"Chart.yaml": chart}, name="kube-vip.tgz")
        digest = digest or hashlib.sha256(archive.read_bytes()).hexdigest()
        entries = {"kube-vip": [{"version": version, "digest": digest}]}
        (self.folder / "index.yaml").write_text(yaml.safe_dump({"entries": entries}))

    def hang(self) -> None:
        (self.folder / "hang").touch()

    @property
    def runs(self) -> int:
        runs = self.folder / "runs"
        return len(runs.read_text()) if runs.exists() else 0

    def kept(self) -> list[Path]:
        return list((self.folder / "temporary").glob("fipop-*/charts-*/*"))

    async def version(self) -> str:
        return (await self.cache.get(SOURCE)).identity.version


@pytest_asyncio.fixture
async def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Source]:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    source = Source(tmp_path)
    yield source
    await source.cache.close()
    assert not list((tmp_path / "temporary").iterdir()), "nothing stays on the disk"


async def test_a_chart_at_hand_is_given_at_once_while_a_newer_one_is_looked_for(source: Source) -> None:
    assert await source.version() == "0.11.0"
    source.hang()
    source.clock += 1000
    async with asyncio.timeout(1):
        assert [await source.version() for _ in range(3)] == ["0.11.0"] * 3


async def test_a_newer_chart_takes_the_place_of_the_one_at_hand(source: Source) -> None:
    for number in range(1, 5):
        source.offer(f"0.{number}.0")
        source.clock += 1000
        await source.version()

        async def is_taken(version: str = f"0.{number}.0") -> bool:
            return await source.version() == version

        await eventually(is_taken, what="the newer chart")
    assert len(source.kept()) == 2, "it, and the one before that a helm may be installing"


async def test_a_fetch_that_hangs_is_waited_for_from_its_start_and_not_by_each_pass_anew(
    source: Source,
) -> None:
    source.hang()
    first = asyncio.create_task(source.version())

    async def is_fetching() -> bool:
        return source.runs == 1

    await eventually(is_fetching, what="the fetch")
    source.clock += 20.5
    with pytest.raises(ChartError):
        await source.version()
    assert not first.done()
    first.cancel()
    assert source.runs == 1


async def test_a_failed_fetch_leaves_nothing_and_its_cause_is_told_while_it_is_tried_again(
    source: Source,
) -> None:
    source.offer("0.11.0", digest="0" * 64)
    with pytest.raises(ChartError) as cause:
        await source.version()
    assert source.kept() == []
    source.hang()
    source.clock += 31
    again = asyncio.create_task(source.version())
    await asyncio.sleep(0)
    source.clock += 21
    with pytest.raises(ChartError) as meanwhile:
        await source.version()
    assert meanwhile.value.reason == cause.value.reason
    again.cancel()
