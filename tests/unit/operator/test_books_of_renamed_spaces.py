"""A range that changes its space while an address of it is asked for: it is one address of one network all the same."""

from collections.abc import Callable

import pytest

from fipop.ipam.addresses import Family, format_address, parse_address
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS
from fipop.operator.books import Books
from fipop.operator.reservations import Claim
from fipop.operator.world import World
from tests.unit.operator.objects import build_floating_ip, build_range, held_by, newer, world_of
from tests.unit.operator.test_books import claim_of

OTHER = ("c-m-2", "other")
X = "10.0.0.1"


def chosen(books: Books) -> str:
    return format_address(books.next_free("pool", Family.IPV4, OTHER))


def rename_while_asked_for() -> tuple[World, Claim]:
    """The claim is on its way to the old space when the range is of another one."""
    pool = build_range("pool", "10.0.0.1-10.0.0.4")
    world = world_of(ranges=[pool])
    claim = claim_of(X)
    world.books.expect(claim)
    world.observe(
        FLOATING_IP_RANGES, newer(pool, spec={"iprange": "10.0.0.1-10.0.0.4", "addressSpace": "lab"})
    )
    return world, claim


def test_what_is_asked_for_in_the_old_space_is_not_chosen_for_another_in_the_new_one() -> None:
    """Two guests got the same address, one in each space, and the first could never follow its range."""
    world, claim = rename_while_asked_for()
    assert chosen(world.books) == "10.0.0.2"
    assert world.books.named_by_another("lab", parse_address(X), OTHER) == claim.owner.key
    assert world.books.named_by_another("lab", parse_address(X), claim.owner.key) is None


@pytest.mark.parametrize("end", [Books.settle, lambda books, claim: books.abandon(claim.owner.key)])
def test_it_is_free_in_the_new_space_once_the_claim_came_to_nothing(
    end: Callable[[Books, Claim], None],
) -> None:
    world, claim = rename_while_asked_for()
    freed: list[str] = []
    world.books.on_free = lambda space, _address, _in_vain: freed.append(space)
    end(world.books, claim)
    assert chosen(world.books) == X
    assert "lab" in freed


def test_a_claim_of_before_counts_in_the_space_of_its_range_also_where_that_was_renamed_first() -> None:
    world = world_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.4", addressSpace="lab")])
    world.books.expect(claim_of(X))
    assert chosen(world.books) == "10.0.0.2"


@pytest.mark.parametrize("named_first", [True, False])
def test_what_a_status_names_counts_in_the_new_space_though_its_reservation_vanished(
    named_first: bool,
) -> None:
    pool = build_range("pool", "10.0.0.1-10.0.0.4")
    renamed = newer(pool, spec={"iprange": "10.0.0.1-10.0.0.4", "addressSpace": "lab"})
    holder = build_floating_ip("web", namespace="c-m-1", status=held_by([X]))
    world = world_of(ranges=[pool], floating_ips=[holder] if named_first else [])
    world.observe(FLOATING_IP_RANGES, renamed)
    if not named_first:
        world.observe(FLOATING_IPS, holder)
    assert chosen(world.books) == "10.0.0.2"
    assert world.books.named_by_another("lab", parse_address(X), OTHER) == ("c-m-1", "web")
    freed: list[str] = []
    world.books.on_free = lambda space, _address, _in_vain: freed.append(space)
    world.observe(FLOATING_IPS, newer(holder, status={}))
    assert chosen(world.books) == X
    assert "lab" in freed
