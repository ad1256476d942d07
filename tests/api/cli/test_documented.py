"""The commands of the documentation, typed into a shell against a real installation."""

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.cli.commands import PROGRAM
from tests.api.cli.conftest import Seen
from tests.harness.forked_commands import run_forked

pytestmark = pytest.mark.xdist_group("seen")

ROOT = Path(__file__).parents[3]
PAGES = ("cli", "page", "getting-started", "migrating", "air-gap", "troubleshooting", "alerts")
_INLINE = re.compile(r"`((?:fipop|kubectl) [^`]+)`")
ELSEWHERE = (
    r"make |pipx |docker |skopeo |sha256sum ",  # of other programs; the wheel and the image have tests of their own
    r"helm ",  # tests/api/test_chart_install.py
    r"fipop web",  # tests/api/page
    r"source |fipop completion \w+ [>|]",  # tests/api/cli/test_completion.py
    r"kubectl .*(exec|port-forward|logs|servicemonitor)",  # there is no kubelet here, and no monitoring
    r"kubectl .*scale",  # tests/api/test_predecessor.py
    r"kubectl describe its ",  # a sentence
)
"""What is shown, and tried by other tests or not at all."""
DEADLINE_SECONDS = 60


def commands() -> Iterator[str]:
    for page in PAGES:
        text = (ROOT / "docs" / f"{page}.md").read_text()
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            yield from (line.strip() for line in block.splitlines() if line.strip())
        yield from _INLINE.findall(text)


TRIED = sorted({each for each in commands() if not re.match("|".join(ELSEWHERE), each)})


async def _type(command: str, env: dict[str, str], folder: Path) -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    async with asyncio.timeout(DEADLINE_SECONDS):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err


@pytest.mark.parametrize("command", TRIED)
async def test_a_documented_command_works(seen: Seen, tmp_path: Path, command: str) -> None:
    guest = seen.guest.id
    shown = {
        r"\b(RANGE|guest-vlan)\b": "vlan",
        r"\b(ADDRESS|10\.0\.0\.5)\b": seen.address,
        r"\b(NAMESPACE-OF-THE-GUEST|NS|c-m-abc)\b": guest,
        r"describe fip NAME": "describe fip demo-kubevip",
        r"\bNAME\b": "demo",
        r"--wait \dm": "--wait 2s",
        "…": "x",
        r"create (-f|clusterrolebinding|rolebinding|secret|configmap)": r"create --dry-run=server \1",
        r"create --dry-run=server secret generic": "create secret generic --dry-run=server",
        r"create --dry-run=server configmap": "create configmap --dry-run=server",
        r"create --dry-run=server (clusterrolebinding|rolebinding)": r"create \1 --dry-run=server",
    }
    for pattern, instead in shown.items():
        command = re.sub(pattern, instead, command)
    await asyncio.to_thread(shutil.copytree, ROOT / "examples", tmp_path / "examples")
    await asyncio.to_thread((tmp_path / "authority.pem").write_text, "x")
    kubectl = seen.stack.fleet.programs["kubectl"]
    helm = seen.stack.installation.helm.program
    env = {
        "PATH": os.pathsep.join(
            [str(each.parent) for each in (PROGRAM, kubectl, helm)] + [os.environ["PATH"]]
        ),
        "HOME": str(tmp_path),
        "KUBECONFIG": str(seen.commands.kubeconfig),
        "LANG": "C.UTF-8",
    }
    if re.fullmatch(r"fipop [^|<>;&$]*", command):
        code, out, err = await run_forked(shlex.split(command, comments=True)[1:], env=env, cwd=tmp_path)
    else:
        code, out, err = await _type(command, env, tmp_path)
    said = (out + err).decode()
    # What fipop finds in this installation (the guest is on this machine, which is refused) is none of its faults.
    assert code in ({0, 1} if "fip" in command.split()[0:2] or command.startswith("fipop") else {0}), said
    assert "Traceback" not in said
    assert "Usage:" not in said, said
