"""A floating IP that names what its own guest carries gets it: no guest has to let go of an address first."""

from datetime import timedelta

import pytest

from fipop.api import names
from fipop.kube.resources import FLOATING_IPS
from tests.harness.history import Change
from tests.harness.small_operator import SmallOperator

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
NAME = f"default.{X}"
QUARANTINE = 600
HOUR = 3600


class Watched(SmallOperator):
    """Fails where the reservation of X goes, or comes to a guest while another one carries X."""

    def __init__(self, former: SmallOperator | None = None) -> None:
        super().__init__(former)
        self.memory.listeners.append(self.judge)
        self._holder = self.held().get(NAME)

    def carriers(self) -> set[str]:
        carried = (*self.carried.config_maps.items(), *self.carried.services.items())
        return {guest_id for guest_id, text in carried if X in text}

    def judge(self, change: Change) -> None:
        if change.name != NAME:
            return
        holder = self.held().get(NAME)
        if holder != self._holder and holder is not None:
            assert self.carriers() <= {holder}, f"{X} came to {holder} while {self.carriers()} carried it"
        self._holder = holder
        assert change.obj is not None or not self.carriers(), f"{X} was freed while it was carried"


def build(*guest_ids: str, **spec: object) -> Watched:
    operator = Watched()
    operator.add_range(**spec)  # type: ignore[arg-type]
    for guest_id in guest_ids:
        operator.add_guest(guest_id)
    return operator


async def serving(*guest_ids: str) -> Watched:
    """Have X held for the first of these guests, which carries it."""
    operator = build(*guest_ids)
    await operator.start()
    operator.ask(guest_ids[0], X)
    await operator.settle()
    operator.carried.config_maps[guest_ids[0]] = f"{X}/32"
    return operator


def allocated(operator: SmallOperator, guest_id: str, name: str = "web") -> tuple[str, str]:
    conditions = operator.memory.objects[FLOATING_IPS.plural, guest_id, name]["status"]["conditions"]
    (found,) = (each for each in conditions if each["type"] == "Allocated")
    return found["reason"], found["message"]


# The guest that had it


@pytest.mark.parametrize("order", ["made first", "made later", "made after the quarantine"])
async def test_another_floating_ip_of_the_same_guest_takes_its_address_over_at_once(order: str) -> None:
    """As when a floating IP that fipop made moves into Git, under a name of its own."""
    operator = await serving(A)
    if order == "made first":
        operator.ask(A, X, name="from-git")
        await operator.settle()
    operator.give_up(A)
    await operator.settle()
    if order == "made after the quarantine":
        await operator.pass_time(HOUR)
    if order != "made first":
        operator.ask(A, X, name="from-git")
        await operator.settle()
    assert operator.held() == {NAME: A}
    assert allocated(operator, A, "from-git")[0] == "Allocated"


@pytest.mark.parametrize("moves", [False, True])
async def test_what_a_guest_carries_by_hand_is_given_to_its_floating_ip_that_names_it(moves: bool) -> None:
    operator = build(A)
    operator.carried.config_maps[A] = f"{X}/32"
    if moves:
        operator.ask(A)
    await operator.start()
    if moves:
        assert operator.held() == {f"default.{Y}": A}
        operator.ask_for_another(A, X)
    else:
        operator.ask(A, X)
    await operator.settle()
    assert operator.held()[NAME] == A
    assert allocated(operator, A)[0] == "Allocated"


async def test_who_names_no_address_gets_nothing_out_of_the_quarantine_of_its_guest() -> None:
    operator = await serving(A)
    operator.give_up(A)
    await operator.settle()
    operator.ask(A, name="other")
    await operator.settle()
    assert operator.held() == {f"default.{Y}": A}


# Another guest that carries it


