"""What the operator does: one story for each rule, told by the methods of the in-memory operator."""

from datetime import timedelta
from typing import Any

from tests.golden.story import Story
from tests.harness.small_operator import SmallOperator

A, B, C, D = "c-m-a", "c-m-b", "c-m-c", "c-m-d"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
QUARANTINE = 600
HOUR = 3600
DAY = 24 * HOUR
FLOATING_IPS, RANGES, CLUSTERS = "floatingips", "floatingipranges", "clusters"
WORKSPACE = "fleet-default"
RANGE_OF = "fiprange"


def make(
    operator: SmallOperator,
    guest_id: str,
    name: str = "web",
    *,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> None:
    """Create a floating IP as a user does."""
    metadata = {"namespace": guest_id, "name": name, "annotations": annotations or {}}
    operator.memory.put((FLOATING_IPS, guest_id, name), {"metadata": metadata, "spec": spec})


def change(operator: SmallOperator, guest_id: str, name: str = "web", **spec: Any) -> None:
    """Change the spec of a floating IP as a user does."""
    key = (FLOATING_IPS, guest_id, name)
    found = operator.memory.objects[key]
    operator.memory.put(key, {**found, "spec": {**found["spec"], **spec}})


def annotate(operator: SmallOperator, key: tuple[str, str, str], **annotations: str) -> None:
    found = operator.memory.objects[key]
    operator.memory.put(key, {**found, "metadata": {**found["metadata"], "annotations": annotations}})


async def serving(story: Story, *guest_ids: str, asked: dict[str, str] | None = None, **spec: Any) -> Any:
    """Have an operator with range "pool" and guests, each of which has a floating IP."""
    story.step(f"a range, and a floating IP of each of: {', '.join(guest_ids)}")
    operator = story.operator()
    operator.add_range(**spec)
    for guest_id in guest_ids:
        operator.add_guest(guest_id)
    await operator.start()
    for guest_id in guest_ids:
        operator.ask(guest_id, (asked or {}).get(guest_id, ""))
        await operator.settle()
    return operator


# Getting an address


async def first_allocation(story: Story) -> None:
    """A floating IP without an address gets the lowest free one; a visit writes it to the ConfigMap of its guest."""
    operator = await serving(story, A)
    story.step("its guest cluster is opted in, and visited")
    operator.label_guest(A, **{"kube-vip": "true"})
    await operator.pass_time(10)
    await operator.visit(A)
    story.step("a second guest asks")
    operator.add_guest(B)
    operator.ask(B)
    await operator.settle()
    await operator.pass_time(5)


async def full_range(story: Story) -> None:
    """A floating IP waits while its range is full, and is served when the range is extended."""
    operator = await serving(story, A, B, iprange=f"{X}-{X}")
    story.step("the range is extended")
    operator.change_range(iprange=f"{X}-{Y}")
    await operator.settle()
    await operator.pass_time(5)


async def refused_addresses(story: Story) -> None:
    """Addresses outside of the range, excluded ones and texts that are no address are refused."""
    operator = await serving(story, A, B, C, asked={A: "192.0.2.1", B: Y, C: "no address"}, exclude=[Y])
    await operator.pass_time(5)


async def range_choice(story: Story) -> None:
    """Without a name the range is chosen: the selector counts, and a full range is passed over."""
    story.step("ranges of selectors net=blue (one address and more) and of no selector, and guests")
    operator = story.operator()
    blue = {"matchLabels": {"net": "blue"}}
    operator.add_range("a-small", f"{X}-{X}", clusterSelector=blue)
    operator.add_range("b-large", "10.0.1.10-10.0.1.20", clusterSelector=blue)
    operator.add_range("other", "10.0.2.10-10.0.2.20")
    for guest_id in (A, B, C):
        operator.add_guest(guest_id)
    operator.label_guest(A, net="blue")
    operator.label_guest(B, net="blue")
    await operator.start()
    for guest_id in (A, B, C):
        make(operator, guest_id)
        await operator.settle()
    story.step("C is labelled, too")
    operator.label_guest(C, net="blue")
    await operator.settle()
    await operator.pass_time(60)


async def unknown_range(story: Story) -> None:
    """A floating IP whose range is missing waits for it."""
    story.step('A names range "later", which is missing')
    operator = story.operator()
    operator.add_guest(A)
    await operator.start()
    make(operator, A, annotations={RANGE_OF: "later"})
    await operator.settle()
    story.step("the range is created")
    operator.add_range("later", f"{X}-{Y}")
    await operator.settle()
    await operator.pass_time(5)


async def new_guest(story: Story) -> None:
    """A guest cluster of a matching range gets its first floating IP, and keeps its word that it wants none."""
    story.step("a range for net=blue; guests A (blue), B (blue, wants none) and C (no label)")
    operator = story.operator()
    operator.add_range(clusterSelector={"matchLabels": {"net": "blue"}})
    for guest_id in (A, B, C):
        operator.add_guest(guest_id)
    for guest_id in (A, C):
        annotate(operator, (CLUSTERS, WORKSPACE, f"cluster-{guest_id}"))
    operator.label_guest(A, net="blue")
    operator.label_guest(B, net="blue")
    await operator.start()
    await operator.pass_time(5)


async def families(story: Story) -> None:
    """Dual stack: preferred and required families, both or neither, and a second family that comes later."""
    story.step("a range of both families and one of IPv4, and four policies")
    operator = story.operator()
    operator.add_range(iprange="10.0.0.10-10.0.0.19,fd00::10-fd00::19")
    operator.add_range("four", "10.4.0.10-10.4.0.19")
    wishes: dict[str, dict[str, Any]] = {
        A: {"ipFamilyPolicy": "PreferDualStack"},
        B: {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]},
        C: {"ipFamilies": ["IPv6"]},
    }
    for guest_id, spec in wishes.items():
        operator.add_guest(guest_id)
        make(operator, guest_id, annotations={RANGE_OF: "pool"}, **spec)
    operator.add_guest(D)
    make(operator, D, annotations={RANGE_OF: "four"}, ipFamilyPolicy="RequireDualStack")
    await operator.start()
    story.step('range "four" gets IPv6 addresses; A becomes single stack')
    operator.change_range("four", iprange="10.4.0.10-10.4.0.19,fd04::10-fd04::19")
    change(operator, A, ipFamilyPolicy="SingleStack", ipaddress=X)
    await operator.settle()
    await operator.pass_time(QUARANTINE * 2)


