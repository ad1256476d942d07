"""What the operator does: one story for each rule, told by the methods of the fleet in memory."""

from datetime import timedelta
from typing import Any

from tests.golden.fleet_story import FleetStory
from tests.harness.fleet import Fleet

A, B, C, D = "c-m-a", "c-m-b", "c-m-c", "c-m-d"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
QUARANTINE = 600
HOUR = 3600
DAY = 24 * HOUR
FLOATING_IPS, RANGES, CLUSTERS = "floatingips", "floatingipranges", "clusters"
WORKSPACE = "fleet-default"
RANGE_OF = "fiprange"


def make(
    fleet: Fleet,
    guest_id: str,
    name: str = "web",
    *,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> None:
    """Create a floating IP as a user does."""
    metadata = {"namespace": guest_id, "name": name, "annotations": annotations or {}}
    fleet.write((FLOATING_IPS, guest_id, name), {"metadata": metadata, "spec": spec})


async def serving(
    story: FleetStory, *guest_ids: str, asked: dict[str, str] | None = None, **spec: Any
) -> Any:
    """Have an operator with range "pool" and guests, each of which has a floating IP."""
    story.step(f"a range, and a floating IP of each of: {', '.join(guest_ids)}")
    fleet = story.fleet
    fleet.add_range(**spec)
    for guest_id in guest_ids:
        fleet.add_guest(guest_id)
    await fleet.start(leader_election=False)
    for guest_id in guest_ids:
        fleet.ask(guest_id, (asked or {}).get(guest_id, ""))
        await fleet.settle()
    return fleet


# Getting an address


async def first_allocation(story: FleetStory) -> None:
    """A floating IP without an address gets the lowest free one; a visit writes it to the ConfigMap of its guest."""
    fleet = await serving(story, A)
    story.step("its guest cluster is opted in, and visited")
    fleet.label_guest(A, **{"kube-vip": "true"})
    await fleet.pass_time(10)
    story.step("a second guest asks")
    fleet.add_guest(B)
    fleet.ask(B)
    await fleet.settle()
    await fleet.pass_time(5)


async def full_range(story: FleetStory) -> None:
    """A floating IP waits while its range is full, and is served when the range is extended."""
    fleet = await serving(story, A, B, iprange=f"{X}-{X}")
    story.step("the range is extended")
    fleet.change_range(iprange=f"{X}-{Y}")
    await fleet.settle()
    await fleet.pass_time(5)


async def refused_addresses(story: FleetStory) -> None:
    """Addresses outside of the range, excluded ones and texts that are no address are refused."""
    fleet = await serving(story, A, B, C, asked={A: "192.0.2.1", B: Y, C: "no address"}, exclude=[Y])
    await fleet.pass_time(5)


async def range_choice(story: FleetStory) -> None:
    """Without a name the range is chosen: the selector counts, and a full range is passed over."""
    story.step("ranges of selectors net=blue (one address and more) and of no selector, and guests")
    fleet = story.fleet
    blue = {"matchLabels": {"net": "blue"}}
    fleet.add_range("a-small", f"{X}-{X}", clusterSelector=blue)
    fleet.add_range("b-large", "10.0.1.10-10.0.1.20", clusterSelector=blue)
    fleet.add_range("other", "10.0.2.10-10.0.2.20")
    for guest_id in (A, B, C):
        fleet.add_guest(guest_id)
    fleet.label_guest(A, net="blue")
    fleet.label_guest(B, net="blue")
    await fleet.start(leader_election=False)
    for guest_id in (A, B, C):
        make(fleet, guest_id)
        await fleet.settle()
    story.step("C is labelled, too")
    fleet.label_guest(C, net="blue")
    await fleet.settle()
    await fleet.pass_time(60)


async def unknown_range(story: FleetStory) -> None:
    """A floating IP whose range is missing waits for it."""
    story.step('A names range "later", which is missing')
    fleet = story.fleet
    fleet.add_guest(A)
    await fleet.start(leader_election=False)
    make(fleet, A, annotations={RANGE_OF: "later"})
    await fleet.settle()
    story.step("the range is created")
    fleet.add_range("later", f"{X}-{Y}")
    await fleet.settle()
    await fleet.pass_time(5)


async def new_guest(story: FleetStory) -> None:
    """A guest cluster of a matching range gets its first floating IP, and keeps its word that it wants none."""
    story.step("a range for net=blue; guests A (blue), B (blue, wants none) and C (no label)")
    fleet = story.fleet
    fleet.add_range(clusterSelector={"matchLabels": {"net": "blue"}})
    for guest_id in (A, B, C):
        fleet.add_guest(guest_id)
    for guest_id in (A, C):
        fleet.annotate((CLUSTERS, WORKSPACE, f"cluster-{guest_id}"), {}, is_all=True)
    fleet.label_guest(A, net="blue")
    fleet.label_guest(B, net="blue")
    await fleet.start(leader_election=False)
    await fleet.pass_time(5)


async def families(story: FleetStory) -> None:
    """Dual stack: preferred and required families, both or neither, and a second family that comes later."""
    story.step("a range of both families and one of IPv4, and four policies")
    fleet = story.fleet
    fleet.add_range(iprange="10.0.0.10-10.0.0.19,fd00::10-fd00::19")
    fleet.add_range("four", "10.4.0.10-10.4.0.19")
    wishes: dict[str, dict[str, Any]] = {
        A: {"ipFamilyPolicy": "PreferDualStack"},
        B: {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]},
        C: {"ipFamilies": ["IPv6"]},
    }
    for guest_id, spec in wishes.items():
        fleet.add_guest(guest_id)
        make(fleet, guest_id, annotations={RANGE_OF: "pool"}, **spec)
    fleet.add_guest(D)
    make(fleet, D, annotations={RANGE_OF: "four"}, ipFamilyPolicy="RequireDualStack")
    await fleet.start(leader_election=False)
    story.step('range "four" gets IPv6 addresses; A becomes single stack')
    fleet.change_range("four", iprange="10.4.0.10-10.4.0.19,fd04::10-fd04::19")
    fleet.change(A, ipFamilyPolicy="SingleStack", ipaddress=X)
    await fleet.settle()
    await fleet.pass_time(QUARANTINE * 2)


