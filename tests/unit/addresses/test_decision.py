"""What a decision says of the addresses that a floating IP has."""

from fipop.addresses.claims import Claim
from fipop.addresses.decision import Decision
from fipop.addresses.request import Blocker
from fipop.api.objects import Owner, Requested
from fipop.ipam.addresses import parse_address

OWNER = Owner(namespace="c-m-1", name="web", uid="u-1", cluster="demo", workspace="fleet-default")


def claim(address: str) -> Claim:
    return Claim(
        space="default",
        address=parse_address(address),
        range="pool",
        owner=OWNER,
        requested=Requested.DYNAMIC,
    )


def test_what_is_kept_is_not_new_however_often_it_is_kept() -> None:
    old, new = claim("10.0.0.1"), claim("10.0.0.2")
    decision = Decision(holds=(new,), had=(old,), blockers=(Blocker(reason="RangeFull", message="full"),))
    kept = decision.keep()
    assert decision.new_ranges == {"pool"}
    assert (kept.holds, kept.new_ranges, kept.blockers, kept.is_final) == ((old,), frozenset(), (), False)
    assert kept.keep() == kept
