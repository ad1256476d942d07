"""A call that asks for nothing that is there ends with 2 and a sentence, before anything is started."""

from pathlib import Path

import pytest

from tests.faults.__main__ import prepare
from tests.faults.crowd import crowd
from tests.faults.options import parse
from tests.faults.plans import undisturbed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--scenario typo", "--scenario: invalid choice: 'typo'"),
        ("--scenario", "--scenario: expected at least one"),
        ("--family typo", "--family: no family of plans has 'typo' in its name"),
        ("--lanes 0", "--lanes: '0' is no whole number from 1 on"),
        ("--limit 0", "--limit: '0' is"),
        ("--limit -1", "--limit: '-1' is"),
        ("--every x", "--every: 'x' is"),
        ("--crowd 0", "--crowd: '0' is"),
        ("--replay missing.json", "--replay: missing.json cannot be read"),
        ("--replay empty.json", "--replay: empty.json has no plan"),
        ("--replay text.json", "--replay: line 2 of text.json is no plan"),
        ("--replay number.json", "--replay: line 1 of number.json is no plan"),
        (
            "--replay story.json",
            "--replay: line 1 of story.json is no plan: ValueError('there is no scenario x",
        ),
        ("--replay size.json", "--replay: line 1 of size.json is no plan: ValueError('crowd needs a size"),
        ("--replay good.json --scenario moves", "--scenario: not allowed with argument --replay"),
        ("--package .", "has no package fipop/"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    arguments: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    good = undisturbed("moves").to_line()
    for name, text in {
        "empty": "",
        "text": f"{good}\nmoves\n",
        "number": "5\n",
        "story": undisturbed("x").to_line(),
        "size": crowd(0).to_line(),
        "good": good,
    }.items():
        Path(f"{name}.json").write_text(text)
    with pytest.raises(SystemExit) as ended:
        parse(arguments.split())
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


def test_plans_of_all_files_are_replayed_as_they_were(tmp_path: Path) -> None:
    plans = [undisturbed("moves"), crowd(150), undisturbed("burst")]
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    files[0].write_text("".join(f"{plan.to_line()}\n" for plan in plans[:2]))
    files[1].write_text(plans[2].to_line())
    assert parse(["--replay", *map(str, files)]).replay == plans


def test_another_package_is_known_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "copy" / "fipop").mkdir(parents=True)
    (tmp_path / "copy" / "fipop" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert parse(["--package", "copy"]).package == tmp_path / "copy"


def test_a_run_begins_without_the_failures_of_the_last_and_a_replay_leaves_them(tmp_path: Path) -> None:
    old, other = tmp_path / "plan-0001.log", tmp_path / "plans.jsonl"
    old.touch()
    other.touch()
    file = tmp_path / "good.json"
    file.write_text(undisturbed("moves").to_line())
    out = ["--out", str(tmp_path)]
    (tmp_path / "replay").mkdir()
    replayed = tmp_path / "replay" / "plan-0001.json"
    replayed.touch()
    assert prepare(parse(["--replay", str(file), *out])) == tmp_path / "replay"
    assert old.exists()
    assert replayed.exists()
    assert prepare(parse(out)) == tmp_path
    assert not old.exists()
    assert other.exists()


def test_every_option_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    head, _, body = text.partition("options:\n")
    assert "Disturb the operator" in head
    options = [part for part in body.split("\n  -") if part.strip()]
    assert all(len(option.split()) > 3 for option in options)
