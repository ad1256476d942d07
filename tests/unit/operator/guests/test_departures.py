"""Guests that are left: few at once, and many only when people say so."""

from dataclasses import replace

from fipop.operator.guests.departures import Departures
from fipop.rancher.matching import Guest
from fipop.settings.options import DEFAULTS, Amount, GuestInstall, Settings
from tests.harness.rollout_world import guest_of

REMOVING = replace(DEFAULTS, kubevip_guest_remove=True, kubevip_rollout_max_concurrency=Amount(100))


class Fleet:
    def __init__(self, staying: int, leaving: int, settings: Settings = REMOVING) -> None:
        self.settings = settings
        self.guests: list[Guest] = [guest_of(f"stays-{number}") for number in range(staying)]
        self.guests += [replace(guest_of(f"leaves-{number}"), opted_in=False) for number in range(leaving)]
        self.confirmed, self.told = 0, list[int]()
        self.departures = Departures(
            settings=lambda: self.settings,
            guests=lambda: self.guests,
            confirmed=lambda: self.confirmed,
            tell=self.told.append,
        )

    def look(self, has_ours: bool | None = True) -> None:
        for each in self.guests:
            if not each.opted_in:
                self.departures.note(each.id, has_ours)

    def removable(self) -> list[str]:
        return [each.id for each in self.guests if self.departures.may_remove(each.id)]


def test_nobody_is_left_unless_the_option_says_so() -> None:
    fleet = Fleet(5, 5, settings=DEFAULTS)
    fleet.look()
    assert not any(map(fleet.departures.is_leaving, fleet.guests))
    assert fleet.removable() == []


def test_a_few_guests_are_left_once_all_that_may_leave_were_looked_at() -> None:
    fleet = Fleet(50, 3)
    fleet.departures.note("leaves-0", True)
    assert fleet.removable() == []
    fleet.look()
    assert fleet.removable() == ["leaves-0", "leaves-1", "leaves-2"]
    assert fleet.told == []


def test_guests_without_our_releases_and_those_out_of_reach_do_not_count() -> None:
    fleet = Fleet(10, 100)
    fleet.look(False)
    fleet.departures.note("leaves-7", True)
    fleet.departures.note("leaves-8", None)
    assert fleet.removable() == ["leaves-7"]


def test_more_than_few_lose_nothing_until_their_number_is_confirmed() -> None:
    """An option that somebody deleted by mistake must not uninstall a fleet."""
    fleet = Fleet(0, 40)
    fleet.look()
    assert fleet.removable() == []
    assert fleet.told == [40]
    fleet.confirmed = 39
    assert fleet.removable() == []
    fleet.confirmed = 40
    assert len(fleet.removable()) == 40
    fleet.departures.note("leaves-0", False)
    assert len(fleet.removable()) == 39, "the confirmation holds for the rest of them"


def test_a_confirmation_does_not_hold_for_guests_that_come_later() -> None:
    fleet = Fleet(0, 40)
    fleet.look()
    fleet.confirmed = 40
    fleet.removable()
    fleet.look(False)
    fleet.guests = [replace(guest_of(f"later-{number}"), opted_in=False) for number in range(30)]
    fleet.look()
    assert fleet.removable() == []
    assert fleet.told == [30]


def test_ten_percent_of_a_large_fleet_are_few() -> None:
    fleet = Fleet(360, 40)
    fleet.look()
    assert len(fleet.removable()) == 40


def test_so_many_at_once_as_a_wave_has() -> None:
    fleet = Fleet(90, 9, settings=replace(REMOVING, kubevip_rollout_max_concurrency=Amount(2)))
    fleet.look()
    assert fleet.removable() == ["leaves-0", "leaves-1"]
    fleet.departures.note("leaves-0", False)
    assert fleet.removable() == ["leaves-1", "leaves-2"]
    fleet.departures.note("leaves-1", None)
    assert fleet.removable() == ["leaves-2", "leaves-3"]


def test_who_is_paused_or_deleted_is_not_left() -> None:
    fleet = Fleet(0, 2)
    fleet.guests = [replace(fleet.guests[0], paused=True), replace(fleet.guests[1], deleting=True)]
    assert not any(map(fleet.departures.is_leaving, fleet.guests))


def test_with_the_option_that_disables_all_every_guest_leaves() -> None:
    fleet = Fleet(12, 0, settings=replace(REMOVING, kubevip_guest_install=GuestInstall.DISABLED))
    for each in fleet.guests:
        fleet.departures.note(each.id, True)
    assert fleet.removable() == []
    assert fleet.told == [12]
