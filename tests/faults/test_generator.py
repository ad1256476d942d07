"""Only what changes what people want is an operation."""

from tests.faults.generator import Operations


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