async def several_floating_ips(story: Story) -> None:
    """Several floating IPs of one guest each have an address of their own; `clustername` must be the guest's."""
    operator = await serving(story, A)
    story.step("two more of A: one names its cluster, one names another")
    make(operator, A, "api", annotations={RANGE_OF: "pool", "clustername": f"cluster-{A}"})
    make(operator, A, "wrong", annotations={RANGE_OF: "pool", "clustername": f"cluster-{B}"})
    await operator.settle()
    await operator.pass_time(5)


# Ranges


async def shrunk_range(story: Story) -> None:
    """A range that shrinks moves no address: it is counted as out of range, and serves nobody else later."""
    operator = await serving(story, A, B)
    story.step("the range shrinks to what B does not have")
    operator.change_range(iprange=f"{X}-{X}")
    await operator.settle()
    await operator.pass_time(5)
    story.step("B is deleted, and its quarantine ends; C asks for its address")
    operator.give_up(B)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    operator.add_guest(C)
    operator.ask(C, Y)
    await operator.settle()


async def draining_range(story: Story) -> None:
    """A range that is drained allocates nothing and takes nothing away."""
    operator = await serving(story, A)
    story.step("the range is drained, and B asks")
    operator.change_range(draining=True)
    operator.add_guest(B)
    operator.ask(B)
    await operator.settle()
    await operator.pass_time(5)
    story.step("it is no longer drained")
    operator.change_range(draining=False)
    await operator.settle()


