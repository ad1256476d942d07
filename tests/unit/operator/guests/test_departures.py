"""Guests that are left: few at once, and many only when people say so."""

from dataclasses import replace

import pytest

from fipop.api.models import Removal
from fipop.api.names import LABEL_OPT_IN
from fipop.kube.resources import FLOATING_IPS, PROVISIONING_CLUSTERS
from fipop.operator.confirmation import Confirmation
from fipop.operator.guests.departures import Departures
from fipop.rancher.matching import Guest
from fipop.settings.options import DEFAULTS, Settings
from fipop.settings.values import Amount, GuestInstall
from fipop.state.cache import ClusterCache
from fipop.state.guests import GuestDirectory, ReleaseRemoval
from tests.harness.guests import change_cluster
from tests.harness.objects import build_floating_ip
from tests.harness.rollout_world import guest_of
from tests.harness.small_operator import SmallOperator
from tests.harness.terms import FakeConfiguration

REMOVING = replace(DEFAULTS, kubevip_guest_remove=True, kubevip_rollout_max_concurrency=Amount(100))


class Fleet:
    """Guest clusters as they are known, with a floating IP each; those that leave wait for the removal."""

    def __init__(self, staying: int, leaving: int, settings: Settings = REMOVING) -> None:
        self.configuration = FakeConfiguration(settings=settings)
        self.configuration.on_complaint = lambda _reason, message: self.told.append(message)
        self.told: list[str] = []
        self.directory = GuestDirectory(cache=ClusterCache(), client=None)  # type: ignore[arg-type] # asked for nothing
        self.departures = Departures(
            configuration=self.configuration,  # type: ignore[arg-type] # it has settings and annotations
            guests=self.directory,
            confirmation=Confirmation(
                configuration=self.configuration,  # type: ignore[arg-type]
                annotation="confirm",
                reason="Withheld",
                message="{count} wait.",
            ),
            is_listed=True,
        )
        self.add(*(f"stays-{number}" for number in range(staying)))
        self.add(*(f"leaves-{number}" for number in range(leaving)), opted_in=False)

    @property
    def guests(self) -> list[Guest]:
        return [state.guest for _, state in self.directory.states() if state.guest is not None]

    @property
    def counts(self) -> list[int]:
        """What the events counted."""
        return [int(each.split()[0]) for each in self.told]

    def add(self, *guest_ids: str, opted_in: bool = True) -> None:
        for guest_id in guest_ids:
            metadata = {
                "namespace": "fleet-default",
                "name": guest_id,
                "uid": guest_id,
                "resourceVersion": "1",
            }
            cluster = {"metadata": metadata, "spec": {}, "status": {"clusterName": guest_id}}
            self.directory.cache.observe(PROVISIONING_CLUSTERS, cluster)
            self.change(guest_id, opted_in=opted_in)
            self.record(guest_id, Removal.PENDING)

    def change(
        self, guest_id: str, *, opted_in: bool = False, deleting: bool = False, paused: bool = False
    ) -> None:
        """Have a guest cluster known with other properties."""
        labels = {LABEL_OPT_IN: "true"} if opted_in else {}
        guest = change_cluster(guest_of(guest_id), labels=labels, paused=paused)
        self.directory.state(guest_id).guest = replace(guest, deleting=deleting)

    def record(self, guest_id: str, removal: Removal) -> None:
        status = {"guest": {"cluster": guest_id, "removal": removal.value}}
        floating_ip = build_floating_ip("web", namespace=guest_id, status=status)
        self.directory.cache.observe(FLOATING_IPS, floating_ip)

    def remove(self, *guest_ids: str) -> None:
        """Have guest clusters gone from Rancher."""
        for guest_id in guest_ids:
            cluster = self.directory.cache.clusters.get("fleet-default", guest_id)
            assert cluster is not None
            self.directory.cache.forget(PROVISIONING_CLUSTERS, cluster)
            self.directory.drop(guest_id)

    def confirm(self, number: int | None) -> None:
        """Set the annotation, or remove it."""
        self.configuration.annotate("confirm", "" if number is None else str(number))

    def note(self, guest_id: str, has_ours: bool | None) -> None:
        self.departures.note(self.directory.state(guest_id), has_ours)

    def look(self, has_ours: bool | None = True) -> None:
        for each in self.guests:
            if not each.cluster.opted_in:
                self.note(each.id, has_ours)

    def removable(self) -> list[str]:
        return [each.id for each in self.guests if self.departures.may_remove(each.id)]


