"""Why a floating IP has not all that it asks for."""

from fipop.operator.addresses.values import Blocker as Blocker
from fipop.operator.addresses.values import blocker_of as blocker_of
from fipop.operator.addresses.values import describe_conflicting_owner as describe_conflicting_owner
from fipop.operator.addresses.values import describe_holder as describe_holder