async def invalid_range(story: Story) -> None:
    """A range whose text cannot be read serves nobody, keeps who is there, and recovers."""
    operator = await serving(story, A)
    story.step("the range becomes unreadable, and B asks")
    operator.change_range(iprange="10.0.0.10-nonsense")
    operator.add_guest(B)
    operator.ask(B)
    await operator.settle()
    await operator.pass_time(5)
    story.step("DHCP is no range")
    operator.change_range(iprange="0.0.0.0/32")
    await operator.settle()
    await operator.pass_time(5)
    story.step("it is repaired, as a CIDR with host bits")
    operator.change_range(iprange="10.0.0.10/28")
    await operator.settle()
    await operator.pass_time(5)


async def overlapping_ranges(story: Story) -> None:
    """Of two ranges that overlap in one space the younger serves only what lies outside; another space is free."""
    story.step("two ranges that overlap, and one in another space")
    operator = story.operator()
    operator.add_range("old", "10.0.0.10-10.0.0.12")
    operator.memory.pass_time(60)
    operator.add_range("young", "10.0.0.11-10.0.0.14")
    operator.add_range("lab", "10.0.0.10-10.0.0.14", addressSpace="lab")
    for guest_id, name in ((A, "young"), (B, "old"), (C, "lab")):
        operator.add_guest(guest_id)
        make(operator, guest_id, annotations={RANGE_OF: name})
    await operator.start()
    await operator.pass_time(5)
    story.step("the older one is deleted")
    operator.memory.remove((RANGES, "", "old"))
    await operator.settle()
    await operator.pass_time(5)


async def search_order(story: Story) -> None:
    """Highest first, end addresses and .0/.255 left out as the range says."""
    story.step("three ranges of 10.x.0.0/30, each searched in its way")
    operator = story.operator()
    operator.add_range("down", "10.1.0.0/29", searchOrder="desc")
    operator.add_range("all", "10.2.0.0/29", skipEndIPs=False, avoidBuggyIPs=False)
    operator.add_range("ends", "10.3.0.0/29", skipEndIPs=False)
    for guest_id, name in ((A, "down"), (B, "all"), (C, "ends")):
        operator.add_guest(guest_id)
        make(operator, guest_id, annotations={RANGE_OF: name})
    await operator.start()
    await operator.pass_time(5)


async def limited_ranges(story: Story) -> None:
    """A range may serve only the guests that it would be chosen for, and each guest with so many addresses."""
    story.step("A asks a range of other guests in vain, and gets one of two from a range with a limit")
    operator = story.operator()
    blue = {"matchLabels": {"net": "blue"}}
    operator.add_range("matching", "10.1.0.10-10.1.0.13", clusterSelector=blue, restrictToMatching=True)
    operator.add_range("one-each", "10.4.0.10-10.4.0.13", maxPerGuest=1)
    operator.add_guest(A)
    await operator.start()
    for name in ("matching", "one-each", "one-each-2"):
        make(operator, A, name, annotations={RANGE_OF: name.removesuffix("-2")})
        await operator.settle()
    await operator.pass_time(5)
    story.step("A is labelled, and the limit is raised")
    operator.label_guest(A, net="blue")
    operator.change_range("one-each", maxPerGuest=2)
    await operator.settle()
    await operator.pass_time(5)


async def deleted_range(story: Story) -> None:
    """Reservations outlive their range, and one of the same name finds them."""
    operator = await serving(story, A)
    story.step("the range is deleted, and B asks")
    operator.memory.remove((RANGES, "", "pool"))
    operator.add_guest(B)
    operator.ask(B)
    await operator.settle()
    story.step("it is created again")
    operator.add_range()
    await operator.settle()
    await operator.pass_time(5)


# Letting go


async def deleted_and_remade(story: Story) -> None:
    """A floating IP that is deleted and made again gets its address back during the quarantine, others do not."""
    operator = await serving(story, A)
    story.step("A is deleted")
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(5)
    story.step("B asks")
    operator.add_guest(B)
    operator.ask(B)
    await operator.settle()
    story.step("A is made again")
    operator.ask(A)
    await operator.settle()
    await operator.pass_time(5)