def test_nobody_is_left_unless_the_option_says_so() -> None:
    fleet = Fleet(5, 5, settings=DEFAULTS)
    fleet.look()
    assert not any(map(fleet.departures.is_leaving, fleet.guests))
    assert fleet.removable() == []


def test_a_few_guests_are_left_once_all_that_may_leave_were_looked_at() -> None:
    fleet = Fleet(50, 3)
    fleet.note("leaves-0", True)
    assert fleet.removable() == []
    fleet.look()
    assert fleet.removable() == ["leaves-0", "leaves-1", "leaves-2"]
    assert fleet.counts == []


def test_guests_whose_opting_out_is_still_to_be_recorded_count_and_lose_nothing() -> None:
    """Statuses are written one after the other: the first ones must not pass as a few."""
    fleet = Fleet(0, 12)
    fleet.look()
    for number in range(2, 12):
        fleet.record(f"leaves-{number}", Removal.ON_OPT_OUT)
    assert fleet.removable() == []
    assert fleet.counts == [12]
    fleet = Fleet(50, 3)
    fleet.look()
    fleet.record("leaves-0", Removal.ON_OPT_OUT)
    fleet.record("leaves-1", Removal.DONE)
    assert fleet.removable() == ["leaves-2"]


def test_guests_without_our_releases_do_not_count() -> None:
    fleet = Fleet(10, 100)
    fleet.look(False)
    fleet.note("leaves-7", True)
    assert fleet.removable() == ["leaves-7"]


def test_a_guest_that_was_never_reached_counts_as_one_that_loses_something() -> None:
    fleet = Fleet(0, 12)
    fleet.look(None)
    fleet.note("leaves-7", True)
    assert fleet.removable() == []
    assert fleet.counts == [12]


def test_a_withheld_removal_does_not_leak_while_guests_are_out_of_reach_in_turns() -> None:
    """An option is deleted by mistake, nobody confirms, and Rancher restarts: ten guests are reachable at a time."""
    fleet = Fleet(0, 60)
    fleet.look()
    for first in range(0, 60, 10):
        fleet.look(None)
        for number in range(first, first + 10):
            fleet.note(f"leaves-{number}", True)
        assert fleet.removable() == []
    assert fleet.counts == [60]


async def test_after_a_restart_nothing_is_removed_before_every_guest_is_known() -> None:
    operator = SmallOperator()
    for number in range(3):
        operator.add_guest(f"c-m-{number}")
        operator.ask(f"c-m-{number}", has=f"10.0.0.1{number}", guest={"removal": "Pending"})
    operator.configuration.settings = REMOVING
    guests, departures = operator.manager.guests, operator.manager.departures
    departures.is_listed = True
    await guests.discover("c-m-0")
    departures.note(guests.state("c-m-0"), True)
    assert not departures.may_remove("c-m-0")
    for other in ("c-m-1", "c-m-2"):
        departures.note(guests.state(other), False)
    assert departures.may_remove("c-m-0")


def test_more_than_few_lose_nothing_until_their_number_is_confirmed() -> None:
    """An option that somebody deleted by mistake must not uninstall a fleet."""
    fleet = Fleet(0, 40)
    fleet.look()
    assert fleet.removable() == []
    assert fleet.counts == [40]
    fleet.confirm(39)
    assert fleet.removable() == []
    fleet.confirm(40)
    assert len(fleet.removable()) == 40
    fleet.note("leaves-0", False)
    assert len(fleet.removable()) == 39, "the confirmation holds for the rest of them"


