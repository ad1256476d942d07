"""What the Lease says of the leader before."""

import pytest

from fipop.kube.lease import LeaseBefore
from fipop.operator.continuity import Continuity

KEY = "kubefip.k8s.binbash.org/looked"


class Lease:
    def __init__(self, age: float | None = 5.0, looked: str = "true") -> None:
        self.went_back = False
        self.before = LeaseBefore(age_seconds=age, annotations={KEY: looked})


def continuity(lease: Lease | None, looked: bool | None = None) -> Continuity:
    return Continuity(looks=lambda: looked, lease=lease)


@pytest.mark.parametrize(
    ("age", "looked", "given"),
    [(5.0, "true", True), (60.0, "true", True), (61.0, "true", False), (5.0, "false", False), (None, "true", False),
     (-0.9, "true", True), (-30.0, "true", False)],
)  # fmt: skip
def test_it_is_given_by_a_leader_of_a_moment_ago_that_had_looked(
    age: float | None, looked: str, given: bool
) -> None:
    assert continuity(Lease(age, looked)).is_given() is given


def test_without_election_it_is_never_given() -> None:
    assert not continuity(None).is_given()


def test_who_has_looked_says_so_and_its_last_word_stays_when_it_gives_the_lease_up() -> None:
    lease = Lease()
    assert continuity(lease, looked=False).note() == {KEY: "false"}
    ending = continuity(lease)
    assert ending.note() == {KEY: "false"}
    ending.end_term(looked=True)
    assert ending.note() == {KEY: "true"}


def test_where_the_store_went_back_nobody_may_rely_on_anything() -> None:
    """A leader that renews its Lease in a restored store must not vouch for it."""
    lease = Lease()
    lease.went_back = True
    assert continuity(lease, looked=True).note() == {KEY: "false"}
