"""How helm is run: with which files, environment and command line. A script stands in for helm and tells them."""

import asyncio
import itertools
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from fipop.errors import HelmError, HelmFailure, StartError
from fipop.guest.helm.releases import parse_record
from fipop.guest.helm.runner import HelmRunner, HelmTarget, ReleaseOrder, find_helm
from fipop.kube.connection import Connection
from tests.unit.guest.conftest import release_secret

GUEST = Connection(server="https://127.0.0.1:1/k8s/clusters/c-m-a", token="verysecret")

RECORD = parse_record(release_secret())
assert RECORD is not None

TELL = """\
#!/bin/sh
# Tells what it was given and goes on as {after}.
{{ printf '%s\\0' "$@"; }} > {folder}/argv
env -0 > {folder}/env
cat > {folder}/stdin
[ -z "$KUBECONFIG" ] || cat "$KUBECONFIG" > {folder}/kubeconfig
[ -z "$KUBECONFIG" ] || stat -c %a "$KUBECONFIG" "$HOME" > {folder}/modes
{after}
"""


class Stub:
    """A program in helm's place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "helm"

    def make(self, after: str = "echo '{}'") -> str:
        self.program.write_text(TELL.format(folder=self.folder, after=after))
        self.program.chmod(0o755)
        return str(self.program)

    def told(self, what: str) -> list[str]:
        return [part for part in (self.folder / what).read_text().split("\0") if part]

    @property
    def env(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.told("env"))


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    return Stub(tmp_path)


def order(tmp_path: Path, **values: Any) -> ReleaseOrder:
    return ReleaseOrder(
        name="kube-vip",
        namespace="networking",
        chart=tmp_path / "chart.tgz",
        values=values,
        labels={"example.org/role": "vip", "example.org/digest": "abc"},
    )


def target(seconds: float = 60.0) -> HelmTarget:
    return HelmTarget(connection=GUEST, deadline=asyncio.get_running_loop().time() + seconds)


async def failure_of(program: str, tmp_path: Path, **options: Any) -> HelmFailure:
    with pytest.raises(HelmError) as failed:
        await HelmRunner(program, **options).upgrade(target(), order(tmp_path))
    assert "verysecret" not in str(failed.value)
    return failed.value.failure


async def test_each_run_is_told_by_its_subcommand_and_how_it_ended(stub: Stub, tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    def observe(command: str, success: bool) -> None:
        seen.append((command, success))

    await HelmRunner(stub.make(), observe=observe).upgrade(target(), order(tmp_path))
    await failure_of(stub.make("exit 1"), tmp_path, observe=observe)
    await failure_of(stub.make("sleep 60"), tmp_path, observe=observe, deadline_seconds=0.2)
    await failure_of(str(tmp_path / "no-such-program"), tmp_path, observe=observe)
    assert seen == [("upgrade", True), ("upgrade", False), ("upgrade", False), ("upgrade", False)]


async def test_secrets_go_by_stdin_and_a_private_file_and_never_by_the_command_line(
    stub: Stub, tmp_path: Path
) -> None:
    await HelmRunner(stub.make()).upgrade(target(), order(tmp_path, password="valuesecret"))
    argv = stub.told("argv")
    assert not [part for part in argv if "verysecret" in part or "valuesecret" in part]
    assert json.loads((tmp_path / "stdin").read_text()) == {"password": "valuesecret"}
    kubeconfig = json.loads((tmp_path / "kubeconfig").read_text())
    assert kubeconfig["users"] == [{"name": "guest", "user": {}}], "no credential is in any file"
    server = kubeconfig["clusters"][0]["cluster"].pop("server")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}", server), "128 random bits on loopback"
    assert kubeconfig["clusters"] == [{"name": "guest", "cluster": {}}]
    assert (tmp_path / "modes").read_text().split() == ["600", "700"]


async def test_helm_installs_or_upgrades_without_waiting_and_labels_the_release(
    stub: Stub, tmp_path: Path
) -> None:
    await HelmRunner(stub.make(), deadline_seconds=77).upgrade(target(), order(tmp_path))
    argv = stub.told("argv")
    assert argv[:3] == ["upgrade", "kube-vip", str(tmp_path / "chart.tgz")]
    assert {"--install", "--create-namespace"} <= set(argv)
    assert not {"--wait", "--atomic", "--force", "--take-ownership"} & set(argv)
    pairs = dict(itertools.pairwise(argv))
    assert pairs["--labels"] == "example.org/role=vip,example.org/digest=abc"
    assert (pairs["--namespace"], pairs["--timeout"], pairs["--values"]) == ("networking", "77s", "-")


async def test_helm_gets_no_proxy_no_kubeconfig_and_no_home_of_ours(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "KUBECONFIG", "HELM_KUBETOKEN", "HELM_NAMESPACE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "/ours")
    await HelmRunner(stub.make("echo '{}'")).upgrade(target(), order(tmp_path))
    assert "/ours" not in stub.env.values()
    folder = stub.env["HOME"]
    assert stub.env["KUBECONFIG"] == f"{folder}/kubeconfig"
    assert stub.env["HELM_CACHE_HOME"].startswith(folder)


async def test_charts_are_fetched_through_the_proxy_and_trust_of_our_surroundings(stub: Stub) -> None:
    environ = {
        "HTTPS_PROXY": "http://proxy.example",
        "SSL_CERT_FILE": "/ca.pem",
        "KUBECONFIG": "/ours",
        "HOME": "/ours",
    }
    runner = HelmRunner(stub.make("echo 'version: 1.2.3'"), environ=environ)
    async with runner.fetching("a chart") as fetch:
        assert await fetch.newest_version("oci://registry.example/chart") == "1.2.3"
    assert (stub.env["HTTPS_PROXY"], stub.env["SSL_CERT_FILE"]) == ("http://proxy.example", "/ca.pem")
    assert "/ours" not in stub.env.values()


@pytest.mark.parametrize("after", ["echo '{}'", "exit 1", "kill -9 $$", "sleep 60"])
async def test_no_file_stays_behind_however_helm_ends(
    stub: Stub, tmp_path: Path, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    runner = HelmRunner(stub.make(after), deadline_seconds=1)
    await asyncio.gather(runner.upgrade(target(), order(tmp_path)), return_exceptions=True)
    assert [path.name for path in place.rglob("*") if not path.is_dir()] == ["lock"]
    runner.work_folder.close()
    assert list(place.iterdir()) == []


async def test_a_source_of_charts_that_hangs_keeps_no_guest_from_its_upgrade(
    stub: Stub, tmp_path: Path
) -> None:
    runner = HelmRunner(stub.make('[ "$1" != show ] || exec sleep 60; echo "{}"'), concurrency=1)

    async def fetch() -> None:
        async with runner.fetching("a chart") as charts:
            await charts.newest_version("oci://registry.example/chart")

    fetching = asyncio.create_task(fetch())
    while runner.runs == 0:  # noqa: ASYNC110 - a runner has no event for that
        await asyncio.sleep(0.01)
    await asyncio.wait_for(runner.upgrade(target(), order(tmp_path)), 20)
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)


async def test_a_failure_is_classified_and_its_words_do_not_travel(stub: Stub, tmp_path: Path) -> None:
    words = "Error: verysecret: another operation (install/upgrade/rollback) is in progress"
    assert await failure_of(stub.make(f"echo '{words}' >&2; exit 1"), tmp_path) is HelmFailure.IN_PROGRESS
    assert await failure_of(stub.make("kill -9 $$"), tmp_path) is HelmFailure.KILLED
    assert await failure_of(stub.make("sleep 60"), tmp_path, deadline_seconds=0.5) is HelmFailure.TIMED_OUT


async def test_of_an_upgrade_only_how_it_ended_is_read(stub: Stub, tmp_path: Path) -> None:
    for says in ("true", "echo '{broken'", "head -c 30000000 /dev/zero"):
        await HelmRunner(stub.make(says)).upgrade(target(), order(tmp_path))


async def test_helm_is_asked_by_name_and_revision_what_a_release_was_made_from(stub: Stub) -> None:
    answers = '[ "$2" = values ] && echo \'{"a": 1}\' || echo \'{"chart": "kube-vip", "version": "0.9.9"}\''
    found = await HelmRunner(stub.make(answers)).describe(target(), RECORD)
    assert (found.chart_name, found.chart_version, found.values) == ("kube-vip", "0.9.9", {"a": 1})
    place = ["kube-vip", "--namespace", "kube-system", "--revision", "1", "--output", "json"]
    assert stub.told("argv") == ["get", "values", *place]


async def test_a_release_without_values_has_none(stub: Stub) -> None:
    found = await HelmRunner(stub.make("echo null")).describe(target(), RECORD)
    assert (found.chart_name, found.values) == ("", {})


@pytest.mark.parametrize(
    ("says", "failure"),
    [
        ("echo '{'", HelmFailure.UNKNOWN),
        ("echo '[1]'", HelmFailure.UNKNOWN),
        ("head -c 100000 /dev/zero | tr '\\0' '['", HelmFailure.UNKNOWN),
        ("head -c 300000 /dev/zero | tr '\\0' ' '", HelmFailure.TOO_MUCH),
        ("kill -9 $$", HelmFailure.KILLED),
        ("exit 2", HelmFailure.KILLED),
    ],
)
async def test_what_helm_tells_of_a_release_is_bounded_and_may_be_nonsense(
    stub: Stub, says: str, failure: HelmFailure
) -> None:
    with pytest.raises(HelmError) as failed:
        await HelmRunner(stub.make(says)).describe(target(), RECORD)
    assert failed.value.failure is failure


async def test_what_is_left_of_a_turn_bounds_each_helm_in_it(stub: Stub, tmp_path: Path) -> None:
    """A slow guest held a turn for twelve minutes: 120 s for each of six names."""
    runner = HelmRunner(stub.make("sleep 60"), deadline_seconds=50)
    ends = target(0.5)
    began = asyncio.get_running_loop().time()
    for _ in range(6):
        with pytest.raises(HelmError) as failed:
            await runner.upgrade(ends, order(tmp_path))
        assert failed.value.failure is HelmFailure.TIMED_OUT
    assert asyncio.get_running_loop().time() - began < 10
    assert runner.runs == 1, "the others had no time left"


async def test_what_a_guest_serves_is_not_kept_on_our_disk(stub: Stub, tmp_path: Path) -> None:
    await HelmRunner(stub.make()).upgrade(target(), order(tmp_path))
    assert stub.env["KUBECACHEDIR"].startswith("/dev/null/")


async def test_a_helm_that_got_no_more_memory_was_killed_whatever_stands_in_its_traces(
    stub: Stub, tmp_path: Path
) -> None:
    crash = "echo 'fatal error: runtime: out of memory ... io.EOF' >&2; exit 2"
    assert await failure_of(stub.make(crash), tmp_path) is HelmFailure.KILLED
    assert stub.env["GOMEMLIMIT"] == "112MiB"


async def test_a_helm_that_cannot_be_started_is_told(stub: Stub, tmp_path: Path) -> None:
    assert await failure_of(str(tmp_path / "none"), tmp_path) is HelmFailure.NOT_STARTED
    stub.make()
    stub.program.chmod(stat.S_IRUSR)
    if os.geteuid() != 0 or not os.access(stub.program, os.X_OK):
        assert await failure_of(str(stub.program), tmp_path) is HelmFailure.NOT_STARTED


async def test_a_disk_that_cannot_be_written_is_told(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not-there"))
    assert await failure_of(stub.make(), tmp_path) is HelmFailure.FILES


async def test_no_more_helms_than_allowed_run_at_once(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "running").mkdir()
    count = f"touch {tmp_path}/running/$$; sleep 0.2; ls {tmp_path}/running | wc -l >> {tmp_path}/seen"
    forget = f"rm {tmp_path}/running/$$; echo '{{}}'"
    runner = HelmRunner(stub.make(f"{count}; {forget}"), concurrency=2)
    await asyncio.gather(*(runner.upgrade(target(), order(tmp_path)) for _ in range(6)))
    assert max(int(line) for line in (tmp_path / "seen").read_text().split()) <= 2
    assert runner.runs == 6


def test_helm_is_the_given_one_or_that_on_the_path(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    program = stub.make()
    assert find_helm(program) == program
    monkeypatch.setenv("PATH", str(stub.folder))
    assert find_helm() == program
    monkeypatch.setenv("PATH", "")
    for given, problem in ((None, "helm is not on PATH"), ("/no-such/helm", "/no-such/helm cannot be run")):
        with pytest.raises(StartError, match=problem):
            find_helm(given)
