"""What a guest tells people of itself, and at which step it stops telling."""

from typing import Any

import pytest

from fipop.errors import ForbiddenError
from fipop.report.guests import list_unread, read_guests
from tests.harness.answering_client import AnsweringClient
from tests.unit.report.snapshots import build_cluster, snapshot

SNAPSHOT = snapshot(clusters=[build_cluster("demo", "c-m-a")])


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
