"""What we take out of answers, and what is left of them for kopf."""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from fipop.jsons import JsonView
from fipop.kube.resources import NAMESPACES
from fipop.runtime.kopf.bridge import EventType
from fipop.runtime.kopf.content import ListContent, WatchContent
from fipop.runtime.kopf.liveness import Liveness


class Body:
    """An answer's body that comes in these pieces."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = list(pieces)

    async def read(self, _n: int = -1) -> bytes:
        return b"".join(self.pieces)

    async def iter_chunked(self, _n: int) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


class Taken:
    """Who the objects are delivered to."""

    def __init__(self) -> None:
        self.events: list[tuple[EventType, str]] = []

    def __call__(self, event_type: EventType, obj: JsonView) -> None:
        self.events.append((event_type, obj["metadata"]["name"]))


def line(event_type: str, **metadata: str) -> bytes:
    return json.dumps({"type": event_type, "object": {"metadata": metadata}}).encode() + b"\n"


async def watch(*pieces: bytes) -> tuple[list[tuple[EventType, str]], list[bytes]]:
    """What is delivered of these pieces, and the lines that are left for kopf."""
    taken, signs = Taken(), Liveness([NAMESPACES], clock=lambda: 0.0)
    content = WatchContent(Body(pieces), taken, signs, NAMESPACES)  # type: ignore[arg-type] # as far as it is read
    left = b"".join([chunk async for chunk in content.iter_chunked(1024)])
    return taken.events, left.splitlines(keepends=True)


BOOKMARK = line("BOOKMARK", resourceVersion="9")


async def test_events_are_delivered_and_kopf_learns_where_to_go_on() -> None:
    events, left = await watch(
        line("ADDED", name="a", resourceVersion="5") + line("MODIFIED", name="a", resourceVersion="6"),
        line("DELETED", name="a", resourceVersion="7"),
    )
    assert events == [(EventType.ADDED, "a"), (EventType.MODIFIED, "a"), (EventType.DELETED, "a")]
    assert left == [line("BOOKMARK", resourceVersion="6"), line("BOOKMARK", resourceVersion="7")]


async def test_an_event_that_comes_in_pieces_is_one() -> None:
    whole = line("ADDED", name="a", resourceVersion="5")
    events, left = await watch(*(whole[at : at + 1] for at in range(len(whole))))
    assert events == [(EventType.ADDED, "a")]
    assert left == [line("BOOKMARK", resourceVersion="5")]


async def test_bookmarks_come_through_behind_what_they_stand_behind() -> None:
    """Else kopf would go on from before an event, or from behind one that was not delivered."""
    events, left = await watch(
        line("ADDED", name="a", resourceVersion="5")
        + BOOKMARK
        + line("ADDED", name="b", resourceVersion="12")
    )
    assert [name for _, name in events] == ["a", "b"]
    assert left == [
        line("BOOKMARK", resourceVersion="5"),
        BOOKMARK,
        line("BOOKMARK", resourceVersion="12"),
    ]


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(b'{"type":"ERROR","object":{"code":410}}\n', id="an error"),
        pytest.param(b"[]\n", id="no event"),
        pytest.param(b"{\n", id="no JSON"),
        pytest.param(line("ADDED", resourceVersion="5"), id="no name"),
        pytest.param(line("ADDED", name="a"), id="no version"),
        pytest.param(b'{"type":"ADDED","object":[]}\n', id="no object"),
        pytest.param(b'{"type":["ADDED"],"object":{}}\n', id="a type that is no text"),
    ],
)
async def test_what_is_no_event_of_an_object_is_kopfs(strange: bytes) -> None:
    events, left = await watch(strange)
    assert events == []
    assert left == [strange]


async def test_half_an_event_at_the_end_is_kopfs() -> None:
    events, left = await watch(line("ADDED", name="a", resourceVersion="5"), b'{"type":"ADD')
    assert events == [(EventType.ADDED, "a")]
    assert left[-1] == b'{"type":"ADD'


async def read_list(listing: Any) -> tuple[list[tuple[EventType, str]], Any]:
    taken = Taken()
    content = ListContent(Body([json.dumps(listing).encode()]), taken)  # type: ignore[arg-type]
    return taken.events, json.loads(await content.read())


async def test_objects_of_a_list_are_delivered_and_kopf_gets_its_version_and_its_next_page() -> None:
    metadata = {"resourceVersion": "7", "continue": "more"}
    items = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in ("a", "b")]
    events, left = await read_list({"kind": "NamespaceList", "metadata": metadata, "items": items})
    assert events == [(EventType.LISTED, "a"), (EventType.LISTED, "b")]
    assert left == {"kind": "NamespaceList", "metadata": metadata, "items": []}


@pytest.mark.parametrize("strange", [[], {}, {"items": [1]}, {"items": [{"metadata": {}}]}, "x", None])
async def test_what_is_no_list_is_kopfs_and_nothing_of_it_is_delivered(strange: Any) -> None:
    events, left = await read_list(strange)
    assert events == []
    assert left == strange
