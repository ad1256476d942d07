"""Which objects a change has reconciled: a table of promises. A key that is missing here would wait until a restart."""

from collections.abc import Callable
from typing import Any

import pytest

from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS, MANAGEMENT_CLUSTERS
from fipop.operator.queues import Kind
from fipop.settings.options import parse_settings, settings_data
from tests.harness.small_operator import SmallOperator

SERVED, WAITING, UNSERVED, LEFT, ON_HARVESTER = "c-m-a", "c-m-b", "c-m-c", "c-m-d", "c-m-e"
X, Y, Z = "10.0.0.10", "10.9.0.10", "10.9.0.11"
POOL = (FLOATING_IP_RANGES.plural, "", "pool")
NEW = (MANAGEMENT_CLUSTERS.plural, "", "c-new")
HARVESTER = (MANAGEMENT_CLUSTERS.plural, "", "c-harvester-1")
RANGES = "range "
"""A count of all ranges: it has no name."""


async def build() -> SmallOperator:
    """One guest of each kind, at rest.

    SERVED holds X of range pool, and WAITING waits for it. UNSERVED and ON_HARVESTER match no range. LEFT gave Y of
    range other up, which is in quarantine. Range lab is of another space.
    """
    operator = SmallOperator()
    operator.add_range("pool", f"{X}-{X}")
    operator.add_range("other", f"{Y}-{Z}")
    operator.add_range("lab", "10.8.0.1-10.8.0.4", addressSpace="lab")
    for guest_id in (SERVED, WAITING, LEFT):
        operator.add_guest(guest_id)
    for guest_id in (UNSERVED, ON_HARVESTER):
        operator.add_guest(guest_id, is_served=True)
    operator.put_on_harvester(ON_HARVESTER, "harvester-1")
    await operator.start()
    for guest_id, range_name in ((SERVED, "pool"), (WAITING, "pool"), (LEFT, "other")):
        operator.ask(guest_id, range_name=range_name)
        await operator.settle()
    operator.give_up(LEFT)
    await operator.settle()
    assert operator.held() == {f"default.{X}": SERVED}
    assert operator.quarantined() == {f"default.{Y}"}
    await operator.pass_time(5)
    return operator


def woken_by(operator: SmallOperator, change: Callable[[SmallOperator], Any]) -> set[str]:
    """Return the objects that a change put into a queue, now or for later."""
    operator.take_requests()
    change(operator)
    return take_names(operator)


def take_names(operator: SmallOperator) -> set[str]:
    keys, visits = operator.take_requests()
    named = {
        f"{each.kind.value} {each.namespace if each.kind is Kind.FLOATING_IP else each.name}" for each in keys
    }
    return named | {f"visit {guest_id}" for guest_id in visits}


def change_options(**options: str) -> Callable[[SmallOperator], None]:
    def change(operator: SmallOperator) -> None:
        before = operator.configuration.settings
        after, bad = parse_settings(settings_data(before) | options, before)
        assert not bad
        operator.configuration.settings = after
        operator.manager.settings_changed(before, after)

    return change


def write_status_of_range(operator: SmallOperator) -> None:
    found = operator.memory.objects[POOL]
    operator.memory.put(POOL, {**found, "status": {"observedGeneration": 1}})


def move_floating_ip(operator: SmallOperator) -> None:
    operator.ask_for_range(SERVED, "other")


def lose_floating_ip(operator: SmallOperator) -> None:
    """Have a floating IP gone that no event said was deleted."""
    found = operator.cache.floating_ips.get(SERVED, "web")
    assert found is not None
    operator.cache.listener = None
    operator.cache.forget(FLOATING_IPS, found)
    operator.manager.check_owners()


