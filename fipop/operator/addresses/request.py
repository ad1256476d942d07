"""What a FloatingIP asks for."""

from fipop.operator.addresses.values import BOTH as BOTH
from fipop.operator.addresses.values import Request as Request
from fipop.operator.addresses.values import SpecError as SpecError
from fipop.operator.addresses.values import needs_every_family as needs_every_family
from fipop.operator.addresses.values import read_request as read_request
from fipop.operator.addresses.values import wanted_families as wanted_families


def in_order(request, addresses):  # type: ignore[no-untyped-def]
    from fipop.ipam.addresses import Family

    first = request.families[0] if request.families else Family.IPV4
    return tuple(
        addresses[family] for family in sorted(addresses, key=lambda family: (family != first, family))
    )