async def several_floating_ips(story: FleetStory) -> None:
    """Several floating IPs of one guest each have an address of their own; `clustername` must be the guest's."""
    fleet = await serving(story, A)
    story.step("two more of A: one names its cluster, one names another")
    make(fleet, A, "api", annotations={RANGE_OF: "pool", "clustername": f"cluster-{A}"})
    make(fleet, A, "wrong", annotations={RANGE_OF: "pool", "clustername": f"cluster-{B}"})
    await fleet.settle()
    await fleet.pass_time(5)


# Ranges


async def shrunk_range(story: FleetStory) -> None:
    """A range that shrinks moves no address: it is counted as out of range, and serves nobody else later."""
    fleet = await serving(story, A, B)
    story.step("the range shrinks to what B does not have")
    fleet.change_range(iprange=f"{X}-{X}")
    await fleet.settle()
    await fleet.pass_time(5)
    story.step("B is deleted, and its quarantine ends; C asks for its address")
    fleet.give_up(B)
    await fleet.settle()
    await fleet.pass_time(2 * QUARANTINE)
    fleet.add_guest(C)
    fleet.ask(C, Y)
    await fleet.settle()


async def draining_range(story: FleetStory) -> None:
    """A range that is drained allocates nothing and takes nothing away."""
    fleet = await serving(story, A)
    story.step("the range is drained, and B asks")
    fleet.change_range(draining=True)
    fleet.add_guest(B)
    fleet.ask(B)
    await fleet.settle()
    await fleet.pass_time(5)
    story.step("it is no longer drained")
    fleet.change_range(draining=False)
    await fleet.settle()
    await fleet.pass_time(5)