def test_a_confirmation_does_not_hold_for_guests_that_come_later() -> None:
    fleet = Fleet(0, 40)
    fleet.look()
    fleet.removable()
    fleet.confirm(40)
    assert len(fleet.removable()) == 40
    fleet.look(False)
    fleet.remove(*(each.id for each in fleet.guests))
    fleet.add(*(f"later-{number}" for number in range(30)), opted_in=False)
    fleet.look()
    assert fleet.removable() == []
    assert fleet.counts == [40, 30]


def test_a_confirmation_that_served_is_none_for_a_later_removal_of_as_many_guests() -> None:
    """The annotation stayed, and a month later somebody deletes the option by mistake."""
    fleet = Fleet(0, 40)
    fleet.look()
    fleet.removable()
    fleet.confirm(40)
    assert len(fleet.removable()) == 40
    fleet.look(False)
    for _, state in fleet.directory.states():
        state.removal = ReleaseRemoval()
    assert fleet.removable() == []
    fleet.look()
    assert fleet.removable() == []
    assert fleet.counts == [40, 40]
    fleet.confirm(None)
    assert fleet.removable() == []
    fleet.confirm(40)
    assert len(fleet.removable()) == 40


def test_who_opts_guests_in_again_one_by_one_loses_none_of_them() -> None:
    fleet = Fleet(0, 60)
    fleet.look()
    fleet.confirm(20)
    assert fleet.removable() == []
    for number in range(60):
        fleet.change(f"leaves-{number}", opted_in=True)
        assert fleet.removable() == []
    assert fleet.counts == [*range(60, 0, -1)]
    fleet.change("leaves-7")
    assert fleet.removable() == ["leaves-7"], "one that leaves later is one of a few"


def test_a_number_that_stood_there_before_the_process_began_confirms_nothing() -> None:
    fleet = Fleet(20, 40)
    fleet.look()
    fleet.confirm(40)
    assert fleet.removable() == []
    assert fleet.counts == [40]
    fleet.confirm(None)
    assert fleet.removable() == []
    fleet.confirm(40)
    assert len(fleet.removable()) == 40


def test_a_confirmation_holds_for_those_that_were_told_of_where_fewer_leave_by_now_and_for_no_others() -> (
    None
):
    fleet = Fleet(20, 40)
    fleet.look()
    assert fleet.removable() == []
    fleet.confirm(40)
    fleet.remove("leaves-39")
    fleet.add("another", opted_in=False)
    fleet.look()
    assert fleet.removable() == []
    assert fleet.counts == [40, 40]
    fleet.confirm(None)
    fleet.removable()
    fleet.confirm(40)
    fleet.remove("another")
    assert len(fleet.removable()) == 39


@pytest.mark.parametrize(
    ("fleet_size", "few"),
    [(1, 1), (2, 1), (10, 1), (11, 2), (20, 2), (21, 3), (90, 9), (91, 10), (100, 10), (101, 10), (500, 10)],
)
def test_more_than_ten_guests_or_a_tenth_of_those_with_releases_are_withheld(
    fleet_size: int, few: int
) -> None:
    fleet = Fleet(fleet_size - few, few)
    fleet.look()
    assert len(fleet.removable()) == few
    if few < fleet_size:
        fleet = Fleet(fleet_size - few - 1, few + 1)
        fleet.look()
        assert fleet.removable() == []
        assert fleet.counts == [few + 1]


def test_those_that_leave_meanwhile_count_together_with_the_few_that_are_being_left() -> None:
    fleet = Fleet(54, 6)
    fleet.look()
    assert len(fleet.removable()) == 6
    fleet.add("leaves-6", opted_in=False)
    fleet.look()
    assert len(fleet.removable()) == 7
    fleet.add("leaves-7", opted_in=False)
    fleet.look()
    assert fleet.removable() == []


