"""Back to the commit before: its operator, on what this one wrote, moves no address and writes no guest a wrong one."""

import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.fleet import LocalFleet
from localfleet.stack import ALL_FLOATING_IPS, RANGES, Stack, build_range, open_stack
from tests.api.served_guest import bring_up

ROOT = Path(__file__).parents[2]


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """A program that runs the commit before."""
    packed = subprocess.run(
        ("git", "archive", "--format=tar", "HEAD~1", "fipop", "crds"),
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if packed.returncode:
        pytest.skip("there is no commit before this one here")
    source = tmp_path / "former"
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(source, filter="data")
    program = tmp_path / "former-fipop"
    program.write_text(
        f"#!{sys.executable} -P\nimport sys\nsys.path.insert(0, {str(source)!r})\n"
        "from fipop.cli.main import main\nmain()\n"
    )
    program.chmod(0o755)
    return program


@pytest_asyncio.fixture(scope="module")
async def stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    async with open_stack(fleet, "going-back", settings={"operateGuestClusterInterval": "1"}) as stack:
        yield stack


async def addresses(stack: Stack) -> dict[str, list[str]]:
    return {
        each["metadata"]["name"]: each["status"]["addresses"]
        for each in await stack.client.items(ALL_FLOATING_IPS)
        if (each.get("status") or {}).get("addresses")
    }


async def test_the_operator_of_the_commit_before_works_on_with_what_this_one_wrote(
    stack: Stack, fleet: LocalFleet, former: Path
) -> None:
    plane = await fleet.guest("going-back-guest")
    await stack.client.create(
        RANGES, build_range("vlan", "10.55.0.0/24", harvester="harvester-cluster1", network="vlan10")
    )
    operator = await stack.start_operator()
    async with bring_up(stack, plane, stack.player.plan_guest("demo")) as guest:
        await guest.has_condition("Allocated")
        await guest.ask("static", "vlan", ipaddress="10.55.0.77")
        await guest.ask("second", "vlan", serviceNamespace="web")
        for name in ("static", "second"):
            await guest.has_condition(name=name)
        before, reservations, data = await addresses(stack), await stack.held(), await guest.data()
        assert len(before) == 3
        assert await operator.stop() == 0

        stack.installation = replace(stack.installation, program=former)
        await stack.start_operator(name="former")
        await guest.passes(2)
        assert await addresses(stack) == before
        assert await stack.held() == reservations
        assert await guest.data() == data
        await guest.ask("third", "vlan", serviceNamespace="api")
        await guest.has_condition(name="third")
        assert {name: held for name, held in (await addresses(stack)).items() if name in before} == before

        # And forward again.
        await stack.operators[-1].stop()
        stack.installation = replace(stack.installation, program=None)
        after = await addresses(stack)
        await stack.start_operator(name="again")
        await guest.passes(2)
        assert await addresses(stack) == after
    await fleet.remove(plane)