async def invalid_range(story: FleetStory) -> None:
    """A range whose text cannot be read serves nobody, keeps who is there, and recovers."""
    fleet = await serving(story, A)
    story.step("the range becomes unreadable, and B asks")
    fleet.change_range(iprange="10.0.0.10-nonsense")
    fleet.add_guest(B)
    fleet.ask(B)
    await fleet.settle()
    await fleet.pass_time(5)
    story.step("DHCP is no range")
    fleet.change_range(iprange="0.0.0.0/32")
    await fleet.settle()
    await fleet.pass_time(5)
    story.step("it is repaired, as a CIDR with host bits")
    fleet.change_range(iprange="10.0.0.10/28")
    await fleet.settle()
    await fleet.pass_time(5)


async def overlapping_ranges(story: FleetStory) -> None:
    """Of two ranges that overlap in one space the younger serves only what lies outside; another space is free."""
    story.step("two ranges that overlap, and one in another space")
    fleet = story.fleet
    fleet.add_range("old", "10.0.0.10-10.0.0.12")
    await fleet.pass_time(60)
    fleet.add_range("young", "10.0.0.11-10.0.0.14")
    fleet.add_range("lab", "10.0.0.10-10.0.0.14", addressSpace="lab")
    for guest_id, name in ((A, "young"), (B, "old"), (C, "lab")):
        fleet.add_guest(guest_id)
        make(fleet, guest_id, annotations={RANGE_OF: name})
    await fleet.start(leader_election=False)
    await fleet.pass_time(5)
    story.step("the older one is deleted")
    fleet.memory.remove((RANGES, "", "old"))
    await fleet.settle()
    await fleet.pass_time(5)


async def search_order(story: FleetStory) -> None:
    """Highest first, end addresses and .0/.255 left out as the range says."""
    story.step("three ranges of 10.x.0.0/30, each searched in its way")
    fleet = story.fleet
    fleet.add_range("down", "10.1.0.0/29", searchOrder="desc")
    fleet.add_range("all", "10.2.0.0/29", skipEndIPs=False, avoidBuggyIPs=False)
    fleet.add_range("ends", "10.3.0.0/29", skipEndIPs=False)
    for guest_id, name in ((A, "down"), (B, "all"), (C, "ends")):
        fleet.add_guest(guest_id)
        make(fleet, guest_id, annotations={RANGE_OF: name})
    await fleet.start(leader_election=False)
    await fleet.pass_time(5)


async def limited_ranges(story: FleetStory) -> None:
    """A range may serve only the guests that it would be chosen for, and each guest with so many addresses."""
    story.step("A asks a range of other guests in vain, and gets one of two from a range with a limit")
    fleet = story.fleet
    blue = {"matchLabels": {"net": "blue"}}
    fleet.add_range("matching", "10.1.0.10-10.1.0.13", clusterSelector=blue, restrictToMatching=True)
    fleet.add_range("one-each", "10.4.0.10-10.4.0.13", maxPerGuest=1)
    fleet.add_guest(A)
    await fleet.start(leader_election=False)
    for name in ("matching", "one-each", "one-each-2"):
        make(fleet, A, name, annotations={RANGE_OF: name.removesuffix("-2")})
        await fleet.settle()
    await fleet.pass_time(5)
    story.step("A is labelled, and the limit is raised")
    fleet.label_guest(A, net="blue")
    fleet.change_range("one-each", maxPerGuest=2)
    await fleet.settle()
    await fleet.pass_time(5)


async def deleted_range(story: FleetStory) -> None:
    """Reservations outlive their range, and one of the same name finds them."""
    fleet = await serving(story, A)
    story.step("the range is deleted, and B asks")
    fleet.memory.remove((RANGES, "", "pool"))
    fleet.add_guest(B)
    fleet.ask(B)
    await fleet.settle()
    story.step("it is created again")
    fleet.add_range()
    await fleet.settle()
    await fleet.pass_time(5)


# Letting go


async def deleted_and_remade(story: FleetStory) -> None:
    """A floating IP that is deleted and made again gets its address back during the quarantine, others do not."""
    fleet = await serving(story, A)
    story.step("A is deleted")
    fleet.give_up(A)
    await fleet.settle()
    await fleet.pass_time(5)
    story.step("B asks")
    fleet.add_guest(B)
    fleet.ask(B)
    await fleet.settle()
    story.step("A is made again")
    fleet.ask(A)
    await fleet.settle()
    await fleet.pass_time(5)