CASES: list[tuple[str, Callable[[SmallOperator], Any], set[str]]] = [
    (
        "a range: the ranges, its floating IPs, those that wait, and guests without a range",
        lambda operator: operator.change_range(iprange=f"{X}-10.0.0.11"),
        {
            *(RANGES, f"floatingip {SERVED}", f"floatingip {WAITING}"),
            *(f"guest {UNSERVED}", f"guest {ON_HARVESTER}"),
        },
    ),
    (
        "a new range: the same",
        lambda operator: operator.add_range("new", "10.7.0.1-10.7.0.4"),
        {
            *(RANGES, f"floatingip {WAITING}"),
            *(f"guest {UNSERVED}", f"guest {ON_HARVESTER}"),
        },
    ),
    ("the status of a range: nothing", write_status_of_range, set()),
    (
        "a floating IP: itself, and the ranges",
        move_floating_ip,
        {f"floatingip {SERVED}", RANGES},
    ),
    (
        "a floating IP that is deleted: its guest too, which gets a visit and may get another one",
        lambda operator: operator.give_up(SERVED),
        {f"floatingip {SERVED}", RANGES, f"guest {SERVED}", f"visit {SERVED}"},
    ),
    (
        "what a visit takes from a floating IP: itself, a visit of its guest, and the ranges",
        lambda operator: operator.pause(SERVED),
        {f"floatingip {SERVED}", f"visit {SERVED}", RANGES},
    ),
    (
        "the same of one without an address: no visit",
        lambda operator: operator.pause(WAITING),
        {f"floatingip {WAITING}", RANGES},
    ),
    (
        "a held reservation that is deleted: its owner, those that wait, and the ranges",
        lambda operator: operator.remove_reservation(f"default.{X}"),
        {f"floatingip {SERVED}", f"floatingip {WAITING}", RANGES},
    ),
    (
        "an address that is free again, and that WAITING cannot have",
        lambda operator: operator.remove_reservation(f"default.{Y}"),
        {f"floatingip {LEFT}", RANGES},
    ),
    (
        "a spec that names an address in quarantine: its reservation, which may be offered",
        lambda operator: operator.ask_for_another(WAITING, Y),
        {f"floatingip {WAITING}", f"reservation default.{Y}", RANGES},
    ),
    (
        "a held reservation without a floating IP: it is checked",
        lambda operator: operator.reserve(Z, LEFT, range_name="other"),
        {f"floatingip {LEFT}", f"reservation default.{Z}", RANGES},
    ),
    (
        "a provisioning Cluster: its guest, and the floating IPs of the guest",
        lambda operator: operator.label_guest(SERVED, net="blue"),
        {f"guest {SERVED}", f"floatingip {SERVED}"},
    ),
    (
        "a management Cluster: the quarantines of its guest too, which may end now",
        lambda operator: operator.disconnect(LEFT),
        {f"guest {LEFT}", f"reservation default.{Y}"},
    ),
    (
        "a Harvester cluster that is renamed: the guests on it, and the ranges",
        lambda operator: operator.rename_harvester("harvester-1", "new-name"),
        {"guest c-harvester-1", f"guest {ON_HARVESTER}", RANGES},
    ),
    (
        "a Harvester cluster that is new in Rancher: the guests on any Harvester cluster, and the same ranges",
        lambda operator: operator.memory.put(
            NEW,
            {
                "metadata": {"name": NEW[2]},
                "spec": {"displayName": "new"},
                "status": {"provider": "harvester"},
            },
        ),
        {"guest c-new", f"guest {ON_HARVESTER}", RANGES},
    ),
    (
        "a Harvester cluster that is removed: the ranges",
        lambda operator: operator.memory.remove(HARVESTER),
        {"guest c-harvester-1", RANGES},
    ),
    (
        "a cluster that was just imported, of which Rancher does not know what it is: the same",
        lambda operator: operator.memory.put(
            NEW, {"metadata": {"name": NEW[2]}, "spec": {"displayName": "new"}}
        ),
        {"guest c-new", RANGES},
    ),
    (
        "a reservation that names another owner: both, those that wait, the ranges; and it is checked",
        lambda operator: operator.reserve(X, LEFT, range_name="pool"),
        {
            *(f"floatingip {each}" for each in (SERVED, LEFT, WAITING)),
            *(f"reservation default.{X}", RANGES),
        },
    ),
    (
        "an option: a visit of every guest",
        change_options(kubevipUpdate="true"),
        {f"visit {each}" for each in (SERVED, WAITING, UNSERVED, LEFT, ON_HARVESTER)},
    ),
    (
        "a round of lists: held reservations without a floating IP",
        lose_floating_ip,
        {f"reservation default.{X}"},
    ),
]


@pytest.mark.parametrize(("change", "woken"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_a_change_has_these_objects_reconciled(
    change: Callable[[SmallOperator], Any], woken: set[str]
) -> None:
    assert woken_by(await build(), change) == woken


async def test_guests_without_a_floating_ip_are_reconciled_when_they_may_get_one_again() -> None:
    operator = await build()
    change_options(createFloatingIPs="false")(operator)
    woken = woken_by(operator, change_options(createFloatingIPs="true"))
    assert {each for each in woken if each.startswith("guest")} == {
        f"guest {each}" for each in (LEFT, UNSERVED, ON_HARVESTER)
    }


async def test_floating_ips_that_wait_are_reconciled_when_all_guests_were_scanned_again() -> None:
    operator = await build()
    operator.manager.scan.require_rescan()
    operator.take_requests()
    await operator.look_until(lambda: operator.manager.gate.looked)
    assert f"floatingip {WAITING}" in take_names(operator)
