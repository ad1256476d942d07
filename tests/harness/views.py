"""Views of a floating IP for decisions, as values: what a test does not say is as it is where all is well."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from fipop.api.models import FloatingIP, Owner, Reservation
from fipop.errors import AddressOutOfRangeError, IpamError, RangeFullError
from fipop.ipam.addresses import Address, Family, format_address, parse_address
from fipop.ipam.pool import parse_pool
from fipop.operator.addresses.allocation import RangeView
from fipop.operator.addresses.blockers import Blocker, describe_holder
from fipop.operator.addresses.guest_binding import GuestBinding
from fipop.operator.addresses.request import SpecError, read_request
from fipop.operator.addresses.view import View
from fipop.rancher.objects import parse_provisioning_cluster
from fipop.state.claims import Claim
from tests.harness.objects import NOW, floating_ip

POOL = "10.0.0.1-10.0.0.50,fd00::1-fd00::50"
BOUND = GuestBinding(
    cluster=parse_provisioning_cluster(
        {
            "metadata": {"name": "demo", "namespace": "fleet", "uid": "uid-demo", "resourceVersion": "1"},
            "spec": {"rkeConfig": {}},
            "status": {"clusterName": "c-m-1"},
        }
    )
)
OWNER = Owner(namespace="c-m-1", name="web", uid="uid-c-m-1-web", cluster="demo")


@dataclass
class FakeHolders:
    """Who has what, as a test says: `free` are the addresses to choose from, `others` what others hold by name."""

    free: list[str] = field(default_factory=lambda: ["10.0.0.1", "fd00::1"])
    others: dict[str, Reservation] = field(default_factory=dict)
    refused: dict[str, Blocker] = field(default_factory=dict)

    def choose(self, family: Family, _owner: Owner, range_name: str) -> Address:
        for text in self.free:
            if parse_address(text).family is family:
                return parse_address(text)
        raise RangeFullError(range_name=range_name, family=family.label)

    def refusal(self, claim: Claim, *, is_own: bool, beside: Collection[Claim] = ()) -> Blocker | None:  # noqa: ARG002
        return None if is_own else self.refused.get(format_address(claim.address))

    def holder(self, claim: Claim) -> Reservation | None:
        return self.others.get(claim.name)

    def describe(self, reservation: Reservation) -> Blocker:
        return describe_holder(reservation)


def range_view(name: str = "pool", text: str = POOL, *, space: str = "default", **fields: Any) -> RangeView:
    pool = parse_pool(text)

    def refuses(address: Address) -> IpamError | None:
        if address in pool:
            return None
        return AddressOutOfRangeError(
            address=format_address(address), range_name=name, pool_text=text, reason="is not in it"
        )

    known: dict[str, Any] = {"draining": False, "is_anothers": lambda _address: False}
    return RangeView(
        name=name, space=space, families=frozenset(pool.families), refuses=refuses, **(known | fields)
    )


def view_of(
    subject: FloatingIP | None = None,
    *own: Reservation,
    where: RangeView | Blocker | None = None,
    others: FakeHolders | None = None,
    denied: tuple[Reservation, ...] = (),
    **fields: Any,
) -> View:
    """Give a view of a floating IP, by default "web" of a known guest whose range serves everything."""
    subject = subject or floating_ip()
    try:
        request: Any = read_request(subject)
    except SpecError as error:
        request = where = Blocker(reason="InvalidSpec", message=str(error))
    known: dict[str, Any] = {
        "is_live": False,
        "is_inherited": False,
        "fresh": frozenset(each.name for each in own),
        "unsafe_for": {each.name: 0.0 for each in own},
        "binding": BOUND,
        "is_guest_known": True,
        "observation": None,
        "is_gate_open": True,
        "written": frozenset(),
        "write_backs": 0,
        "now": NOW,
    }
    return View(
        floating_ip=subject,
        own=own,
        request=request,
        range=where or range_view(),
        holders=others or FakeHolders(),
        denied={each.name: each for each in denied},
        **(known | fields),
    )