async def quarantine_end(story: FleetStory) -> None:
    """A quarantine ends after its time, and only when the guest does not carry the address any more."""
    fleet = await serving(story, A, quarantineSeconds=120)
    fleet.guests[A].add_service(X)
    story.step("A is deleted, a Service of its guest still carries the address")
    fleet.give_up(A)
    await fleet.settle()
    story.step("the time of the quarantine is over")
    await fleet.pass_time(QUARANTINE)
    story.step("the guest carries it no longer")
    fleet.guests[A].remove_service()
    await fleet.pass_time(QUARANTINE)


async def claim_during_quarantine(story: FleetStory) -> None:
    """A static request for a quarantined address waits for its end and gets it; the same guest gets it at once."""
    fleet = await serving(story, A)
    story.step("A is deleted, and B asks for its address by name")
    fleet.give_up(A)
    await fleet.settle()
    fleet.add_guest(B)
    fleet.ask(B, X)
    await fleet.settle()
    story.step("the quarantine ends")
    await fleet.pass_time(2 * QUARANTINE)
    story.step("B is deleted; another floating IP of guest B asks for the address by name")
    fleet.give_up(B)
    await fleet.settle()
    make(fleet, B, "other", annotations={RANGE_OF: "pool"}, ipaddress=X)
    await fleet.settle()


async def silent_guest(story: FleetStory) -> None:
    """While a guest cannot be asked, an address that it may use stays in quarantine."""
    fleet = await serving(story, A)
    fleet.guests[A].silent = True
    story.step("A is deleted while its guest cannot be asked, and hours pass")
    fleet.give_up(A)
    await fleet.settle()
    await fleet.pass_time(2 * HOUR)
    story.step("the guest answers again")
    fleet.guests[A].silent = False
    await fleet.pass_time(HOUR)


async def removed_guest(story: FleetStory) -> None:
    """A guest that leaves Rancher keeps nobody from its address; an imported one is given a day."""
    story.step("a guest of Rancher's and an imported one, each with an address")
    fleet = story.fleet
    fleet.add_range(iprange=f"{X}-{Y}")
    fleet.add_guest(A)
    fleet.add_guest(B, imported=True)
    await fleet.start(leader_election=False)
    for guest_id in (A, B):
        fleet.ask(guest_id)
        await fleet.settle()
    story.step("both leave, with their floating IPs; neither can be asked")
    fleet.guests[A].silent = fleet.guests[B].silent = True
    for guest_id in (A, B):
        fleet.give_up(guest_id)
        fleet.remove_guest(guest_id)
    await fleet.settle()
    story.step("the quarantine ends")
    await fleet.pass_time(2 * QUARANTINE)
    story.step("a day passes")
    fleet.jump(DAY)
    await fleet.pass_time(HOUR)


async def reservation_deleted(story: FleetStory) -> None:
    """A reservation that an admin deletes is made again while its floating IP lives; a quarantined one is free then."""
    fleet = await serving(story, A, B)
    story.step("the reservation of A is deleted")
    fleet.remove_reservation(f"default.{X}")
    await fleet.settle()
    story.step("B is deleted, and so is what is in quarantine then; C asks")
    fleet.give_up(B)
    await fleet.settle()
    fleet.remove_reservation(f"default.{Y}")
    await fleet.pass_time(QUARANTINE)
    fleet.add_guest(C)
    fleet.ask(C)
    await fleet.settle()
    await fleet.pass_time(5)


# Changes of a wish


async def moves(story: FleetStory) -> None:
    """Another address is claimed before the old one is given up; what cannot be had leaves the old one in place."""
    fleet = await serving(story, A, B)
    story.step("A asks for a free address")
    fleet.ask_for_another(A, Z)
    await fleet.pass_time(15)
    story.step("A asks for the address of B")
    fleet.ask_for_another(A, Y)
    await fleet.settle()
    story.step("A asks for one that no range has")
    fleet.ask_for_another(A, "192.0.2.1")
    await fleet.settle()
    await fleet.pass_time(2 * QUARANTINE)


