"""How many helms a memory limit carries."""

from pathlib import Path

import pytest

from fipop.operator.memory_limit import most_helms, read_memory_limit

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("limit", "most"),
    [(None, None), (100 * MIB, 1), (512 * MIB, 1), (576 * MIB, 2), (640 * MIB, 2), (1024 * MIB, 4)],
)
def test_a_helm_takes_160_mib_beside_our_256(limit: int | None, most: int | None) -> None:
    assert most_helms(limit) == most


@pytest.mark.parametrize(
    ("file", "text", "limit"),
    [
        ("memory.max", "671088640\n", 640 * MIB),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "671088640\n", 640 * MIB),
        ("memory/memory.limit_in_bytes", str(2**63 - 4096), None),
        ("other", "1", None),
    ],
)
def test_the_limit_of_the_container_is_read(tmp_path: Path, file: str, text: str, limit: int | None) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert read_memory_limit(tmp_path) == limit
