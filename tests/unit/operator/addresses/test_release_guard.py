from dataclasses import dataclass, field

import pytest

from fipop.api.models import Reservation
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS, MANAGEMENT_CLUSTERS
from fipop.operator.addresses.quarantine import ReleaseGuard
from fipop.operator.confirmation import Confirmation
from fipop.runtime.relist import EventType
from fipop.state.cache import ClusterCache
from fipop.state.guests import GuestDirectory
from tests.harness.objects import BORN, build_floating_ip, build_reservation, cache_of
from tests.harness.terms import FakeConfiguration

CLUSTER = {"metadata": {"name": "c-m-1", "uid": "uid-c-m-1", "resourceVersion": "1"}, "spec": {}}


@dataclass
class Fleet:
    """`lost` addresses whose floating IPs nobody saw go, beside `kept` ones, of a guest that is there."""

    lost: int
    kept: int = 0
    with_cluster: bool = True
    now: float = 0.0
    configuration: FakeConfiguration = field(default_factory=FakeConfiguration)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        living = [build_floating_ip(f"kept-{index}") for index in range(self.kept)]
        held = [build_reservation(_address(index), f"kept-{index}") for index in range(self.kept)]
        held += [build_reservation(_address(5000 + index), f"lost-{index}") for index in range(self.lost)]
        self.cache: ClusterCache = cache_of(floating_ips=living, reservations=held)
        self.cache.monotonic = lambda: self.now
        if self.with_cluster:
            self.cache.observe(MANAGEMENT_CLUSTERS, CLUSTER)
        guests = GuestDirectory(cache=self.cache, client=None)  # type: ignore[arg-type] # asked for nothing
        self.configuration.on_complaint = lambda _reason, message: self.told.append(message)
        self.mass_release = ReleaseGuard(
            cache=self.cache,
            guests=guests,
            confirmation=Confirmation(
                configuration=self.configuration,  # type: ignore[arg-type] # it has annotations, and takes complaints
                annotation="confirm",
                reason="Withheld",
                message="{count} wait.",
            ),
        )

    def confirm(self, number: int | None) -> None:
        """Set the annotation, or remove it."""
        self.configuration.annotate("confirm", "" if number is None else str(number))

    def may_release(self) -> bool:
        """Ask for each that is lost; as long after the last time as an answer serves."""
        self.now += 2
        answers = {self.mass_release.may_release(each) for each in self.lost_ones()}
        assert len(answers) == 1
        return answers.pop()

    def lost_ones(self) -> list[Reservation]:
        """Return the reservations of lost ones."""
        return [each for each in self.cache.reservations.all() if each.owner.name.startswith("lost")]

    def find(self, count: int) -> None:
        """Have the first lost ones back."""
        for index in range(count):
            self.cache.observe(FLOATING_IPS, build_floating_ip(f"lost-{index}"))

    def forget(self, lost: list[Reservation]) -> None:
        """Have the reservations of lost ones gone."""
        for reservation in lost:
            self.cache.forget(FLOATING_IP_RESERVATIONS, reservation)

    def lose(self, count: int, *, first: int = 0, since: str = BORN) -> None:
        """Lose more, named from `first` on."""
        for index in range(first, first + count):
            lost = build_reservation(_address(5000 + index), f"lost-{index}", since=since)
            self.cache.observe(FLOATING_IP_RESERVATIONS, lost)


def _address(number: int) -> str:
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


@pytest.mark.parametrize(
    ("lost", "kept", "may"),
    [
        (1, 0, True),
        (10, 0, True),
        (11, 0, False),
        (11, 98, False),
        (11, 99, True),
        (20, 180, True),
        (21, 180, False),
    ],
)
def test_more_than_ten_and_more_than_a_tenth_of_the_addresses_lost_unseen_are_not_let_go(
    lost: int, kept: int, may: bool
) -> None:
    assert Fleet(lost=lost, kept=kept).may_release() is may


def test_it_is_told_once_how_many_and_their_confirmation_lets_exactly_so_many_go() -> None:
    fleet = Fleet(lost=30)
    assert not fleet.may_release()
    assert len(fleet.told) == 1
    assert fleet.told[0].startswith("30 wait.")
    fleet.confirm(29)
    assert not fleet.may_release()
    fleet.confirm(30)
    assert fleet.may_release()
    assert len(fleet.told) == 1


def test_floating_ips_that_were_seen_to_be_deleted_are_nobodys_loss() -> None:
    fleet = Fleet(lost=30)
    take = fleet.cache.feed(FLOATING_IPS).take_event
    for reservation in fleet.cache.reservations.all():
        owner = reservation.owner
        gone = {
            "namespace": owner.namespace,
            "name": owner.name,
            "uid": owner.uid,
            "resourceVersion": "9999999",
        }
        take(EventType.DELETED, {"metadata": gone})
    assert fleet.may_release()


def test_a_cluster_that_is_gone_takes_its_floating_ips_along() -> None:
    assert Fleet(lost=30, with_cluster=False).may_release()