@pytest.mark.parametrize(
    ("order", "restarted"),
    [
        ("asks first", True),
        ("asks in the quarantine", True),
        ("asks later", True),
        ("asks first", False),
        ("asks in the quarantine", False),
    ],
)
async def test_an_application_that_moved_to_another_guest_takes_its_address_along(
    order: str, restarted: bool
) -> None:
    """Its Service has the address there already; the old floating IP is deleted when all is well."""
    operator = await serving(A, B)
    operator.carried.services[B], operator.carried.config_maps[A] = X, ""
    if restarted:
        operator = Watched(operator)
        await operator.start()
    if order == "asks first":
        operator.ask(B, X)
        await operator.settle()
    operator.give_up(A)
    await operator.settle()
    if order == "asks in the quarantine":
        operator.ask(B, X)
        await operator.settle()
    await operator.pass_time(QUARANTINE - 10)
    assert operator.held() == {}, "the time of the former owner is kept"
    await operator.pass_time(60)
    if order == "asks later":
        operator.ask(B, X)
        await operator.settle()
        await operator.pass_time(60)
    assert operator.held() == {NAME: B}
    await operator.may_write(X)


async def test_it_does_not_go_to_who_waits_for_any_address_while_the_guest_that_names_it_carries_it() -> None:
    """The range was full, and the older one was served first."""
    operator = build(A, B, C, iprange=f"{X}-{X}")
    await operator.start()
    operator.ask(A, X)
    await operator.settle()
    operator.ask(C)
    await operator.pass_time(10)
    operator.ask(B, X)
    operator.carried.services[B] = X
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.held() == {NAME: B}


@pytest.mark.parametrize("inherited", [False, True])
async def test_who_lost_a_duplicate_of_the_predecessor_gets_it_when_the_other_is_deleted(
    inherited: bool,
) -> None:
    operator = build(A, B)
    operator.ask(A, X)
    operator.carried.config_maps[A] = operator.carried.config_maps[B] = f"{X}/32"
    await operator.pass_time(10)
    name = f"cluster-{B}{names.FLOATING_IP_SUFFIX}" if inherited else "web"
    operator.ask(B, X, name=name)
    key = (FLOATING_IPS.plural, B, name)
    found = operator.memory.objects[key]
    annotations = {**found["metadata"]["annotations"], names.ANNOTATION_CLUSTER: f"cluster-{B}"}
    operator.memory.put(key, {**found, "metadata": {**found["metadata"], "annotations": annotations}})
    await operator.pass_time(10)
    operator.cache.inheritance.ours_since = operator.memory.now
    operator.memory.listeners.remove(operator.judge)  # It was given out twice before fipop came.
    await operator.start()
    assert operator.held() == {NAME: A}
    assert allocated(operator, B, name)[0] == "AddressInUse"
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.quarantined() == {NAME}, "both carry it"
    operator.memory.listeners.append(operator.judge)
    operator.carried.config_maps[A] = ""
    await operator.pass_time(60)
    assert operator.held() == {NAME: B}


# Two families

V = "fd00::10"
NAME_V = "default.fd000000000000000000000000000010"


async def waiting_for_both(gap: int, *, iprange: str = f"{X}-{Y},{V}-fd00::20") -> Watched:
    """Have B carry what A and C had, and ask for both; the two quarantines begin with a gap and are over soon."""
    operator = build(A, B, C, iprange=f"{X}-{Y},{V}-fd00::20")
    await operator.start()
    operator.ask(A, X)
    operator.ask(C, V, ipFamilies=["IPv6"])
    await operator.settle()
    operator.carried.config_maps[B] = f"{X}/32,{V}/128"
    operator = Watched(operator)
    await operator.start()
    operator.ask(B, f"{X},{V}", ipFamilyPolicy="RequireDualStack")
    await operator.settle()
    operator.change_range(iprange=iprange)
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(gap)
    operator.give_up(C)
    await operator.settle()
    return operator


@pytest.mark.parametrize("gap", [0, 1, 5, 13, 29, 30, 31, 40, 77, 100, 120])
async def test_who_carries_and_names_both_families_gets_both_whenever_each_became_free(gap: int) -> None:
    operator = await waiting_for_both(gap)
    await operator.pass_time(QUARANTINE + 60)
    assert operator.held() == {NAME: B, NAME_V: B}
    assert allocated(operator, B)[0] == "Allocated"


