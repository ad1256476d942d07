"""What the probes are told, as a table of facts, and over HTTP."""

from dataclasses import replace

import pytest

from fipop.runtime.health import (
    HealthFacts,
    ReadRecord,
    judge_liveness,
    judge_readiness,
)

GOOD = HealthFacts(
    silences={"floatingips": 3.0, "namespaces": 61.0},
    since_read=1.0,
    reading_for=3600.0,
    ledger_loaded=True,
)

LIVENESS = [
    ("all is well", {}, True),
    ("one stream is silent though the API server reads objects", {"silences": {"a": 1.0, "b": 111.0}}, False),
    ("a quiet stream within the limit", {"silences": {"a": 109.0}}, True),
    (
        "all streams are silent for an hour while the API server is away or its store hangs",
        {"silences": {"a": 3600.0}, "since_read": 3600.0, "reading_for": 0.0},
        True,
    ),
    (
        "the API server answers 500 to everything, and did so from the start",
        {"silences": {"a": 600.0}, "since_read": None, "reading_for": 0.0},
        True,
    ),
    ("the API server is back since a minute", {"silences": {"a": 3600.0}, "reading_for": 60.0}, True),
    (
        "the API server is back since two minutes and a stream is still silent",
        {"silences": {"a": 3600.0}, "reading_for": 120.0},
        False,
    ),
    ("the ledger is not loaded, which a restart would not help", {"ledger_loaded": False}, True),
    ("something else is not ready", {"not_ready": {"schema": "older"}}, True),
    ("no stream is known yet", {"silences": {}}, True),
]

READINESS = [
    ("all is well", {}, True),
    ("the ledger is not loaded", {"ledger_loaded": False}, False),
    ("no object was ever read", {"since_read": None}, False),
    ("an object was read 30 s ago", {"since_read": 30.0}, True),
    ("an object was read 31 s ago", {"since_read": 31.0}, False),
    ("a stream is silent, which liveness tells", {"silences": {"a": 3600.0}}, True),
    ("the schema is older", {"not_ready": {"schema": "floatingips is older than this program"}}, False),
]


@pytest.mark.parametrize(("changes", "live"), [row[1:] for row in LIVENESS], ids=[row[0] for row in LIVENESS])
def test_liveness(changes: dict[str, object], live: bool) -> None:
    assert judge_liveness(replace(GOOD, **changes)).ok is live  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "ready"), [row[1:] for row in READINESS], ids=[row[0] for row in READINESS]
)
def test_readiness(changes: dict[str, object], ready: bool) -> None:
    assert judge_readiness(replace(GOOD, **changes)).ok is ready  # type: ignore[arg-type]


class TestReadRecord:
    def new(self) -> ReadRecord:
        self.now = 1000.0
        return ReadRecord(clock=lambda: self.now)

    def read_until(self, reads: ReadRecord, end: float, *, every: float) -> None:
        while self.now + every <= end:
            self.now += every
            reads.record()

    def test_before_the_first_read_nothing_is_known(self) -> None:
        record = self.new()
        assert (record.since_read, record.reading_for) == (None, 0.0)

    def test_reads_without_a_gap_count_from_the_first(self) -> None:
        record = self.new()
        self.read_until(record, 1300, every=10)
        self.now += 5
        assert (record.since_read, record.reading_for) == (5.0, 295.0)

    def test_single_failures_are_no_gap(self) -> None:
        record = self.new()
        self.read_until(record, 1300, every=30)
        assert record.reading_for == 270.0

    def test_while_nothing_can_be_read_it_reads_for_no_time(self) -> None:
        record = self.new()
        self.read_until(record, 1300, every=10)
        self.now += 31
        assert (record.since_read, record.reading_for) == (31.0, 0.0)

    def test_after_its_return_the_count_begins_anew(self) -> None:
        record = self.new()
        self.read_until(record, 1300, every=10)
        self.now = 1600
        self.read_until(record, 1620, every=10)
        assert record.reading_for == 10.0
