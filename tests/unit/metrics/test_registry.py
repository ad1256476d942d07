"""What the metrics of every role have in common."""

from tests.unit.metrics.samples import Fleet


def test_the_process_and_its_runtime_are_shown_too(fleet: Fleet) -> None:
    assert fleet.lines("process_resident_memory_bytes ")
    assert fleet.lines("python_gc_collections_total{")
    assert fleet.lines("python_info{")