async def test_who_carries_both_and_may_have_but_one_gets_none_and_causes_no_writes() -> None:
    operator = await waiting_for_both(40, iprange=f"{X}-{Y}")
    await operator.pass_time(QUARANTINE + 60)
    version, told = operator.memory.version, allocated(operator, B)
    await operator.pass_time(HOUR)
    assert (operator.memory.version - version, allocated(operator, B)) == (0, told)
    operator = Watched(operator)
    await operator.start()
    await operator.pass_time(HOUR)
    assert (operator.memory.version - version, allocated(operator, B)) == (0, told)
    assert operator.held() == {}


@pytest.mark.parametrize("before", [60, 7, 1])
async def test_who_waits_for_the_second_family_gets_neither_once_another_carries_the_first(
    before: int,
) -> None:
    """Also if it does so just before the second can be had, between two looks at the first."""
    operator = await waiting_for_both(120)
    await operator.pass_time(QUARANTINE - before)
    assert operator.held() == {}
    operator.carried.services[A] = X
    await operator.pass_time(QUARANTINE)
    assert operator.held() == {}
    assert A in allocated(operator, B)[1]
    operator.carried.services[A] = ""
    await operator.pass_time(60)
    assert operator.held() == {NAME: B, NAME_V: B}


# Several that carry it, or that cannot be asked


@pytest.mark.parametrize("last", [A, B])
@pytest.mark.parametrize("asked", ["before the start", "after the start"])
async def test_of_two_guests_that_carry_it_and_name_it_the_one_gets_it_that_is_left(
    last: str, asked: str
) -> None:
    operator = build(A, B)
    operator.carried.config_maps[A] = operator.carried.services[B] = X
    if asked == "before the start":
        operator.ask(A, X)
        operator.ask(B, X)
    await operator.start()
    if asked == "after the start":
        operator.ask(A, X)
        operator.ask(B, X)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.held() == {}
    for guest_id in (A, B):
        assert B in allocated(operator, guest_id)[1]
        assert A in allocated(operator, guest_id)[1], "each learns of the other"
    operator.carried.config_maps[A] = X if last == A else ""
    operator.carried.services[B] = X if last == B else ""
    await operator.pass_time(60)
    assert operator.held() == {NAME: last}


async def test_the_former_owners_guest_comes_before_another_that_names_the_address_at_once() -> None:
    operator = await serving(A, B)
    operator.give_up(A)
    await operator.settle()
    operator.ask(B, X)
    operator.ask(A, X, name="from-git")
    await operator.settle()
    assert operator.held() == {NAME: A}
    await operator.pass_time(2 * QUARANTINE)
    assert operator.held() == {NAME: A}
    assert allocated(operator, B)[0] == "AddressInUse"


async def test_an_admin_may_say_that_the_claim_of_another_guest_is_wrong() -> None:
    operator = await serving(A, B)
    operator = Watched(operator)
    operator.carried.services[B] = X
    await operator.start()
    operator.give_up(A)
    await operator.settle()
    operator.ask(A, X, name="from-git")
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.held() == {}
    assert B in allocated(operator, A, "from-git")[1]
    key = (FLOATING_IPS.plural, A, "from-git")
    found = operator.memory.objects[key]
    annotations = {**found["metadata"]["annotations"], names.ANNOTATION_IGNORE_CLAIM: B}
    operator.memory.listeners.remove(operator.judge)  # The admin knows better.
    operator.memory.put(key, {**found, "metadata": {**found["metadata"], "annotations": annotations}})
    await operator.settle()
    assert operator.held() == {NAME: A}


