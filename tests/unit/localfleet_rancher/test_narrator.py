"""The demo tells what changes, once."""

import io
from typing import Any

from localfleet.narrator import Narrator
from localfleet.report import Report

FLOATING_IP = {"kind": "FloatingIP", "metadata": {"name": "demo-kubevip", "namespace": "c-m-1"}}


def told(*events: tuple[str, dict[str, Any]]) -> tuple[Narrator, list[str]]:
    stream = io.StringIO()
    narrator = Narrator(Report(stream=stream))
    for kind, found in events:
        narrator._tell("", {"type": kind, "object": found}, narrator._describe_floating_ip)
    return narrator, [line.split("  ")[-1] for line in stream.getvalue().splitlines()]


def test_each_change_is_told_once_and_a_repetition_not_at_all() -> None:
    held = {**FLOATING_IP, "status": {"addresses": ["10.0.0.1"]}}
    ready = {
        **FLOATING_IP,
        "status": {"addresses": ["10.0.0.1"], "conditions": [{"type": "Ready", "status": "True"}]},
    }
    narrator, lines = told(
        ("ADDED", FLOATING_IP),
        ("MODIFIED", held),
        ("MODIFIED", held),
        ("MODIFIED", ready),
        ("DELETED", ready),
    )
    assert lines == [
        "floating IP demo-kubevip is new",
        "floating IP demo-kubevip holds 10.0.0.1",
        "floating IP demo-kubevip holds 10.0.0.1, ready",
        "floating IP demo-kubevip is gone",
    ]
    assert set(narrator.first_address) == {"demo-kubevip"}


def test_an_error_of_the_watch_is_not_told() -> None:
    _, lines = told(("ERROR", {"kind": "Status", "code": 410}))
    assert lines == []