async def quarantine_end(story: Story) -> None:
    """A quarantine ends after its time, and only when the guest does not carry the address any more."""
    operator = await serving(story, A, quarantineSeconds=120)
    operator.carried.services[A] = X
    story.step("A is deleted, a Service of its guest still carries the address")
    operator.give_up(A)
    await operator.settle()
    story.step("the time of the quarantine is over")
    await operator.pass_time(QUARANTINE)
    story.step("the guest carries it in its ConfigMap only")
    operator.carried.services.clear()
    operator.carried.config_maps[A] = f"{X}/32"
    await operator.pass_time(QUARANTINE)
    story.step("the guest carries it no longer")
    operator.carried.config_maps.clear()
    await operator.pass_time(QUARANTINE)


async def claim_during_quarantine(story: Story) -> None:
    """A static request for a quarantined address waits for its end and gets it; the same guest gets it at once."""
    operator = await serving(story, A)
    story.step("A is deleted, and B asks for its address by name")
    operator.give_up(A)
    await operator.settle()
    operator.add_guest(B)
    operator.ask(B, X)
    await operator.settle()
    story.step("the quarantine ends")
    await operator.pass_time(2 * QUARANTINE)
    story.step("B is deleted; another floating IP of guest B asks for the address by name")
    operator.give_up(B)
    await operator.settle()
    make(operator, B, "other", annotations={RANGE_OF: "pool"}, ipaddress=X)
    await operator.settle()


async def silent_guest(story: Story) -> None:
    """While a guest cannot be asked, an address that it may use stays in quarantine."""
    operator = await serving(story, A)
    operator.carried.silent.add(A)
    story.step("A is deleted while its guest cannot be asked, and a day passes")
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(DAY)
    story.step("the guest answers again")
    operator.carried.silent.clear()
    await operator.pass_time(2 * HOUR)


async def removed_guest(story: Story) -> None:
    """A guest that leaves Rancher keeps nobody from its address; an imported one is given a day."""
    story.step("a guest of Rancher's and an imported one, each with an address")
    operator = story.operator()
    operator.add_range(iprange=f"{X}-{Y}")
    operator.add_guest(A)
    operator.add_guest(B, imported=True)
    await operator.start()
    for guest_id in (A, B):
        operator.ask(guest_id)
        await operator.settle()
    story.step("both leave, with their floating IPs; neither can be asked")
    operator.carried.silent.update((A, B))
    for guest_id in (A, B):
        operator.give_up(guest_id)
        operator.remove_guest(guest_id)
    await operator.settle()
    story.step("the quarantine ends")
    await operator.pass_time(2 * QUARANTINE)
    story.step("a day passes")
    await operator.pass_time(DAY + HOUR)


async def reservation_deleted(story: Story) -> None:
    """A reservation that an admin deletes is made again while its floating IP lives; a quarantined one is free then."""
    operator = await serving(story, A, B)
    story.step("the reservation of A is deleted")
    operator.remove_reservation(f"default.{X}")
    await operator.settle()
    story.step("B is deleted, and so is what is in quarantine then; C asks")
    operator.give_up(B)
    await operator.settle()
    operator.remove_reservation(f"default.{Y}")
    await operator.settle()
    operator.add_guest(C)
    operator.ask(C)
    await operator.settle()
    await operator.pass_time(5)


# Changes of a wish


async def moves(story: Story) -> None:
    """Another address is claimed before the old one is given up; what cannot be had leaves the old one in place."""
    operator = await serving(story, A, B)
    story.step("A asks for a free address")
    operator.ask_for_another(A, Z)
    await operator.settle()
    story.step("A asks for the address of B")
    operator.ask_for_another(A, Y)
    await operator.settle()
    story.step("A asks for one that no range has")
    operator.ask_for_another(A, "192.0.2.1")
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)


async def another_range(story: Story) -> None:
    """A floating IP that names another range moves there, if it can; into another space, too."""
    operator = await serving(story, A, B)
    story.step('A is sent to range "other" with an empty spec')
    operator.add_range("other", "10.7.0.10-10.7.0.13")
    operator.ask_for_range(A, "other")
    operator.ask_for_another(A, "")
    await operator.settle()
    story.step("B is moved to another space, where its own address is free")
    operator.move_to_space(B, iprange="10.0.0.10-10.0.0.13")
    await operator.settle()
    story.step('A is sent to range "missing"')
    operator.ask_for_range(A, "missing")
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)


