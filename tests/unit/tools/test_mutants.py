"""The mutants of a module are tried by its own tests, and a weaker test is noticed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.mutants import (
    Change,
    Mutant,
    MutationError,
    changes_in,
    find_lost,
    judge,
    main,
    parse,
    recording_of,
    render,
    selected_tests,
)

WRITTEN_BY_MUTMUT = """
class Pool:
    def xǁPoolǁtake__mutmut_orig(self, count):
        # A comment is no part of a change.
        if count > self.free:
            raise ValueError(f"the pool has {self.free}")
        return self.free - count

    def xǁPoolǁtake__mutmut_1(self, count):
        if count >= self.free:
            raise ValueError(f"the pool has {self.free}")
        return self.free - count

    def xǁPoolǁtake__mutmut_2(self, count):
        if count > self.free:
            raise ValueError(f"THE POOL HAS {self.free}")
        return self.free - count

    def xǁPoolǁtake__mutmut_10(self, count):
        if count > self.free:
            raise ValueError(f"the pool has {self.free}")
        return None


def x_name__mutmut_orig(kind="free"):
    return kind

def x_name__mutmut_1(kind="XXfreeXX"):
    return kind


def x_free__mutmut_orig(name):
    logger.info("freed", extra={"name": name})

def x_free__mutmut_1(name):
    pass

def x_free__mutmut_2(name):
    logger.info("freed", extra={"XXnameXX": name})
"""
MODULE = Path("fipop/ipam/pool.py")
PRODUCT = '''
def find_free(free, wanted):
    """Return what is taken from `free`."""
    if not is_any(free):
        return []
    return free[:wanted]


def is_any(free):
    return len(free) > 0
'''
TESTS = """
from hypothesis import given
from hypothesis import strategies as st

from fipop.ipam.pool import find_free, is_any


async def test_takes_as_many_as_are_wanted():
    assert find_free([1, 2, 3], 2) == [1, 2]


def test_takes_nothing_from_nothing():
    assert find_free([], 1) == []


@given(st.integers(0, 1))
def test_knows_what_is_free(count):
    assert is_any([0] * count) is (count > 0)
"""
WEAK_TESTS = TESTS.replace("def test_takes_as_many", "def takes_as_many")


def change(text: str = "return 1 => return None", function: str = "f") -> Change:
    old, _, new = text.partition(" => ")
    return Change(function=function, old=old, new=new)


def test_a_change_is_known_by_its_function_and_what_differs() -> None:
    assert {name: each.id for name, each in changes_in(WRITTEN_BY_MUTMUT).items()} == {
        "xǁPoolǁtake__mutmut_1": "Pool.take: if count > self.free: => if count >= self.free:",
        "xǁPoolǁtake__mutmut_10": "Pool.take: return self.free - count => return None",
        "x_name__mutmut_1": "name: def name(kind='free'): => def name(kind='XXfreeXX'):",
    }


def test_far_parts_of_a_statement_are_no_part_of_a_change() -> None:
    far = "x" * 200
    assert len(change(f"{far} < {far} => {far} <= {far}").id) < 150


def test_two_mutants_with_one_text_stay_apart() -> None:
    mutants = judge(
        {"x_f__mutmut_1": change(), "x_f__mutmut_2": change()},
        dict.fromkeys(("x_f__mutmut_1", "x_f__mutmut_2"), "killed"),
    )
    assert [each.id for each in mutants] == ["f: return 1 => return None", "f: return 1 => return None (#2)"]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("killed", "caught"), ("timeout", "caught"), ("survived", "survived"), ("no tests", "survived")],
)
def test_what_mutmut_says_is_caught_or_survived(outcome: str, status: str) -> None:
    assert judge({"x_f__mutmut_1": change()}, {"x_f__mutmut_1": outcome})[0].status == status


@pytest.mark.parametrize("outcomes", [{}, {"x_f__mutmut_1": "not checked"}, {"x_f__mutmut_1": "suspicious"}])
def test_a_mutant_that_was_not_tried_is_an_error(outcomes: dict[str, str]) -> None:
    with pytest.raises(MutationError, match="neither caught nor alive"):
        judge({"x_f__mutmut_1": change()}, outcomes)


def test_a_recording_is_read_as_it_was_written() -> None:
    mutants = [
        Mutant(id="g: return 1 => return None", change=change(), status="survived"),
        Mutant(id="f: a  b => a", change=change(), status="caught"),
    ]
    assert render(mutants) == "caught   f: a  b => a\nsurvived g: return 1 => return None\n"
    assert parse(render(mutants)) == {each.id: each.status for each in mutants}


def test_only_a_mutant_that_was_caught_and_survives_is_lost() -> None:
    mutants = [
        Mutant(id=name, change=change(), status=status)
        for name, status in (("a", "caught"), ("b", "survived"), ("c", "survived"), ("new", "survived"))
    ]
    recorded = {"a": "caught", "b": "caught", "c": "survived", "gone": "caught"}
    assert [each.id for each in find_lost(mutants, recorded)] == ["b"]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], None]:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")

    return write


def test_a_module_has_the_tests_of_the_nearest_room(
    tmp_path: Path, write: Callable[[str, str], None]
) -> None:
    write("tests/unit/ipam/test_pool.py", "")
    write("tests/unit/test_texts.py", "")
    assert selected_tests(MODULE, tmp_path) == ("tests/unit/ipam",)
    assert selected_tests(Path("fipop/ipam/pools/deep.py"), tmp_path) == ("tests/unit/ipam",)
    assert selected_tests(Path("fipop/texts.py"), tmp_path) == ("tests/unit/test_texts.py",)
    with pytest.raises(MutationError, match="No tests belong to"):
        selected_tests(Path("fipop/jsons.py"), tmp_path)


@pytest.mark.parametrize("module", ["fipop/nothing.py", "tests/conftest.py", "fipop"])
def test_only_a_module_of_the_product_has_mutants(module: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([module])


@pytest.mark.slow
def test_a_test_that_became_weaker_fails_against_the_recording(
    tmp_path: Path, write: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write("pyproject.toml", '[tool.pytest.ini_options]\nasyncio_mode = "auto"\npythonpath = ["."]\n')
    write("fipop/__init__.py", "")
    write("fipop/ipam/__init__.py", "")
    write("tests/conftest.py", "")
    write(str(MODULE), PRODUCT)
    write("tests/unit/ipam/test_pool.py", TESTS)
    command = ["--root", str(tmp_path), "--processes", "1", str(MODULE)]

    assert main(["--record", *command]) == 0
    recorded = (tmp_path / recording_of(MODULE)).read_text(encoding="utf-8")
    assert "caught   find_free: return free[:wanted] => return None\n" in recorded
    assert "survived" not in recorded

    write("tests/unit/ipam/test_pool.py", WEAK_TESTS)
    capsys.readouterr()
    assert main(["--function", "find_free", *command]) == 1
    assert "    - return free[:wanted]\n    + return None\n" in capsys.readouterr().out

    write("tests/unit/ipam/test_pool.py", TESTS + "    assert False\n")
    assert main(command) == 2
    assert "mutmut failed" in capsys.readouterr().out
