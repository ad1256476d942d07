"""Completion in a real bash."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.api.cli.commands import PROGRAM, Commands

_ASK = """
source <(fipop completion bash)
COMP_WORDS=({words}) COMP_CWORD={index}
_fipop_completion fipop
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


async def complete(*words: str) -> list[str]:
    """What bash offers for the last word."""
    text = _ASK.format(words=" ".join(f"'{word}'" for word in words), index=len(words) - 1)
    process = await asyncio.create_subprocess_exec(
        *("bash", "--norc", "-c", text),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"},
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err
    return out.decode().split()


async def test_bash_completes_commands_and_options() -> None:
    assert await complete("fipop", "st") == ["status"]
    assert "--kubeconfig" in await complete("fipop", "who", "--k")
    assert set(await complete("fipop", "status", "-o", "")) >= {"json", "wide"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_every_shell_gets_a_script(shell: str, tmp_path: Path) -> None:
    commands = Commands(kubeconfig=tmp_path / "none")
    own = await commands.run("completion", shell)
    assert own.code == 0
    assert "_FIPOP_COMPLETE" in own.out
    plugin = await commands.run("completion", shell, "--program", "kubectl-fip")
    assert "_KUBECTL_FIP_COMPLETE" in plugin.out
