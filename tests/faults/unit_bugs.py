"""The bugs that unit tests must catch, as no plan shows them for sure: each with those of its file that must fail.

Lists mend a store, the others want a rare race or a state that stands for long.
"""

from dataclasses import dataclass

from tests.faults.bugs import Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitBug:
    """A bug that no plan shows, and the unit tests each of which must fail by it."""

    name: str
    what: str
    edits: tuple[Edit, ...]
    file: str
    tests: tuple[str, ...]


def _unit_bug(name: str, what: str, edit: tuple[str, str, str], file: str, *tests: str) -> UnitBug:
    """Give a bug of the package, made in one place, that tests of a file under `tests` catch."""
    edited, before, after = edit
    return UnitBug(
        name=name,
        what=what,
        edits=(Edit(file=edited, before=before, after=after),),
        file=f"tests/{file}",
        tests=tests,
    )


UNIT_BUGS = (
    _unit_bug(
        "tombstone-forgotten",
        "an old event brings back what was deleted",
        (
            "control/store.py",
            "self._tombstones[name] = version",
            "self._tombstones.pop(name, None)",
        ),
        "unit/control/test_store.py",
        "TestDelete::test_a_late_modification_does_not_bring_a_deleted_object_back",
        "TestDelete::test_the_memory_of_the_dead_is_bounded_and_forgets_the_oldest",
        "TestResync::test_what_was_deleted_after_the_list_was_made_does_not_come_back",
        "TestResync::test_a_list_that_shows_an_object_whose_deletion_was_seen_means_a_restored_store",
    ),
    _unit_bug(
        "old-events-count",
        "an event that is older than what is known replaces it",
        (
            "control/store.py",
            "if version <= self._known_version(name):",
            "if version < 0:",
        ),
        "unit/control/test_store.py",
        "TestPut::test_an_older_or_equal_version_is_ignored[4]",
        "TestPut::test_an_older_or_equal_version_is_ignored[5]",
        "TestPut::test_late_news_of_the_one_before_do_not_touch_the_one_that_took_its_name",
        "TestResync::test_what_was_deleted_after_the_list_was_made_does_not_come_back",
        "TestResync::test_an_event_that_overtook_the_list_is_no_restored_store",
    ),
    _unit_bug(
        "younger-version",
        "a round tests its status on a younger version than the one that it looked at",
        (
            "state/cache.py",
            "return parse_floating_ip(answer)",
            "found = parse_floating_ip(answer)\n        return self.floating_ips.get(*found.meta.key)",
        ),
        "scenarios/test_two_writers.py",
        "test_a_status_is_of_the_spec_that_its_round_wrote_and_of_no_younger_one",
    ),
    _unit_bug(
        "wish-before-possession",
        "a reservation that vanished is not made again before its owner's wish is looked at",
        (
            "operator/addresses/reconciler.py",
            "lost = find_vanished(floating_ip, request, self._and_released(held, floating_ip))",
            "lost = ()",
        ),
        "scenarios/test_missing_reservations.py",
        "test_a_reservation_that_vanishes_while_its_owner_waits_for_another_space_is_made_where_it_was",
    ),
    _unit_bug(
        "gone-is-free",
        "an address whose reservation is gone by the live read is free, whoever's status names it",
        (
            "operator/addresses/reservations.py",
            "            if live is None:\n                return None\n",
            "            if live is None:\n                return await self._grant_anew(claim)\n",
        ),
        "scenarios/test_missing_reservations.py",
        "test_who_is_asking_for_an_address_when_its_reservation_vanishes_does_not_get_it",
    ),
    _unit_bug(
        "another-range-serves",
        "a floating IP whose range is deleted gets an address of another that matches",
        (
            "operator/addresses/range_choice.py",
            "if earlier and (held or floating_ip.status.addresses):",
            "if earlier is None:",
        ),
        "scenarios/test_deleted_ranges.py",
        "test_nor_does_it_move_where_its_reservation_is_gone_too",
    ),
    _unit_bug(
        "undone-out-of-quarantine",
        "an address that was taken out of a quarantine is free at once when both families are undone",
        (
            "operator/addresses/claiming.py",
            "if reservation.name in outcome.created:",
            "if reservation in outcome.fresh and not reservation.history:",
        ),
        "unit/operator/addresses/test_claiming.py",
        "test_an_undo_does_not_free_what_it_took_out_of_a_quarantine",
    ),
    _unit_bug(
        "begun-for-good",
        "what a move began stays held when its wish cannot be followed any more",
        (
            "operator/addresses/reconciler.py",
            "outcome.undone or is_unfulfillable",
            "outcome.undone",
        ),
        "scenarios/test_unfulfillable_wishes.py",
        (
            "test_the_new_address_of_a_move_is_given_back_where_its_wish_cannot_be_followed_any_more"
            "[make_unreadable]"
        ),
        (
            "test_the_new_address_of_a_move_is_given_back_where_its_wish_cannot_be_followed_any_more"
            "[take_its_range_away]"
        ),
        (
            "test_the_new_address_of_a_move_is_given_back_where_its_wish_cannot_be_followed_any_more"
            "[name_a_range_that_does_not_give_it_out]"
        ),
    ),
    _unit_bug(
        "names-wake-nobody",
        "who waits is not told of an address that was only named, and is free",
        (
            "state/allocations.py",
            "            self.on_free(space, address, False)",
            "            pass",
        ),
        "scenarios/test_waiting.py",
        "test_what_an_heir_named_in_vain_goes_to_who_waits_once_the_heir_is_gone",
        "test_what_an_heir_named_in_vain_goes_to_who_waits_once_the_heir_names_another",
    ),
    _unit_bug(
        "looks-of-long-ago",
        "what guests carried when they were looked at is kept from others whenever a range changes",
        (
            "operator/guests/scan.py",
            "await self._compare_with_ranges()",
            "await self._keep_all(self._seen)",
        ),
        "unit/operator/guests/test_scan.py",
        "test_a_changed_range_takes_no_address_of_a_guest_that_is_gone_since",
        "test_a_changed_range_takes_no_address_that_a_guest_carries_no_more",
    ),
    _unit_bug(
        "space-changed",
        "a range that is made again in another space gives out what its former holders carry",
        ("state/allocations.py", "        if former is not None:", "        if False:"),
        "scenarios/test_changed_spaces.py",
        "test_a_range_made_again_in_another_space_gives_out_nothing_and_takes_nothing_away",
        "test_it_gives_out_addresses_once_the_last_one_of_its_name_is_free",
    ),
    _unit_bug(
        "one-family-goes-alone",
        "of two families one follows its range to another address space without the other",
        (
            "operator/addresses/allocation.py",
            "return len(families) > 1 and any(each.space != to.space for each in found)",
            "return False",
        ),
        "scenarios/test_one_space.py",
        "test_both_families_stay_where_one_is_not_to_be_had_in_the_new_space[PreferDualStack]",
        "test_a_second_family_comes_after_the_move_and_not_into_another_space",
    ),
    _unit_bug(
        "any-space-is-known",
        "an address counts as named by a status that names the same one of another space",
        (
            "operator/addresses/allocation.py",
            "return reservation.space == self.had_in and address_of(reservation) in self.had",
            "return address_of(reservation) in self.had",
        ),
        "scenarios/test_one_space.py",
        (
            "test_who_has_moved_stays_in_the_new_space_while_the_old_reservation_is_not_given_back_yet"
            "[ask_for_what_another_has]"
        ),
    ),
    _unit_bug(
        "no-second-choice",
        "a chosen address that another has in the space of the range that is named by now is waited for",
        (
            "operator/addresses/allocation.py",
            " and not wanted_range.is_anothers(address)",
            "",
        ),
        "unit/operator/addresses/test_allocation.py",
        "test_a_chosen_address_that_another_has_in_the_new_space_is_changed_for_a_new_one",
    ),
)
