"""`fipop operator` as a process: how it ends where it cannot begin, and what it waits for."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from localfleet.rancher_objects import build_kubeconfig
from tests.harness.forked_commands import run_forked

FIPOP = Path(sys.executable).parent / "fipop"
CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig of a server that nobody is."""
    return write_kubeconfig(tmp_path, "https://127.0.0.1:1")


def write_kubeconfig(folder: Path, server: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(build_kubeconfig(server=server, token="s3cret"))
    return path


@pytest.fixture
def helm(tmp_path: Path) -> Path:
    """A program that could be helm."""
    return write_helm(tmp_path / "helm", "v4.3.2")


def write_helm(path: Path, version: str) -> Path:
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


@asynccontextmanager
async def running(
    *arguments: str | Path, python_path: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        FIPOP,
        "operator",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/nowhere"} | ({"PYTHONPATH": str(python_path)} if python_path is not None else {}),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ends(*arguments: str | Path) -> str:
    """Run it to its end, which is a failure told in one line; why it ended."""
    code, output, errors = await run_forked(["operator", *map(str, arguments)], env={"PATH": "/nowhere"})
    assert code == 1
    assert output == b""
    [line] = errors.decode().splitlines()
    told = json.loads(line)
    assert (told["level"], told["message"]) == ("CRITICAL", "Operator failed")
    assert "s3cret" not in line
    error: str = told["error"]
    return error


async def test_a_kubeconfig_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("nonsense")
    said = f'kubeconfig "{path}" cannot be used. kubectl version --kubeconfig {path} shows why'
    assert await ends("--kubeconfig", path) == said


async def test_without_a_kubeconfig_it_must_be_a_pod() -> None:
    assert await ends() == (
        "this process is in no pod with a ServiceAccount. Name a kubeconfig with --kubeconfig"
    )


async def test_a_helm_that_is_missing_is_told(kubeconfig: Path) -> None:
    expected = "helm program helm is not on PATH. Install it, or name it with --helm"
    assert await ends("--kubeconfig", kubeconfig) == expected
    named = await ends("--kubeconfig", kubeconfig, "--helm", "/nowhere/helm")
    assert named == "helm program /nowhere/helm cannot be run. Install it, or name it with --helm"


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("v3.12.3", "has version 3.12, and fipop needs 3.13 or later"),
        ("v2.17.0", "has version 2.17, and fipop needs 3.13 or later"),
        ("nonsense", "does not report its version"),
    ],
)
async def test_a_helm_that_cannot_be_used_is_reported(
    kubeconfig: Path, tmp_path: Path, version: str, problem: str
) -> None:
    helm = write_helm(tmp_path / "helm", version)
    told = await ends("--kubeconfig", kubeconfig, "--helm", helm)
    assert told == f"helm program {helm} {problem}. Name another one with --helm"


async def test_a_folder_whose_files_cannot_be_read_is_told(
    kubeconfig: Path, helm: Path, tmp_path: Path
) -> None:
    (tmp_path / "crds").mkdir()
    (tmp_path / "defaults").mkdir()
    common = ("--kubeconfig", kubeconfig, "--helm", helm)

    (tmp_path / "defaults" / "logLevel").write_bytes(b"\xff\xfe")
    told = await ends(*common, "--settings-defaults", tmp_path / "defaults")
    assert told == f"settings defaults {tmp_path}/defaults cannot be read as text files"

    (tmp_path / "crds" / "a.yaml").write_text("a: [")
    told = await ends(*common, "--crds", tmp_path / "crds")
    assert told == f"CRD file {tmp_path}/crds/a.yaml cannot be read as YAML"

    (tmp_path / "crds" / "a.yaml").write_text("kind: ConfigMap")
    told = await ends(*common, "--crds", tmp_path / "crds")
    assert told == f"CRD file {tmp_path}/crds/a.yaml must have a CustomResourceDefinition"


async def test_a_health_port_that_is_taken_is_told(kubeconfig: Path, helm: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = await ends("--kubeconfig", kubeconfig, "--helm", helm, "--health-port", str(port))
    assert told == f"health port {port} cannot be listened on: Address already in use"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_api_server_that_is_away_is_waited_for_until_it_is_asked_to_end(
    kubeconfig: Path, helm: Path, number: signal.Signals
) -> None:
    arguments = ("--kubeconfig", kubeconfig, "--helm", helm, "--crds", CRDS, "--health-port", "0")
    async with running(*arguments) as process, asyncio.timeout(30):
        assert process.stderr is not None
        waits = json.loads(await process.stderr.readline())
        assert (waits["level"], waits["message"], waits["step"]) == (
            "WARNING",
            "Start is waiting",
            "settings",
        )
        assert "kube-fip/" in waits["error"]
        assert "the server refused the connection" in waits["error"]
        process.send_signal(number)
        rest = (await process.stderr.read()).decode().splitlines()
        assert [json.loads(line)["message"] for line in rest] == ["Stopping", "Stopped"]
        assert await process.wait() == 0


HANGING = """
import sys, time
import fipop.cli.process as program
program.STOP_SECONDS = 0.2
program.start_watchdog()
time.sleep(60)
"""


async def test_a_stop_that_hangs_is_ended_all_the_same() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HANGING)
    async with asyncio.timeout(30):
        assert await process.wait() == 1


STUBBORN = """
import asyncio
from fipop.cli.process import run_until_asked
from fipop.errors import StartError

async def outlive():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def role():
    left = asyncio.create_task(outlive())
    await asyncio.sleep(0)
    raise {error}

asyncio.run(run_until_asked(role(), failure="Operator failed"))
"""


@pytest.mark.parametrize(
    ("error", "last_line"),
    [
        ("StartError(what='watching', problem='ended')", "Operator failed"),
        ("ValueError('unforeseen')", "ValueError: unforeseen"),
    ],
)
async def test_a_process_that_fails_ends_with_the_cause_whatever_it_leaves(
    error: str, last_line: str
) -> None:
    """After the deletion of a CRD, tasks of kopf outlived their cancellation."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STUBBORN.replace("{error}", error), stderr=asyncio.subprocess.PIPE
    )
    # Before the watchdog, which says nothing.
    async with asyncio.timeout(20):
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.decode().splitlines()[-1] == last_line


HANGING_LOOKUPS = """\
import socket, sys, time
real = socket.getaddrinfo
def getaddrinfo(host, *arguments, **options):
    if host == "hangs.example":
        print("looked up", flush=True)
        time.sleep(120)
    return real(host, *arguments, **options)
socket.getaddrinfo = getaddrinfo
"""


async def test_a_name_that_is_still_being_looked_up_holds_the_end_up_no_longer_than_anything_else(
    tmp_path: Path, helm: Path
) -> None:
    """A lookup runs in a thread, which nothing can stop and Python waits for without end."""
    (tmp_path / "sitecustomize.py").write_text(HANGING_LOOKUPS)
    path = write_kubeconfig(tmp_path, "https://hangs.example:1")
    arguments = ("--kubeconfig", path, "--helm", helm, "--health-port", "0")
    async with running(*arguments, python_path=tmp_path) as process:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"looked up\n"
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await process.wait() == 0