async def created_again(story: Story) -> None:
    """A floating IP of another uid (a backup was restored) takes over what its name holds."""
    operator = await serving(story, A)
    story.step("the operator stops; the floating IP is deleted and created again, and the operator starts")
    operator.give_up(A)
    operator.ask(A)
    again = story.operator(operator)
    await again.start()
    await again.pass_time(5)


# Starts, and several operators


async def duplicate_at_start(story: Story) -> None:
    """Of two floating IPs with one address the older keeps it; the younger is told who holds it."""
    story.step("A and B both come with one address, and nobody has a reservation")
    operator = story.operator()
    operator.add_range()
    operator.add_guest(A)
    operator.add_guest(B)
    operator.ask(B, has=X)
    operator.memory.pass_time(60)
    operator.ask(A, has=X)
    await operator.start()
    await operator.pass_time(5)
    story.step("B is deleted")
    operator.give_up(B)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)


async def adopted_addresses(story: Story) -> None:
    """What the predecessor left is adopted: an address outside of the range shows as out of range."""
    story.step("floating IPs with an address and no reservation, one of them outside of the range")
    operator = story.operator()
    operator.add_range()
    for guest_id, address in ((A, "10.9.0.1"), (B, Y)):
        operator.add_guest(guest_id)
        operator.ask(guest_id, has=address)
    await operator.start()
    await operator.pass_time(5)


async def expired_reservation_of_nobody(story: Story) -> None:
    """A quarantine that a restored backup brought back ends by itself, as a held one without owner is quarantined."""
    story.step("a quarantine of A that ends in a minute, and a held reservation of B that has no floating IP")
    operator = story.operator()
    operator.add_range()
    operator.add_guest(A)
    operator.add_guest(B)
    operator.reserve(X, A, until=operator.memory.now + timedelta(seconds=60), before=C)
    operator.reserve(Y, B)
    await operator.start()
    story.step("half an hour passes")
    await operator.pass_time(HOUR / 2)


async def no_new_floating_ips(story: Story) -> None:
    """One option stops floating IPs for guests that have none."""
    story.step("a range for all guests, and guest A that is served")
    operator = story.operator()
    operator.add_range(clusterSelector={"matchLabels": {}})
    operator.add_guest(A, is_served=True)
    await operator.start()
    story.step("the option is off, the floating IP of A is deleted, and guest B comes")
    await operator.set_options(createFloatingIPs="false")
    operator.give_up(A, f"cluster-{A}-kubevip")
    operator.add_guest(B, is_served=True)
    await operator.settle()
    story.step("the option is on again")
    await operator.set_options(createFloatingIPs="true")


async def new_guest_that_is_not_connected(story: Story) -> None:
    """A new guest is waited for; one that is not connected after an hour is disconnected."""
    story.step("a range of a Harvester cluster that Rancher does not have, and guest A")
    operator = story.operator()
    operator.add_range(harvester="nowhere")
    operator.add_guest(A, connected=False)
    operator.ask(A)
    await operator.start()
    story.step("a pass after a minute")
    await operator.pass_time(60)
    await operator.visit(A)
    await operator.visit(A)
    story.step("a pass after more than an hour")
    await operator.pass_time(HOUR)
    await operator.visit(A)


STORIES = (
    first_allocation,
    full_range,
    refused_addresses,
    range_choice,
    unknown_range,
    new_guest,
    families,
    several_floating_ips,
    shrunk_range,
    draining_range,
    invalid_range,
    overlapping_ranges,
    search_order,
    limited_ranges,
    deleted_range,
    deleted_and_remade,
    quarantine_end,
    claim_during_quarantine,
    silent_guest,
    removed_guest,
    reservation_deleted,
    moves,
    another_range,
    created_again,
    duplicate_at_start,
    adopted_addresses,
    expired_reservation_of_nobody,
    no_new_floating_ips,
    new_guest_that_is_not_connected,
)
