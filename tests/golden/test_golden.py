"""What fipop publicly does is what is recorded; a difference is recorded, too, and named in its commit."""

import pytest

from tests.golden.recording import RECORDINGS, read


@pytest.mark.parametrize("name", RECORDINGS)
def test_what_fipop_does_is_as_recorded(name: str) -> None:
    made, recorded = RECORDINGS[name](), read(name)
    for file in sorted({*made, *recorded}):
        assert made.get(file, "") == recorded.get(file, ""), f"{name}/{file} differs: tests/golden/README.md"
