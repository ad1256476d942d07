"""Only what changes what people want is an operation; both halves of a sequence are judged."""

from pathlib import Path
from typing import Any

from tests.faults.generator import Operations, close
from tests.faults.plans import Plan
from tests.faults.runner import Result
from tests.harness.history import Change, History


def test_an_edit_that_says_nothing_new_does_not_count() -> None:
    done = Operations()
    done.create("r1", iprange="a", addressSpace="default")
    for said in ({"iprange": "a"}, {"draining": False}, {"addressSpace": "default", "iprange": "a"}):
        done.edit("r1", **said)
    assert done.count == 1
    done.edit("r1", iprange="b", draining=False)
    done.edit("r1", draining=True)
    done.edit("r1", draining=False)
    assert done.count == 4


def test_an_emptied_address_counts_where_one_was_said_and_once() -> None:
    done = Operations()
    done.create("f1", fiprange="r1")
    done.edit("f1", ipaddress="")
    assert done.count == 1
    done.edit("f1", ipaddress="10.8.0.30")
    done.edit("f1", ipaddress="")
    done.edit("f1", ipaddress="")
    assert done.count == 3


def test_what_is_made_again_says_only_what_it_is_made_with() -> None:
    done = Operations()
    done.create("r1", iprange="a", draining=True)
    done.delete("r1")
    done.create("r1", iprange="a")
    done.edit("r1", draining=True)
    assert done.count == 4


class Ended:
    """An operator, and the lane of it, as far as the end of a half looks at them."""

    def __init__(self, *ended: int) -> None:
        self.name, self.ended, self.running = "free-0", list(ended), True
        self.process: Any = self
        self.log = Path("/nowhere")
        self.recorder: Any = self
        self.clusters = {"c-m-a": "a"}
        self.history = History()

    async def stop(self) -> None:
        self.running = False

    async def catch_up(self) -> None:
        """Nothing comes late."""


async def test_a_crash_and_a_broken_revision_of_either_half_are_violations() -> None:
    result = Result(plan=Plan(scenario="generated", family="spec operations", size=3))
    first, second = Ended(1), Ended()
    # A status that names an address which nobody holds.
    status = {"addressSpace": "default", "addresses": ["10.8.0.30"]}
    obj = {"metadata": {"name": "f", "uid": "1", "generation": 1}, "status": status}
    change = Change(revision=5, at=1.0, plural="floatingips", namespace="c-m-a", name="f", obj=obj)
    gone = Change(revision=1, at=1.0, plural="floatingips", namespace="c-m-a", name="first-half", obj=None)
    first.history.changes.append(gone)
    second.history.changes.append(change)
    for half in (first, second):
        stands_in: Any = half
        await close(stands_in, stands_in, result)
        assert not half.running
    crash, broken = result.violations
    assert crash == "free-0 ended by itself with [1]"
    assert broken.startswith("I1 at revision 5")
    assert "first-half" in result.history
    assert "10.8.0.30" in result.history
