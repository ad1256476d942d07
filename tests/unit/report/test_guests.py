"""What a guest tells people of itself, and at which step it stops telling."""

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fipop.errors import ForbiddenError
from fipop.report.guests import GuestReport, list_unread, read_guests
from localfleet.certificates import build_authority
from localfleet.proxy import RancherProxy
from localfleet.rancher_objects import build_kubeconfig
from localfleet.simulated import SimulatedGuest
from tests.harness.answering_client import AnsweringClient
from tests.harness.objects import v4
from tests.unit.report.snapshots import build_cluster, snapshot

TOKEN = "token"
SNAPSHOT = snapshot(clusters=[build_cluster("demo", "c-m-a")])


@pytest.fixture
async def proxy() -> AsyncIterator[RancherProxy]:
    async with RancherProxy(build_authority("rancher", datetime.now(UTC))) as proxy:
        proxy.issue_token(TOKEN)
        yield proxy


def client(value: str | None) -> Any:
    """A management cluster whose one Secret has this value; None: it has none."""

    async def get(*_: object, **__: object) -> object:
        return None if value is None else {"data": {"value": value}}

    return AnsweringClient(get=get)


@pytest.mark.parametrize(
    ("guest", "value", "named"),
    [
        ("c-m-b", "", ""),
        ("c-m-a", None, "fleet-default/demo-kubeconfig"),
        ("c-m-a", "%%%", ""),
    ],
)
async def test_without_a_kubeconfig_nothing_is_asked(guest: str, value: str | None, named: str) -> None:
    (words,) = await read_guests(client(value), SNAPSHOT, [guest])
    assert words.step == "kubeconfig"
    assert words.problem
    assert named in words.problem


async def test_a_secret_that_the_reader_may_not_get_is_unread() -> None:
    async def get(*_: object, **__: object) -> object:
        raise ForbiddenError("get Secret", status=403)

    (report,) = await read_guests(AnsweringClient(get=get), SNAPSHOT, ["c-m-a"])
    assert report.step == "rights"
    assert [(each.what, each.forbidden) for each in list_unread([report])] == [("guest cluster c-m-a", True)]


async def test_a_guest_is_asked_and_tells_what_it_carries(proxy: RancherProxy) -> None:
    proxy.add_guest("c-m-a", SimulatedGuest(latency_seconds=0.01))
    proxy.bind_token(TOKEN, "c-m-a")
    kubeconfig = build_kubeconfig(server=proxy.url_of("c-m-a"), token=TOKEN, ca_pem=proxy.ca_pem)
    value = base64.b64encode(kubeconfig.encode()).decode()
    (words,) = await read_guests(client(value), SNAPSHOT, ["c-m-a"])
    assert (words.step, words.problem) == ("", "")
    assert words.version


def test_addresses_are_those_of_its_config_map_written_either_way() -> None:
    words = GuestReport(guest="c-m-a", config_map={"a": "10.0.0.5/32, 10.0.0.6", "b": "fd00::1/128,text"})
    assert {v4("10.0.0.5"), v4("10.0.0.6")} < words.addresses()
    assert len(words.addresses()) == 3