@pytest.mark.parametrize("silent", [A, B])
async def test_while_one_of_them_cannot_be_asked_nobody_gets_it(silent: str) -> None:
    operator = await serving(A, B)
    operator.carried.services[B], operator.carried.config_maps[A] = X, ""
    operator = Watched(operator)
    await operator.start()
    operator.ask(B, X)
    operator.give_up(A)
    await operator.settle()
    operator.carried.silent.add(silent)
    await operator.pass_time(2 * QUARANTINE)
    assert (operator.held(), operator.quarantined()) == ({}, {NAME})
    operator.carried.silent.clear()
    await operator.pass_time(60)
    assert operator.held() == {NAME: B}


async def test_a_guest_that_cannot_be_asked_and_was_never_seen_with_it_keeps_it_from_nobody() -> None:
    operator = await serving(A, B, C)
    operator.carried.config_maps[A] = ""
    operator.ask(C, X)
    await operator.pass_time(10)
    operator.ask(B, X)
    operator.carried.silent.add(B)
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.held() == {NAME: C}


@pytest.mark.parametrize("then", ["nobody", C])
async def test_a_carrier_that_leaves_between_the_look_and_the_swap_opens_no_door_to_others(then: str) -> None:
    """What the look found holds for the reservation as it was then, and for a moment."""
    operator = await serving(A, B, C)
    operator.carried.services[B], operator.carried.config_maps[A] = X, ""
    operator = Watched(operator)
    await operator.start()
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    operator.carried.services[B] = ""
    operator.carried.services[C] = X if then == C else ""
    operator.ask(C, X)
    await operator.settle()
    await operator.pass_time(60)
    operator.ask(B, X)
    await operator.settle()
    await operator.pass_time(60)
    assert operator.held() == {NAME: C}


async def test_a_claim_from_beyond_the_range_keeps_no_address_from_others() -> None:
    operator = build(A, B, C)
    operator.add_range("far", "10.9.0.1-10.9.0.9")
    await operator.start()
    operator.ask(A, X)
    operator.ask(B, X)
    operator.ask_for_range(B, "far")
    await operator.settle()
    operator.carried.services[B] = X
    operator.memory.listeners.remove(operator.judge)
    operator.label_guest(B, net="far")
    operator.change_range(clusterSelector={"matchLabels": {"net": "near"}})
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert (operator.held(), operator.quarantined()) == ({}, set())


async def test_it_is_told_what_helps_where_the_guest_that_carries_it_names_it_later() -> None:
    operator = build(B, C)
    operator.reserve(X, A, until=operator.memory.now + timedelta(seconds=10))
    operator.carried.services[B] = X
    await operator.start()
    await operator.pass_time(60)
    operator.ask(C, X)
    await operator.settle()
    reason, message = allocated(operator, C)
    assert reason == "AddressQuarantined"
    assert f"in guest cluster {B}" in message
    assert "FloatingIP of that guest cluster" in message


async def test_a_guest_that_let_go_since_it_was_asked_is_asked_again_before_it_gets_the_address() -> None:
    """Its range was draining, and meanwhile another guest has it, which waited as well: no check was due."""
    operator = await serving(A, B, C)
    operator.carried.services[B], operator.carried.config_maps[A] = X, ""
    operator = Watched(operator)
    await operator.start()
    operator.ask(B, X)
    operator.ask(C, X)
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    operator.change_range(draining=True)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE + 5)
    operator.carried.services[B], operator.carried.services[C] = "", X
    await operator.pass_time(10)
    operator.change_range(draining=False)
    await operator.settle()
    await operator.pass_time(60)
    assert operator.held() == {NAME: C}


async def test_a_quarantine_that_ran_out_before_a_restart_ends_after_the_guests_were_looked_at() -> None:
    """Who carries the address without right is known only then."""
    operator = await serving(A, B)
    operator.give_up(A)
    await operator.settle()
    operator.carried.services[B], operator.carried.config_maps[A] = X, ""
    await operator.pass_time(QUARANTINE - 1)
    operator.memory.pass_time(HOUR)
    operator = Watched(operator)
    await operator.adopt()
    await operator.pass_time(60)
    assert operator.quarantined() == {NAME}
    await operator.look()
    operator.ask(B, X)
    await operator.pass_time(60)
    assert operator.held() == {NAME: B}
