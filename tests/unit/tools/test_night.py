"""`make night`: one line for each part, and a failure that nobody can miss."""

from pathlib import Path

import pytest

from tests.night import CI, PARTS, Part, main

GOOD = Part(name="good", what="counting", night="echo 3 passed", long="echo 30 passed")
BAD = Part(name="bad", what="failing", night="sh -c 'echo why; echo 1 failed; exit 3'", ci="false")


def test_each_part_has_a_line_with_its_result_and_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], parts=[BAD, GOOD], out=tmp_path) == 1
    bad, good = capsys.readouterr().out.splitlines()
    assert bad.startswith("bad")
    assert f"failing: FAILED with 3, see {tmp_path / 'bad.log'}" in bad
    assert bad.endswith("1 failed")
    assert "counting: ok" in good
    assert good.endswith("3 passed")
    assert "why" in (tmp_path / "bad.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "last"),
    [(["good"], 0, "3 passed"), (["--long", "good"], 0, "30 passed"), ([CI], 1, "")],
)
def test_a_part_runs_alone_or_whole_and_ci_has_a_slice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, last: str
) -> None:
    assert main(arguments, parts=[GOOD, BAD], out=tmp_path) == code
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(last)


def test_an_unknown_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["many"])
    assert ended.value.code == 2
    assert f"there is no part many; there are {CI}, {PARTS[0].name}" in capsys.readouterr().err
