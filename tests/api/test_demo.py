"""`make demo` shows what it promises; its last line and its exit code say so."""

import asyncio
import re
import sys

LAST_LINE = re.compile(r"demo: (\d+) checks passed, (\d+) failed")


async def test_the_demo_passes_all_its_checks() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "localfleet.demo"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(180):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    story = output.decode()
    verdict = LAST_LINE.fullmatch(story.splitlines()[-1])
    assert verdict is not None, story
    assert (process.returncode, int(verdict[2])) == (0, 0), story
    assert int(verdict[1]) >= 25
