"""What a new leader looks at first: who lacks something, and only after the gate opened those who have it all."""

from fipop.operator.queues import Key, Kind
from tests.harness.small_operator import SmallOperator

A, B = "c-m-a", "c-m-b"


async def test_who_has_all_he_asks_for_waits_until_the_gate_is_open() -> None:
    former = SmallOperator()
    former.add_range()
    await former.start()
    former.ask(A)
    await former.settle()

    operator = SmallOperator(former)
    operator.ask(B)
    operator.take_lead()
    queue = operator.manager.queues.objects.keys  # type: ignore[attr-defined] # a queue of the test's
    queue.clear()
    operator.manager.enqueue_unsettled()
    asked = {key for key in queue if key.kind is Kind.FLOATING_IP}
    assert asked == {Key(Kind.FLOATING_IP, B, "web")}
    assert {key.name for key in queue if key.kind is Kind.RANGE} == {"pool"}

    queue.clear()
    operator.manager.enqueue_settled()
    assert Key(Kind.FLOATING_IP, A, "web") in queue
    queue.clear()
    operator.manager.enqueue_settled()
    assert not queue, "the gate opens often, and those are looked at once"


def test_the_gate_opens_as_well_where_nothing_was_left_for_it() -> None:
    operator = SmallOperator()
    operator.take_lead()
    operator.manager.enqueue_settled()
    assert not operator.manager.queues.objects.keys  # type: ignore[attr-defined] # a queue of the test's
