"""The steps."""

from fipop.operator.addresses.next_step import Confirm as Confirm
from fipop.operator.addresses.next_step import MakeClaim as MakeClaim
from fipop.operator.addresses.next_step import ReadAgain as ReadAgain
from fipop.operator.addresses.next_step import Release as Release
from fipop.operator.addresses.next_step import Step as Step
from fipop.operator.addresses.next_step import Wait as Wait
from fipop.operator.addresses.next_step import WriteSpec as WriteSpec
from fipop.operator.addresses.next_step import WriteStatus as WriteStatus
