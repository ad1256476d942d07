"""Bugs of the cloud provider's protocol: each is caught by the story in memory that goes wrong with it."""

from tests.faults.anchors import Edit
from tests.faults.unit_bugs import UnitBug

_STORIES = "tests/unit/cloudprovider/test_assigning.py"
_TAKING_OVER = "tests/unit/cloudprovider/test_taking_over.py"
_QUARRELS = "tests/unit/cloudprovider/test_quarrels.py"
_STORY = "test_no_writer_however_slow_gives_an_address_twice[-{}]"


def _bug(name: str, what: str, edit: Edit, *tests: str, file: str = _STORIES) -> UnitBug:
    return UnitBug(name=name, what=what, edits=(edit,), file=file, tests=tests)


def _story(name: str, what: str, edit: Edit, story: str) -> UnitBug:
    return _bug(name, what, edit, _STORY.format(story))


SERVICE_BUGS = (
    _story(
        "swap-without-version",
        "the ledger is written over whatever is there",
        Edit(
            scope="render_ledger", before='"resourceVersion": ledger.version', after='"resourceVersion": None'
        ),
        "freeze_the_swap",
    ),
    _story(
        "service-without-version",
        "the Service is written over whatever is there",
        Edit(
            scope="AddressAssigner.write",
            before="return await self.client.replace(SERVICES, assigned(live, choice.addresses, interface=interface))",
            after=(
                "body = assigned(live, choice.addresses, interface=interface)\n"
                "body['metadata']['resourceVersion'] = None\n"
                "return await self.client.replace(SERVICES, body)"
            ),
        ),
        "change_while_frozen",
    ),
    _story(
        "no-version-in-the-entry",
        "an entry for an earlier version of the Service counts for a later one",
        Edit(
            scope="is_entered",
            before="known == (replace(wanted, version=known.version) if is_carried else wanted)",
            after="True",
        ),
        "freeze_after_a_retry",
    ),
    _story(
        "older-entry-replaces",
        "an entry for a later version of the Service is replaced by one for an earlier",
        Edit(
            scope="Round._is_stale",
            before="int(entry.version) > service.resource_version",
            after="int(entry.version) < 0",
        ),
        "replace_a_later_entry",
    ),
    _story(
        "retry-overwrites",
        "the Service is read anew and written, whatever became of its entry",
        Edit(
            scope="is_current",
            before='live["metadata"]["resourceVersion"] == service.version',
            after='live["metadata"]["uid"] == service.uid',
        ),
        "change_before_the_look",
    ),
    _story(
        "service-read-before-the-ledger",
        "an entry is taken out of a ledger that was read after the look at its Service",
        Edit(
            scope="LedgerStore.prune",
            before="ledger.without(gone)",
            after="(await self.read()).without(gone)",
        ),
        "claim_while_it_is_pruned",
    ),
    _story(
        "removed-while-it-waits",
        "an entry goes though its Service may still be written",
        Edit(
            scope="may_remove",
            before='str(live["metadata"]["resourceVersion"]) != entry.version',
            after="True",
        ),
        "freeze_between_entry_and_service",
    ),
    _story(
        "ledger-claimed-at-once",
        "a new ledger gives out addresses while writes by the former one are under way",
        Edit(
            scope="AddressAssigner._stamp",
            before="not service.may_be_written or service.ledger == ledger_uid",
            after="True",
        ),
        "delete_the_ledger_while_frozen",
    ),
    _story(
        "opened-without-what-is-carried",
        "a ledger is open without what was written while it was made",
        Edit(
            scope="AddressAssigner.choose",
            before="made.having(lacking)",
            after="made",
        ),
        "write_while_a_ledger_is_made",
    ),
    _story(
        "left-is-free",
        "the address of a Service that is no LoadBalancer is free before it is cleared",
        Edit(scope="Service.is_holder", before="self.has_finalizer", after="False"),
        "leave_for_a_while",
    ),
    _bug(
        "status-is-ignored",
        "an address that a Service has by its status alone is given out",
        Edit(scope="Service.carried", before="self.announced", after="()"),
        "test_what_anybody_carries_is_not_given_out",
    ),
    _bug(
        "nobody-is-suspected",
        "the entry for a Service that went meanwhile stays",
        Edit(scope="ProviderTerm._learn_ledger", before="self._pruner.suspect(uid)", after="pass"),
        "test_an_entry_that_comes_after_its_service_went_is_taken_out_before_the_next_whole_look",
        file="tests/unit/cloudprovider/test_term.py",
    ),
    _bug(
        "label-means-chosen",
        "an annotation of a user's counts as chosen where the former provider put its label on the Service",
        Edit(
            scope="carried_by",
            before="service.is_chosen and address in service.annotated",
            after="service.is_marked",
        ),
        "test_no_service_that_has_what_it_asks_for_is_written_when_the_provider_takes_over"
        "[A only: two of one family, both wanted]",
        "test_what_a_user_edits_in_an_annotation_of_his_own_after_that_stays[an address of the pool]",
        file=_TAKING_OVER,
    ),
    _bug(
        "policy-stops-everybody",
        "a new ledger gives out nothing while a policy refuses writes of one Service that waits",
        Edit(scope="AddressAssigner._stamp", before='subresource="status"', after="subresource=None"),
        "test_a_policy_that_refuses_one_waiting_service_keeps_no_other_without_an_address[ApiForbiddenError]",
    ),
    _bug(
        "nothing-is-held-back",
        "an address is given out while a Service that cannot be stamped may still get it",
        Edit(scope="Round._hold_back", before="self._pools_held", after="()"),
        "test_a_service_that_cannot_be_written_at_all_holds_its_own_pool_back_and_says_so[ApiForbiddenError]",
    ),
    _bug(
        "opened-with-one-unstamped",
        "a ledger is open while a Service that cannot be stamped may still be written",
        Edit(scope="AddressAssigner.choose", before="self.unstamped", after="False", nth=2),
        "test_a_service_that_cannot_be_written_at_all_holds_its_own_pool_back_and_says_so[ApiForbiddenError]",
    ),
    _bug(
        "only-waiting-ones-are-stamped",
        "a new ledger gives out addresses while one that has an address may be given another by the former one",
        Edit(
            scope="Service.may_be_written",
            before="self.shows_claim",
            after="not self.has_annotation",
        ),
        _STORY.format("give_the_other_family_while_frozen"),
        _STORY.format("move_to_another_family_while_frozen"),
        _STORY.format("restore_while_frozen"),
    ),
    _bug(
        "unmarked-is-written",
        "an address is written into a Service that does not show that a write may come",
        Edit(scope="AddressAssigner.write", before="not service.shows_claim", after="False"),
        "test_what_is_under_way_for_a_service_that_was_taken_over_and_edited_is_not_given_out_by_a_new_ledger"
        "[both families are wanted]",
        file=_TAKING_OVER,
    ),
    _bug(
        "refused-stamp-counts",
        "a stamp that was refused with a conflict counts though the Service is the same",
        Edit(
            scope="AddressAssigner._stamp",
            before="live is None or not is_current(service, live)",
            after="True",
            nth=2,
        ),
        "test_a_service_that_cannot_be_written_at_all_holds_its_own_pool_back_and_says_so[ApiConflictError]",
    ),
    _bug(
        "held-back-by-keys",
        "of a Service that cannot be stamped only the pool of its namespace is held back, not that of what it has",
        Edit(
            scope="Round.__post_init__",
            before="any(address in pool.addresses for address in other.carried)",
            after="False",
        ),
        "test_a_service_that_cannot_be_written_holds_back_the_pools_of_what_it_has_whatever_the_keys_say_by_now",
    ),
    _bug(
        "quarrel-without-end",
        "an address that another controller overwrites is restored for ever",
        Edit(scope="Quarrels.is_due", before="self._count(service) >= RESTORES", after="False"),
        "test_an_address_is_restored_three_times_then_left_alone_with_one_warning_that_names_the_writer",
        file=_QUARRELS,
    ),
    _bug(
        "overwritten-is-pruned",
        "an address of a Service whose annotation another controller overwrites goes to the next one",
        Edit(scope="may_remove", before="not is_overwritten(service, held)", after="True"),
        "test_the_ledger_keeps_the_addresses_of_both_families_and_nobody_else_gets_them[10.9.9.9]",
        file=_QUARRELS,
    ),
)