def test_so_many_at_once_as_a_wave_has() -> None:
    fleet = Fleet(90, 9, settings=replace(REMOVING, kubevip_rollout_max_concurrency=Amount(2)))
    fleet.look()
    assert fleet.removable() == ["leaves-0", "leaves-1"]
    fleet.note("leaves-0", False)
    assert fleet.removable() == ["leaves-1", "leaves-2"]
    fleet.note("leaves-1", None)
    assert fleet.departures.may_remove("leaves-3"), "the turn of who is out of reach by now is another's"


def test_a_guest_that_is_not_left_any_more_or_whose_visit_ended_in_vain_has_no_turn() -> None:
    fleet = Fleet(90, 9, settings=replace(REMOVING, kubevip_rollout_max_concurrency=Amount(2)))
    fleet.look()
    assert fleet.removable() == ["leaves-0", "leaves-1"]
    fleet.change("leaves-0", paused=True)
    assert fleet.removable() == ["leaves-1", "leaves-2"]
    state = fleet.directory.state("leaves-1")
    fleet.departures.note(state, True, awaits_helm=True)
    assert not fleet.departures.may_remove("leaves-3"), "it keeps its turn while it waits for helm"
    fleet.departures.note(state, True)
    assert fleet.departures.may_remove("leaves-3")
    assert not fleet.departures.may_remove("leaves-1")


def test_guests_without_a_floating_ip_have_no_releases_and_do_not_raise_the_limit() -> None:
    fleet = Fleet(0, 10)
    fleet.add(*(f"without-{number}" for number in range(90)))
    for number in range(90):
        found = fleet.directory.cache.floating_ips.get(f"without-{number}", "web")
        assert found is not None
        fleet.directory.cache.forget(FLOATING_IPS, found)
    fleet.look()
    assert fleet.removable() == []
    assert fleet.counts == [10]


def test_nobody_is_left_while_no_good_value_of_an_option_is_known() -> None:
    settings = replace(REMOVING, unknown_options=frozenset({"kubevipGuestInstall"}))
    fleet = Fleet(60, 2, settings=settings)
    fleet.look()
    assert not any(map(fleet.departures.is_leaving, fleet.guests))
    assert fleet.removable() == []
    fleet.configuration.settings = REMOVING
    assert fleet.removable() == ["leaves-0", "leaves-1"]


def test_who_is_paused_or_deleted_is_not_left() -> None:
    fleet = Fleet(0, 2)
    fleet.change("leaves-0", paused=True)
    fleet.change("leaves-1", deleting=True)
    assert not any(map(fleet.departures.is_leaving, fleet.guests))


def test_with_the_option_that_disables_all_every_guest_leaves() -> None:
    fleet = Fleet(12, 0, settings=replace(REMOVING, kubevip_guest_install=GuestInstall.DISABLED))
    for each in fleet.guests:
        fleet.note(each.id, True)
    assert fleet.removable() == []
    assert fleet.counts == [12]


def test_a_confirmation_ends_with_the_releases_and_holds_for_none_that_are_installed_later() -> None:
    """Nothing asked between: all of them are gone, and are there again under the same names and records."""
    fleet = Fleet(0, 40)
    fleet.look()
    fleet.removable()
    fleet.confirm(40)
    assert len(fleet.removable()) == 40
    fleet.confirm(None)
    fleet.look(False)
    fleet.look()
    assert fleet.removable() == []
    assert fleet.counts == [40, 40]


def test_those_that_were_confirmed_lose_their_releases_beside_many_that_were_not() -> None:
    fleet = Fleet(0, 20)
    fleet.look()
    fleet.removable()
    fleet.confirm(20)
    assert len(fleet.removable()) == 20
    fleet.add(*(f"later-{number}" for number in range(30)), opted_in=False)
    fleet.look()
    assert fleet.removable() == sorted(f"leaves-{number}" for number in range(20))
    assert fleet.counts == [20, 30]