async def another_range(story: FleetStory) -> None:
    """A floating IP that names another range moves there, if it can; into another space, too."""
    fleet = await serving(story, A, B)
    story.step('A is sent to range "other" with an empty spec')
    fleet.add_range("other", "10.7.0.10-10.7.0.13")
    fleet.ask_for_range(A, "other")
    fleet.ask_for_another(A, "")
    await fleet.pass_time(15)
    story.step("B is moved to another space, where its own address is free")
    fleet.move_to_space(B, iprange="10.0.0.10-10.0.0.13")
    await fleet.pass_time(15)
    story.step('A is sent to range "missing"')
    fleet.ask_for_range(A, "missing")
    await fleet.settle()
    await fleet.pass_time(2 * QUARANTINE)


async def created_again(story: FleetStory) -> None:
    """A floating IP of another uid (a backup was restored) takes over what its name holds."""
    fleet = await serving(story, A)
    story.step("the operator stops; the floating IP is deleted and created again, and the operator starts")
    await fleet.stop()
    fleet.give_up(A)
    fleet.ask(A)
    await fleet.start(leader_election=False)


# Starts, and several operators


async def duplicate_at_start(story: FleetStory) -> None:
    """Of two floating IPs with one address the older keeps it; the younger is told who holds it."""
    story.step("A and B both come with one address, and nobody has a reservation")
    fleet = story.fleet
    fleet.add_range()
    fleet.add_guest(A)
    fleet.add_guest(B)
    fleet.ask(B, has=X)
    await fleet.pass_time(60)
    fleet.ask(A, has=X)
    await fleet.start(leader_election=False)
    await fleet.pass_time(5)
    story.step("B is deleted")
    fleet.give_up(B)
    await fleet.settle()
    await fleet.pass_time(2 * QUARANTINE)


async def adopted_addresses(story: FleetStory) -> None:
    """What the predecessor left is adopted: an address outside of the range shows as out of range."""
    story.step("floating IPs with an address and no reservation, one of them outside of the range")
    fleet = story.fleet
    fleet.add_range()
    for guest_id, address in ((A, "10.9.0.1"), (B, Y)):
        fleet.add_guest(guest_id)
        fleet.ask(guest_id, has=address)
    await fleet.start(leader_election=False)
    await fleet.pass_time(5)


async def expired_reservation_of_nobody(story: FleetStory) -> None:
    """A quarantine that a restored backup brought back ends by itself, as a held one without owner is quarantined."""
    story.step("a quarantine of A that ends in a minute, and a held reservation of B that has no floating IP")
    fleet = story.fleet
    fleet.add_range()
    fleet.add_guest(A)
    fleet.add_guest(B)
    fleet.reserve(X, A, until=fleet.now + timedelta(seconds=60), before=C)
    fleet.reserve(Y, B)
    await fleet.start(leader_election=False)
    story.step("half an hour passes")
    await fleet.pass_time(HOUR / 2)


async def no_new_floating_ips(story: FleetStory) -> None:
    """One option stops floating IPs for guests that have none."""
    story.step("a range for all guests, and guest A that is served")
    fleet = story.fleet
    fleet.add_range(clusterSelector={"matchLabels": {}})
    fleet.add_guest(A, is_served=True)
    await fleet.start(leader_election=False)
    story.step("the option is off, the floating IP of A is deleted, and guest B comes")
    fleet.set_options(createFloatingIPs="false")
    await fleet.pass_time(5)
    fleet.give_up(A, f"cluster-{A}-kubevip")
    fleet.add_guest(B, is_served=True)
    await fleet.settle()
    story.step("the option is on again")
    fleet.set_options(createFloatingIPs="true")
    await fleet.pass_time(15)


async def new_guest_that_is_not_connected(story: FleetStory) -> None:
    """A new guest is waited for; one that is not connected after an hour is disconnected."""
    story.step("a range of a Harvester cluster that Rancher does not have, and guest A")
    fleet = story.fleet
    fleet.add_range(harvester="nowhere")
    fleet.add_guest(A, connected=False)
    fleet.ask(A)
    await fleet.start(leader_election=False)
    story.step("a pass after a minute")
    await fleet.pass_time(60)
    story.step("a pass after more than an hour")
    await fleet.pass_time(HOUR + 600)


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
