"""Both families or neither: nothing is begun in vain, and nothing is lost that its owner had before."""

from fipop.kube.resources import FLOATING_IPS
from tests.unit.operator.small_operator import SmallOperator

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
V6, V6_NAME = "fd00::10", "default.fd000000000000000000000000000010"
HOUR = 3600


async def test_nothing_is_begun_where_another_has_one_address_from_the_space_that_its_range_was_of() -> None:
    """What was begun and given back woke its owner, who began anew, without end."""
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.13,fd00::10-fd00::13")
    await operator.start()
    operator.ask(A, V6)
    await operator.settle()
    operator.ask_for_another(A, "fd00::99")
    await operator.settle()
    operator.change_range(addressSpace="lab")
    await operator.settle()
    assert operator.held() == {V6_NAME: A}
    operator.ask(B, f"{Y},{V6}")
    await operator.settle()
    assert operator.held() == {V6_NAME: A}
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(HOUR)
    assert operator.held() == {f"lab.{Y}": B, V6_NAME.replace("default", "lab"): B}
