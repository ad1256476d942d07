"""The bugs that unit tests must catch, as no plan shows them for sure: each with those of its file that must fail.

Lists mend a store, the others want a rare race or a state that stands for long.
"""

from dataclasses import dataclass

from tests.faults.anchors import Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitBug:
    """A bug that no plan shows, and the unit tests each of which must fail by it."""

    name: str
    what: str
    edits: tuple[Edit, ...]
    file: str
    tests: tuple[str, ...]


def _unit_bug(name: str, what: str, edit: Edit, file: str, *tests: str) -> UnitBug:
    """Build a bug that is made in one place, and that tests of a file under `tests` catch."""
    return UnitBug(
        name=name,
        what=what,
        edits=(edit,),
        file=f"tests/{file}",
        tests=tests,
    )


UNIT_BUGS = (
    _unit_bug(
        "tombstone-forgotten",
        "an old event brings back what was deleted",
        Edit(
            scope="Store._tombstone",
            before="self._tombstones[name] = version",
            after="self._tombstones.pop(name, None)",
        ),
        "unit/runtime/test_store.py",
        "TestDelete::test_a_late_modification_does_not_bring_a_deleted_object_back",
        "TestDelete::test_the_memory_of_the_dead_is_bounded_and_forgets_the_oldest",
        "TestResync::test_what_was_deleted_after_the_list_was_made_does_not_come_back",
        "TestResync::test_a_list_that_shows_an_object_whose_deletion_was_seen_means_a_restored_store",
    ),
    _unit_bug(
        "old-events-count",
        "an event that is older than what is known replaces it",
        Edit(scope="Store.put", before="version <= self._known_version(name)", after="version < 0"),
        "unit/runtime/test_store.py",
        "TestPut::test_an_older_or_equal_version_is_ignored[4]",
        "TestPut::test_an_older_or_equal_version_is_ignored[5]",
        "TestPut::test_late_news_of_the_one_before_do_not_touch_the_one_that_took_its_name",
        "TestResync::test_what_was_deleted_after_the_list_was_made_does_not_come_back",
        "TestResync::test_an_event_that_overtook_the_list_is_no_restored_store",
    ),
    _unit_bug(
        "status-without-version",
        "a status is written though the object is another by now than the one that was decided on",
        Edit(
            scope="FloatingIPReconciler._patch",
            before='"resourceVersion": str(floating_ip.resource_version)',
            after="**{}",
        ),
        "unit/operator/addresses/test_reconciler.py",
        "test_a_status_is_written_only_to_the_object_that_was_decided_on",
    ),
    _unit_bug(
        "stale-confirmation",
        "a status newly names an address by a write of its reservation that is long ago",
        Edit(scope="FactSource.gather", before="NAMING_SECONDS", after="math.inf"),
        "unit/operator/addresses/test_facts.py",
        "test_what_this_process_wrote_is_fresh_for_a_while_and_safe_to_release",
    ),
    _unit_bug(
        "no-confirmation",
        "a status newly names an address that another operator may be releasing",
        Edit(scope="next_step", before="_confirm(facts, holdings)", after="None"),
        "scenarios/test_two_writers.py",
        "test_what_is_found_reserved_is_written_anew_before_a_status_names_it",
    ),
    _unit_bug(
        "released-under-way",
        "a reservation that another operator is about to name is released",
        Edit(
            scope="FactSource._unsafe_for",
            before="UNDER_WAY_SECONDS - self.cache.age_of(reservation)",
            after="0.0",
        ),
        "scenarios/test_two_writers.py",
        "test_what_another_has_just_reserved_is_given_back_only_when_it_can_no_longer_be_named",
        "test_what_another_wrote_anew_meanwhile_waits_anew",
    ),
    _unit_bug(
        "wish-before-possession",
        "a reservation that vanished is not made again before its owner's wish is looked at",
        Edit(scope="plan", before="_find_lost(facts)", after="{}"),
        "scenarios/test_missing_reservations.py",
        "test_a_reservation_that_vanishes_while_its_owner_waits_for_another_space_is_made_where_it_was",
    ),
    _unit_bug(
        "gone-is-free",
        "an address whose reservation is gone is free, whoever's status names it",
        Edit(scope="FactSource._read_address", before="first != owner.key", after="False"),
        "unit/operator/addresses/test_facts.py",
        "test_an_address_whose_reservation_is_missing_is_of_whose_status_names_it",
    ),
    _unit_bug(
        "youngest-keeps",
        "of two whose statuses name an address without a reservation, the younger gets it",
        Edit(scope="FactSource._read_address", before="min", after="max"),
        "scenarios/test_missing_reservations.py",
        "test_of_two_whose_statuses_name_an_address_without_a_reservation_the_older_keeps_it",
    ),
    _unit_bug(
        "opened-uncompared",
        "a range that assigns again is not compared with what guests reported while it did not",
        Edit(
            scope="Manager.begin",
            before="self.cache.allocations.ranges.opened = self.scan.note_range",
            after="pass",
        ),
        "scenarios/test_changed_spaces.py",
        "test_it_is_compared_with_what_guests_use_when_the_last_status_of_its_name_is_written[fails]",
        "test_it_is_compared_with_what_guests_use_when_the_last_status_of_its_name_is_written[is_slow]",
    ),
    _unit_bug(
        "freed-for-its-carrier",
        "an address is freed for the guest that carries it and waits for it, so that anybody may have it",
        Edit(
            scope="QuarantineReconciler._find_carrier",
            before='self.reservation_store.offer(reservation, only if asking else "")',
            after="await self.reservation_store.free(reservation) if asking else None",
        ),
        "scenarios/test_carried_by_claimant.py",
        ("test_it_does_not_go_to_who_waits_for_any_address_while_the_guest_that_names_it_carries_it"),
        "test_an_application_that_moved_to_another_guest_takes_its_address_along[asks first-True]",
    ),
    _unit_bug(
        "contested-is-given",
        "a guest gets what it had, or carries, though another was seen to carry it too",
        Edit(
            scope="ReservationStore.can_acquire",
            before="self.is_contested(known, owner.key)",
            after="False",
        ),
        "scenarios/test_carried_by_claimant.py",
        ("test_of_two_guests_that_carry_it_and_name_it_the_one_gets_it_that_is_left[before the start-c-m-b]"),
        ("test_of_two_guests_that_carry_it_and_name_it_the_one_gets_it_that_is_left[after the start-c-m-b]"),
    ),
    _unit_bug(
        "offered-for-good",
        "what a look found to be carried by one guest alone is given to it at any later time",
        Edit(
            scope="ReservationStore._is_offer_old",
            before="self.known.monotonic() - self._offers[known.name][2] >= PERMIT_SECONDS",
            after="False",
        ),
        "scenarios/test_carried_by_claimant.py",
        "test_a_guest_that_let_go_since_it_was_asked_is_asked_again_before_it_gets_the_address",
    ),
    _unit_bug(
        "half-of-a-quota",
        "of two addresses that are asked for together the first is claimed though the limit allows no second",
        Edit(
            scope="_Wish._exceeds_quota",
            before="{each.name for each in beside}",
            after="set()",
        ),
        "scenarios/test_limited_ranges.py",
        ("test_who_may_have_one_address_and_asks_for_two_gets_none_and_causes_no_writes[spec0]"),
    ),
    _unit_bug(
        "another-range-serves",
        "a floating IP whose range is deleted gets an address of another that matches",
        Edit(
            scope="find_range",
            before="earlier and (held or floating_ip.status.addresses)",
            after="earlier is None",
        ),
        "scenarios/test_deleted_ranges.py",
        "test_nor_does_it_move_where_its_reservation_is_gone_too",
    ),
    _unit_bug(
        "begun-for-good",
        "what a move began stays held when its wish cannot be followed any more",
        Edit(
            scope="_release",
            before="each.name not in kept",
            after="each.name not in kept and not holdings.standstill",
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
    ),
    _unit_bug(
        "names-wake-nobody",
        "who waits does not ask again, and misses an address that was only named, and is free",
        Edit(
            scope="FloatingIPReconciler._end",
            before="WAITING_SECONDS if wait.blockers and wait.seconds is None else wait.seconds",
            after="wait.seconds",
        ),
        "scenarios/test_waiting.py",
        "test_what_an_heir_named_in_vain_goes_to_who_waits_once_the_heir_is_gone",
        "test_what_an_heir_named_in_vain_goes_to_who_waits_once_the_heir_names_another",
    ),
    _unit_bug(
        "looks-of-long-ago",
        "what guests carried when they were looked at is kept from others whenever a range changes",
        Edit(
            scope="GuestScan._compare",
            before="self._due[guest_id] = self._now()",
            after="self._heard[guest_id] = self.reported.report_of(guest_id)",
        ),
        "unit/operator/guests/test_scan.py",
        "test_a_changed_range_takes_no_address_that_a_guest_carries_no_more",
    ),
    _unit_bug(
        "reports-of-long-ago",
        "what a guest answers when it is asked again corrects no report of it",
        Edit(
            scope="ReportedAddresses._find_user",
            before="each for each in report.addresses if each != address",
            after="each for each in report.addresses",
        ),
        "scenarios/test_changing_guests.py",
        "test_a_new_guest_is_written_though_the_former_owner_of_its_address_is_offline",
        "test_an_address_that_its_former_owner_gave_up_stays_free_though_that_one_is_offline[False]",
    ),
    _unit_bug(
        "label-hides-what-is-used",
        "a guest that its owner labels as Harvester counts as one that uses nothing",
        Edit(
            scope="_settle_without_requests",
            before="management is None or not (management.provider or links.is_unknown_kind)",
            after="management is None or not management.provider",
        ),
        "scenarios/test_changing_guests.py",
        "test_a_label_that_its_owner_can_set_hides_nothing_that_a_served_guest_uses",
    ),
    _unit_bug(
        "asked-before-resolved",
        "what a guest carries counts before it is known which Harvester cluster it is on",
        Edit(scope="GuestScan._resolve", before="await self.guests.discover(guest_id)", after="pass"),
        "scenarios/test_first_scan.py",
        "test_a_report_counts_in_no_range_of_another_harvester_though_its_floating_ips_have_ranges",
    ),
    _unit_bug(
        "short-scan",
        "a leader that takes over waits for guests for 5 seconds",
        Edit(scope="GuestScan._begin", before="self._now() + SCAN_SECONDS", after="self._now() + 5.0"),
        "scenarios/test_first_scan.py",
        "test_after_a_change_of_the_leader_no_guest_gets_what_one_carries_that_answers_late",
        "test_after_a_change_of_the_leader_nobody_gets_what_a_guest_carries_that_never_answered",
        "test_two_changes_of_the_leader_in_a_row_wait_as_one",
    ),
    _unit_bug(
        "written-before-answers",
        "an address is written while a guest that may carry it was not heard",
        Edit(
            scope="AllocationGate.may_write",
            before="self._is_free(reservation.range, reservation.owner.namespace)",
            after="True",
        ),
        "scenarios/test_first_scan.py",
        "test_after_a_change_of_the_leader_no_guest_gets_what_one_carries_that_answers_late",
    ),
    _unit_bug(
        "unresolved-fits-nothing",
        "a guest that had no round yet is a guest of those ranges alone that its floating IPs name",
        Edit(
            scope="ClaimScope._guest",
            before="known or now or self.guests.state(guest_id).report.guest",
            after="known",
        ),
        "scenarios/test_first_scan.py",
        "test_what_a_guest_carries_is_kept_though_its_links_cannot_be_read",
    ),
    _unit_bug(
        "space-changed",
        "a range that is made again in another space gives out what its former holders carry",
        Edit(scope="RangeIndex._read_pool", before="former is not None", after="False"),
        "scenarios/test_changed_spaces.py",
        "test_a_range_made_again_in_another_space_gives_out_nothing_and_takes_nothing_away",
        "test_it_gives_out_addresses_once_the_last_one_of_its_name_is_free",
    ),
    _unit_bug(
        "one-family-goes-alone",
        "of two families one follows its range to another address space without the other",
        Edit(scope="_follow", before="len(families) > 1", after="False"),
        "scenarios/test_one_space.py",
        "test_both_families_stay_where_one_is_not_to_be_had_in_the_new_space[PreferDualStack]",
        "test_a_second_family_comes_after_the_move_and_not_into_another_space",
    ),
    _unit_bug(
        "any-space-is-known",
        "an address counts as named by a status that names the same one of another space",
        Edit(scope="is_named", before="space_named(status) == reservation.space", after="True"),
        "scenarios/test_one_space.py",
        "test_what_was_begun_for_both_and_another_operator_relies_on_is_decided_anew",
    ),
    _unit_bug(
        "no-second-choice",
        "a chosen address that another has in the space of the range that is named by now is waited for",
        Edit(
            scope="_Wish._move",
            before="known.taken is None",
            after="True",
        ),
        "unit/operator/addresses/test_holdings.py",
        "test_a_chosen_address_that_another_has_in_the_new_space_is_changed_for_a_new_one",
    ),
    _unit_bug(
        "free-on-404",
        "any 404 means that the object is gone",
        Edit(
            scope="is_object_missing",
            before="if answer.status != 404:\n    return False",
            after="return answer.status == 404",
        ),
        "unit/kube/test_answers.py",
        "test_a_404_says_gone_only_where_the_server_names_the_object",
    ),
    _unit_bug(
        "emptied-is-renumbered",
        "an emptied spec gives the address back",
        Edit(
            scope="_Wish.decide",
            before="named = self._in_status(mine)",
            after="named = self._in_status(mine)\nif static is None:\n    return Keep(None)",
        ),
        "scenarios/test_emptied_specs.py",
        "test_it_keeps_its_address_where_the_range_is_the_same",
    ),
    _unit_bug(
        "adopted-by-name",
        "a release of the wanted name is adopted, whoever made it",
        Edit(
            scope="_is_by_predecessor",
            before='found.values.get("nameOverride") == state.latest.name',
            after="state.latest.name == wanted.name",
        ),
        "unit/guest/test_release_ownership.py",
        "test_without_labels_only_the_mark_of_kube_fip_operator_counts_and_only_where_it_installed"
        "[networking-values5-taken]",
        "test_a_release_without_labels_under_another_name_is_adopted_by_its_mark_or_left_alone",
    ),
    _unit_bug(
        "any-namespace-counts",
        "a release with fipop's labels counts in any namespace of a guest",
        Edit(scope="judge_ownership", before="latest.namespace not in scope.namespaces", after="False"),
        "unit/guest/test_release_ownership.py",
        "test_our_labels_count_in_namespaces_of_the_options_and_of_the_status_and_block_in_any_other[tenant]",
        "test_a_release_with_our_label_is_found_under_any_name_and_the_wanted_name_first",
    ),
    _unit_bug(
        "status-before-reservation",
        "an address counts as reserved before anybody asked for it",
        Edit(
            scope="ReservationStore._create",
            before="answer = await self.client.create(FLOATING_IP_RESERVATIONS, render_reservation(wanted))",
            after="return wanted",
        ),
        "unit/operator/addresses/test_reservations.py",
        "test_a_free_address_is_granted_to_who_asks_first_and_the_second_is_told_whose_it_is",
    ),
    _unit_bug(
        "unknown-is-no",
        "a guest that is to be left and was not reached does not count, so that many are left in turns",
        Edit(
            scope="Departures.may_remove",
            before="self.is_leaving(each)",
            after="self.is_leaving(each) and self.guests.state(each.id).removal.has_ours",
        ),
        "unit/operator/guests/test_departures.py",
        "test_a_guest_that_was_never_reached_counts_as_one_that_loses_something",
    ),
    _unit_bug(
        "removed-without-a-record",
        "a guest that was opted out before the option to remove releases was on loses its releases",
        Edit(
            scope="Departures.next_record",
            before="Removal.PENDING if before is Removal.ON_OPT_OUT else before",
            after="before if before is Removal.DONE else Removal.PENDING",
        ),
        "scenarios/test_opting_out.py",
        "test_a_guest_that_was_opted_out_before_the_option_was_on_keeps_its_releases_for_good",
        "test_an_opting_out_that_the_watch_shows_after_the_option_does_not_count_as_one_while_it_was_on",
        "test_the_record_goes_with_the_option_and_does_not_come_back_with_it",
    ),
    _unit_bug(
        "opted-in-by-an-old-view",
        "a guest counts as opted in while the option is on though only the watch has not shown its opting out",
        Edit(
            scope="Manager.settings_changed",
            before="self.departures.is_listed = False",
            after="self.departures.is_listed = True",
        ),
        "scenarios/test_opting_out.py",
        "test_an_opting_out_that_the_watch_shows_after_the_option_does_not_count_as_one_while_it_was_on",
    ),
    _unit_bug(
        "counted-as-they-are-recorded",
        "of many guests that are opted out at once the first few lose their releases before the rest is counted",
        Edit(
            scope="Departures.is_leaving",
            before="{Removal.ON_OPT_OUT, Removal.PENDING}",
            after="{Removal.PENDING}",
        ),
        "unit/operator/guests/test_departures.py",
        "test_guests_whose_opting_out_is_still_to_be_recorded_count_and_lose_nothing",
    ),
    _unit_bug(
        "guest-kept",
        "what is remembered about a guest cluster stays when it is gone",
        Edit(
            scope="GuestDirectory.drop",
            before="self._states.pop(guest_id, None)",
            after="self._states.get(guest_id)",
        ),
        "scenarios/test_nothing_grows.py",
        "test_no_collection_grows_in_1500_passes_over_300_guest_clusters",
    ),
    _unit_bug(
        "counted-when-gone",
        "a pass that ends after its guest cluster is gone counts in the metrics of that guest cluster",
        Edit(scope="PassController._count", before="not state.is_dropped", after="True"),
        "scenarios/test_nothing_grows.py",
        "test_no_collection_grows_in_1500_passes_over_300_guest_clusters",
    ),
    _unit_bug(
        "few-left-go",
        "the few that are left of a withheld mass go unconfirmed",
        Edit(scope="Confirmation.permitted", before="waiting.isdisjoint(self._reported)", after="True"),
        "scenarios/test_opting_out.py",
        "test_who_opts_guests_in_again_one_by_one_after_a_mistake_loses_releases_of_none",
    ),
    _unit_bug(
        "slot-kept",
        "a guest cluster whose removal was in vain keeps others from theirs",
        Edit(scope="Departures.note", before="not awaits_helm", after="has_ours is None"),
        "unit/operator/guests/test_departures.py",
        "test_a_guest_that_is_not_left_any_more_or_whose_visit_ended_in_vain_has_no_turn",
    ),
    _unit_bug(
        "known-for-good",
        "a link that could not be read when something changed is not asked for again",
        Edit(
            scope="discover_guest",
            before="guest.cluster.meta.deleting",
            after="(guest.cluster.meta.deleting or found.is_resolved)",
        ),
        "scenarios/test_unknown_harvester.py",
        "test_a_new_name_of_a_harvester_cluster_is_found_out_once_what_names_it_can_be_read",
    ),
    _unit_bug(
        "unwanted-in-spec",
        "an address of a family that is not wanted any more is written into an emptied spec",
        Edit(
            scope="_is_short",
            before="is_to_come or is_contrary or is_wish_open",
            after="is_to_come or is_wish_open",
        ),
        "scenarios/test_families.py",
        "test_no_address_of_a_family_that_is_not_wanted_any_more_is_written_into_an_emptied_spec[10.0.0.10-asked0-then0]",
    ),
    _unit_bug(
        "left-unsaid",
        "a floating IP that waits for an address of a guest cluster that left Rancher keeps its former status",
        Edit(
            scope="QuarantineReconciler.reconcile",
            before="self._note_carrier(reservation, left)",
            after="pass",
        ),
        "scenarios/test_left_rancher.py",
        "test_a_floating_ip_that_waits_for_it_is_told_until_when_and_not_what_was_before",
    ),
)
