"""Bugs of the cloud provider's protocol: each is caught by the story in memory that goes wrong with it."""

from tests.faults.bugs import Edit
from tests.faults.unit_bugs import UnitBug

_STORIES = "tests/unit/cloudprovider/test_assigning.py"
_STORY = "test_no_writer_however_slow_gives_an_address_twice[-{}]"


def _bug(name: str, what: str, edit: tuple[str, str, str], *tests: str, file: str = _STORIES) -> UnitBug:
    edited, before, after = edit
    edits = (Edit(file=f"cloudprovider/{edited}", before=before, after=after),)
    return UnitBug(name=name, what=what, edits=edits, file=file, tests=tests)


def _story(name: str, what: str, edit: tuple[str, str, str], story: str) -> UnitBug:
    return _bug(name, what, edit, _STORY.format(story))


SERVICE_BUGS = (
    _story(
        "swap-without-version",
        "the ledger is written over whatever is there",
        ("ledger.py", '"resourceVersion": ledger.version}', '"resourceVersion": None}'),
        "freeze_the_swap",
    ),
    _story(
        "service-without-version",
        "the Service is written over whatever is there",
        (
            "assigning.py",
            "return await self.client.replace(SERVICES, assigned(live, choice.addresses, interface=interface))",
            (
                "body = assigned(live, choice.addresses, interface=interface)\n"
                "            body['metadata']['resourceVersion'] = None\n"
                "            return await self.client.replace(SERVICES, body)"
            ),
        ),
        "change_while_frozen",
    ),
    _story(
        "no-version-in-the-entry",
        "an entry for an earlier version of the Service counts for a later one",
        (
            "choosing.py",
            "return known == (replace(wanted, version=known.version) if is_carried else wanted)",
            "return True",
        ),
        "freeze_after_a_retry",
    ),
    _story(
        "older-entry-replaces",
        "an entry for a later version of the Service is replaced by one for an earlier",
        ("choosing.py", "int(entry.version) > service.resource_version", "int(entry.version) < 0"),
        "replace_a_later_entry",
    ),
    _story(
        "retry-overwrites",
        "the Service is read anew and written, whatever became of its entry",
        (
            "assigning.py",
            'return bool(live["metadata"]["resourceVersion"] == service.version)',
            'return bool(live["metadata"]["uid"] == service.uid)',
        ),
        "change_before_the_look",
    ),
    _story(
        "service-read-before-the-ledger",
        "an entry is taken out of a ledger that was read after the look at its Service",
        (
            "ledger_store.py",
            "wanted = ledger.without(gone)",
            "wanted = (await self.read()).without(gone)",
        ),
        "claim_while_it_is_pruned",
    ),
    _story(
        "removed-while-it-waits",
        "an entry goes though its Service may still be written",
        (
            "ledger.py",
            'is_other = str(live["metadata"]["resourceVersion"]) != entry.version',
            "is_other = True",
        ),
        "freeze_between_entry_and_service",
    ),
    _story(
        "ledger-claimed-at-once",
        "a new ledger gives out addresses while writes by the former one are under way",
        (
            "assigning.py",
            "if not service.is_load_balancer or not may_be_written or service.ledger == ledger_uid:",
            "if service.uid:",
        ),
        "delete_the_ledger_while_frozen",
    ),
    _story(
        "opened-without-what-is-carried",
        "a ledger is open without what was written while it was made",
        (
            "assigning.py",
            "return replace(made.having(lacking_in(made, self._carried)), is_open=True)",
            "return replace(made, is_open=True)",
        ),
        "write_while_a_ledger_is_made",
    ),
    _story(
        "left-is-free",
        "the address of a Service that is no LoadBalancer is free before it is cleared",
        ("services.py", "return self.is_load_balancer or self.has_finalizer", "return self.is_load_balancer"),
        "leave_for_a_while",
    ),
    _bug(
        "status-is-ignored",
        "an address that a Service has by its status alone is given out",
        ("services.py", "(*self.annotated, *own, *self.announced)", "(*self.annotated, *own)"),
        "test_what_anybody_carries_is_not_given_out",
    ),
    _bug(
        "nobody-is-suspected",
        "the entry for a Service that went meanwhile stays",
        ("kubevip.py", "if self.services.by_uid(service.uid) is None:", "if service.uid is None:"),
        "test_a_service_that_goes_while_its_address_is_entered_is_suspected",
    ),
)
