"""What a guest cluster answers is bounded in time and memory, behind a reverse proxy that frames as Rancher's does."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fipop.errors import ApiError
from fipop.guests.access import open_guest
from fipop.kube.guests import CONNECTIONS, GuestServers, read_kubeconfig
from fipop.kube.resources import CONFIG_MAPS
from tests.hostile.behind import Behind
from tests.hostile.run import Trap

pytestmark = pytest.mark.xdist_group("hostile-answers")

HUNG_SECONDS, REQUEST_SECONDS = 0.3, 10.0
"""Of a request that hangs, and of any other: those of the operator have 10 s."""
MOST_MIB = 64
HANGING = "did not answer in time"
ENDINGS = {
    # Sizes
    "transport-endless-body": "larger than fipop reads",
    "transport-chunks-of-a-byte": "larger than fipop reads",
    "transport-gzip": "the answer is compressed",
    "answer-four-mebibytes": "larger than fipop reads",
    "answer-object-of-two-mebibytes": "larger than fipop reads",
    "answer-small-objects": "not one of a Kubernetes API",
    "transport-reason-of-a-megabyte": "409",
    # Depth
    "answer-deep": "not one of a Kubernetes API",
    "answer-digits": "not one of a Kubernetes API",
    # Pages
    "answer-pages-without-end": "more pages than fipop reads",
    "answer-long-token": "",
    # Time
    "slow-silent": HANGING,
    "slow-one-byte-a-second": HANGING,
    "slow-chunk-a-second": HANGING,
    "slow-body-that-stops": HANGING,
    "slow-status-line-that-stops": HANGING,
    "slow-headers-for-ever": HANGING,
    # Redirects
    "transport-redirect-302": "redirected the request",
    "transport-redirect-307": "redirected the request",
    # Framing, which the proxy parses
    "transport-closes": "502",
    "transport-zeros": "502",
    "transport-ssh": "502",
    "transport-upgrade": "502",
    "transport-short-body": "the connection was cut",
    "transport-chunk-extension-without-end": "the connection was cut",
    "transport-interim-answers-without-end": HANGING,
    "transport-headers-without-end": "502",
    "transport-headers-of-a-mebibyte": "the connection was cut",
}


@pytest_asyncio.fixture(scope="module")
async def trap() -> AsyncIterator[Trap]:
    trap = Trap()
    await trap.open()
    yield trap
    await trap.close()


@pytest_asyncio.fixture(scope="module")
async def behind(trap: Trap) -> AsyncIterator[Behind]:
    async with Behind(trap.port) as behind:
        yield behind


@pytest_asyncio.fixture
async def servers() -> AsyncIterator[GuestServers]:
    servers = GuestServers()
    yield servers
    await servers.close()


async def ask(
    servers: GuestServers,
    behind: Behind,
    case: str | None,
    *,
    number: int = 0,
    seconds: float = REQUEST_SECONDS,
) -> str:
    """Have a guest cluster of this kind, list its ConfigMaps, and return the error."""
    guest = f"c-m-{case or 'calm'}-{number}"
    await behind.add(guest, case)
    cluster = {
        "server": behind.url_of(guest),
        "certificate-authority-data": base64.b64encode(behind.ca_pem.encode()).decode(),
    }
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "d", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "d",
    }
    access = read_kubeconfig(json.dumps(document).encode(), guest)
    async with open_guest(servers, access, timeout_seconds=seconds) as client:
        try:
            await client.list(CONFIG_MAPS)
        except ApiError as error:
            return str(error)
    return ""


def peak_mib() -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def forget_peak() -> float:
    """Have the kernel measure the peak of this process anew; return what it has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mib()


@pytest.mark.parametrize(("case", "ending"), ENDINGS.items())
async def test_every_answer_ends_in_bounded_time_and_memory(servers, behind, trap, case, ending):
    before = forget_peak()
    seconds = HUNG_SECONDS if ending == HANGING else REQUEST_SECONDS
    async with asyncio.timeout(3 * REQUEST_SECONDS):
        error = await ask(servers, behind, case, seconds=seconds)
    assert re.search(rf"could not list ConfigMap: .*{ending}", error), error
    assert peak_mib() - before < MOST_MIB
    assert trap.visits == 0


async def test_as_many_as_there_are_connections_are_bounded_together(servers, behind):
    before = forget_peak()
    large = ("answer-object-of-two-mebibytes", "transport-endless-body", "answer-small-objects")
    found = await asyncio.gather(
        *(ask(servers, behind, large[number % 3], number=number) for number in range(CONNECTIONS))
    )
    assert all(found)
    assert peak_mib() - before < 4 * MOST_MIB
    assert await ask(servers, behind, None) == ""
