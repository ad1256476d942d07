"""Durations of several rooms that only work together, and what is forgotten when objects are gone."""

import pytest

from fipop.deadlines import GUEST_WRITE_SECONDS
from fipop.guest.limits import GuestLimits
from fipop.kube.resources import FLOATING_IPS, MANAGEMENT_CLUSTERS, PROVISIONING_CLUSTERS
from fipop.runtime.leader_election import LeaseTimes
from tests.harness.small_cluster import WORKSPACE
from tests.harness.small_operator import SmallOperator

A, X = "c-m-a", "10.0.0.10"
PROVISIONING = (PROVISIONING_CLUSTERS.plural, WORKSPACE, f"cluster-{A}")
MANAGEMENT = (MANAGEMENT_CLUSTERS.plural, "", A)


def test_a_leader_between_two_renewals_still_leads_for_as_long_as_a_write_to_a_guest_takes() -> None:
    times = LeaseTimes()
    left_before_a_renewal = times.duration_seconds - times.renew_seconds
    assert left_before_a_renewal > GUEST_WRITE_SECONDS
    # Slots: a field's default stands in no class attribute, but in the signature.
    fields = GuestLimits.__dataclass_fields__
    assert fields["request_seconds"].default <= GUEST_WRITE_SECONDS


@pytest.mark.parametrize("is_noticed", [True, False])
@pytest.mark.parametrize("order", [(PROVISIONING, MANAGEMENT), (MANAGEMENT, PROVISIONING)])
async def test_a_guest_that_left_rancher_is_looked_at_anew_when_it_is_back(
    order: tuple[tuple[str, str, str], ...], is_noticed: bool
) -> None:
    """It was remembered as looked at: what it carried by then would have been given to another."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    await operator.start()
    for key in order:
        operator.memory.remove(key)
        if is_noticed:
            await operator.settle()
    assert not operator.manager.reported.report_of(A).is_fresh
    operator.carried.config_maps[A] = f"{X}/32"
    operator.add_guest(A)
    await operator.settle()
    await operator.look_until(lambda: f"default.{X}" in operator.quarantined())


async def test_a_guest_that_only_one_of_its_objects_is_left_of_is_remembered() -> None:
    """It cannot be asked any more, and may still run."""
    operator = SmallOperator()
    operator.add_range(iprange="10.9.0.0/24")
    operator.add_guest(A)
    operator.carried.config_maps[A] = f"{X}/32"
    await operator.start()
    operator.memory.remove(PROVISIONING)
    await operator.settle()
    operator.add_range("later")
    await operator.settle()
    assert operator.quarantined() == {f"default.{X}"}


async def test_a_floating_ip_that_moves_has_its_guest_visited_once() -> None:
    """Its old address is released after its status was written, which is no reason for a second visit."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_range("other", "10.9.0.10-10.9.0.20")
    operator.add_guest(A)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.take_visits()
    visited: list[str] = []
    operator.client.on_commit = lambda _verb: visited.extend(operator.take_visits())
    operator.ask_for_range(A, "other")
    await operator.settle()
    await operator.pass_time(60)
    assert operator.held() == {"default.10.9.0.10": A}
    assert [*visited, *operator.take_visits()] == [A]


async def test_a_guest_whose_floating_ip_is_deleted_during_its_last_round_is_visited() -> None:
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    await operator.start()
    key = (FLOATING_IPS.plural, A, "web")

    def give_up_when_told(_verb: str) -> None:
        if (operator.memory.objects.get(key) or {}).get("status"):
            operator.take_visits()
            operator.give_up(A)

    operator.client.on_commit = give_up_when_told
    operator.ask(A)
    await operator.settle()
    assert operator.quarantined() == {f"default.{X}"}
    assert operator.take_visits() == [A]
