"""What watches have in store is told from the first lists and the history."""

import time

from localfleet.faultproxy import Passed
from localfleet.faultproxy.rules import classify
from tests.faults.shown import shown_since, shown_to
from tests.harness.history import Change, History

GROUP = "/apis/kubefip.k8s.binbash.org/v1"


def change(at: float, name: str, *, plural: str = "floatingips", gone: bool = False) -> Change:
    obj = None if gone else {"metadata": {"name": name}}
    return Change(revision=int(at), at=at, plural=plural, namespace="", name=name, obj=obj)


HISTORY = History(
    changes=[
        change(0, "old"),
        change(1, "before"),
        change(2, "r1", plural="floatingipranges"),
        change(6, "before"),
        change(7, "late"),
        change(8, "old", gone=True),
        change(9, "r1", plural="floatingipranges"),
    ]
)


def test_what_was_there_at_the_first_list_is_no_event_of_a_watch() -> None:
    assert shown_since({"floatingips": 5.0, "floatingipranges": 5.0}, HISTORY) == {
        ("MODIFIED", "floatingips"),
        ("ADDED", "floatingips"),
        ("DELETED", "floatingips"),
        ("MODIFIED", "floatingipranges"),
    }


def test_a_resource_that_is_never_listed_is_never_watched() -> None:
    assert shown_since({"floatingips": 6.5}, HISTORY) == {
        ("ADDED", "floatingips"),
        ("DELETED", "floatingips"),
    }


def test_only_the_first_list_of_our_resources_counts() -> None:
    now, unix = time.monotonic(), time.time()
    passed = [
        Passed(seen=classify("GET", f"{GROUP}/{plural}", ""), at=now + at, status=200, struck=None)
        for at, plural in ((5.0, "floatingips"), (20.0, "floatingips"), (0.0, "secrets"))
    ]
    early, late = change(unix + 1, "early"), change(unix + 9, "late", plural="floatingips")
    assert shown_to(passed, History(changes=[early])) == frozenset()
    assert shown_to(passed, History(changes=[early, late])) == {("ADDED", "floatingips")}