def test_a_confirmation_holds_for_the_loss_that_it_was_given_for_and_for_no_later_one() -> None:
    fleet = Fleet(lost=30)
    assert not fleet.may_release()
    fleet.confirm(30)
    assert fleet.may_release()
    fleet.forget(fleet.lost_ones()[12:])
    assert fleet.may_release(), "what is left of the confirmed loss goes, too"
    fleet.lose(10, first=50)
    assert fleet.may_release(), "few are no mass, beside those that were confirmed"
    confirmed = fleet.lost_ones()[:12]
    fleet.lose(11, first=50)
    fleet.now += 2
    answers = {each: fleet.mass_release.may_release(each) for each in fleet.lost_ones()}
    assert [each for each, may in answers.items() if may] == confirmed
    assert fleet.told[1:] == [fleet.told[0].replace("30", "11")]


def test_an_old_confirmation_is_none_for_a_later_loss_of_the_same_size() -> None:
    fleet = Fleet(lost=30)
    assert not fleet.may_release()
    fleet.confirm(30)
    assert fleet.may_release()
    fleet.forget(fleet.lost_ones())
    fleet.lose(30, first=50)
    assert not fleet.may_release()
    assert fleet.told[1] == fleet.told[0] + " The annotation has this value from before: remove it first."
    assert fleet.mass_release.withheld() == 30
    fleet.confirm(None)
    assert not fleet.may_release()
    fleet.confirm(30)
    assert fleet.may_release()
    assert fleet.mass_release.withheld() == 0


def test_addresses_that_were_confirmed_and_released_are_asked_for_again_if_their_old_owners_lose_them_again() -> (
    None
):
    fleet = Fleet(lost=30)
    assert not fleet.may_release()
    fleet.confirm(30)
    assert fleet.may_release()
    confirmed = fleet.lost_ones()
    fleet.confirm(None)
    fleet.forget(confirmed)
    fleet.lose(30, since="2026-03-02T00:00:00Z")
    assert [each.owner for each in fleet.lost_ones()] == [each.owner for each in confirmed]
    assert not fleet.may_release()


def test_floating_ips_that_come_back_before_the_release_end_the_confirmation_at_the_next_scrape() -> None:
    fleet = Fleet(lost=30)
    assert not fleet.may_release()
    fleet.confirm(30)
    assert fleet.may_release()
    fleet.confirm(None)
    fleet.find(30)
    fleet.now += 2
    assert fleet.mass_release.withheld() == 0
    for index in range(30):
        floating_ip = fleet.cache.floating_ips.get("c-m-1", f"lost-{index}")
        assert floating_ip is not None
        fleet.cache.forget(FLOATING_IPS, floating_ip)
    assert not fleet.may_release()


def test_a_number_that_stood_there_before_the_loss_was_reported_releases_nothing() -> None:
    fleet = Fleet(lost=30)
    fleet.confirm(30)
    assert not fleet.may_release()
    fleet.confirm(None)
    assert not fleet.may_release()
    fleet.confirm(30)
    assert fleet.may_release()


def test_what_is_lost_after_the_count_waits_for_the_next_one() -> None:
    fleet = Fleet(lost=1, kept=60)
    assert fleet.may_release()
    fleet.lose(40, first=50)
    answers = [fleet.mass_release.may_release(each) for each in fleet.lost_ones()]
    assert sum(answers) == 1
    fleet.now += 2
    assert not any(fleet.mass_release.may_release(each) for each in fleet.lost_ones())


def test_many_questions_are_answered_with_one_count() -> None:
    fleet = Fleet(lost=30)
    counts: list[int] = []
    all_reservations = fleet.cache.reservations.all
    asked = all_reservations()
    fleet.cache.reservations.all = lambda: counts.append(1) or all_reservations()  # type: ignore[method-assign,func-returns-value]
    assert not any(fleet.mass_release.may_release(each) for each in asked)
    assert len(counts) == 1


def test_the_number_that_waits_is_told_until_it_is_confirmed_or_found_again() -> None:
    fleet = Fleet(lost=30, kept=50)
    assert fleet.mass_release.withheld() == 0, "nobody has asked to release any"
    assert not fleet.may_release()
    assert fleet.mass_release.withheld() == 30
    fleet.find(25)
    fleet.now += 2
    assert fleet.mass_release.withheld() == 5, "the few that are left of them"
    fleet.find(30)
    fleet.now += 2
    assert fleet.mass_release.withheld() == 0
    fleet = Fleet(lost=30, kept=50)
    assert not fleet.may_release()
    fleet.confirm(30)
    fleet.now += 2
    assert fleet.mass_release.withheld() == 0


def test_a_count_from_before_a_list_that_lacks_floating_ips_is_not_used() -> None:
    fleet = Fleet(lost=1, kept=60)
    assert fleet.may_release()
    for index in range(40):
        floating_ip = fleet.cache.floating_ips.get("c-m-1", f"kept-{index}")
        assert floating_ip is not None
        fleet.cache.forget(FLOATING_IPS, floating_ip)
    fleet.mass_release.count_again()
    assert not any(fleet.mass_release.may_release(each) for each in fleet.lost_ones())


def test_one_that_is_lost_right_after_a_count_does_not_wait_for_the_next_one() -> None:
    fleet = Fleet(lost=1, kept=20)
    fleet.now = 100
    (lost,) = fleet.lost_ones()
    assert fleet.mass_release.may_release(lost)
    fleet.now += 1
    gone = fleet.cache.floating_ips.get(lost.owner.namespace, "kept-3")
    assert gone is not None
    fleet.cache.forget(FLOATING_IPS, gone)
    (held,) = (each for each in fleet.cache.reservations.all() if each.owner.name == "kept-3")
    assert fleet.mass_release.may_release(held)
