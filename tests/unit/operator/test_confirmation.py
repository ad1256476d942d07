"""What waits until an administrator confirms its number: the rules one by one, and against a model of them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from fipop.operator.confirmation import Confirmation
from tests.harness.terms import FakeConfiguration

MOST = 2


class Withheld:
    """A Confirmation of objects that are numbers, of which MOST go on unconfirmed."""

    def __init__(self) -> None:
        self.configuration = FakeConfiguration()
        self.told: list[str] = []
        self.configuration.on_complaint = lambda _reason, message: self.told.append(message)
        self._confirmation = Confirmation(
            configuration=self.configuration,  # type: ignore[arg-type] # it has annotations, and takes complaints
            annotation="confirm",
            reason="Withheld",
            message="{count} wait.",
        )

    def annotate(self, value: str) -> None:
        """Set the annotation; "" removes it."""
        self.configuration.annotate("confirm", value)

    def ask(self, *objects: int) -> set[int]:
        found = self._confirmation.permitted(frozenset(objects), most=MOST)
        return {each for each in found if isinstance(each, int)}


def test_the_event_says_how_to_confirm_and_that_an_old_value_must_go_first() -> None:
    withheld = Withheld()
    assert withheld.ask(1, 2, 3) == set()
    assert withheld.ask(1, 2, 3) == set()
    assert withheld.told == ['3 wait. Check that, then set annotation confirm: "3" here.']
    assert withheld.configuration.complaints == ["Withheld"]
    withheld.annotate("3")
    assert withheld.ask(1, 2, 3) == {1, 2, 3}
    assert withheld.ask(4, 5, 6) == set()
    assert (
        withheld.told[1] == withheld.told[0] + " The annotation has this value from before: remove it first."
    )


@pytest.mark.parametrize("value", ["", "-3", "٣", "3 ", "2", "4", "yes", "3" * 5000])
def test_nothing_but_the_number_of_the_event_confirms(value: str) -> None:
    withheld = Withheld()
    withheld.ask(1, 2, 3)
    withheld.annotate(value)
    assert withheld.ask(1, 2, 3) == set()
    withheld.annotate("3")
    assert withheld.ask(1, 2, 3) == {1, 2, 3}


def test_a_number_confirms_those_that_are_left_of_the_reported_ones_and_no_others() -> None:
    withheld = Withheld()
    withheld.ask(1, 2, 3, 4)
    withheld.annotate("4")
    assert withheld.ask(1, 2, 3) == {1, 2, 3}
    assert withheld.ask(1, 2, 3, 4, 5, 6) == {1, 2, 3}, "of those that came with it the number says nothing"


def test_a_confirmation_ends_when_its_object_is_not_asked_for() -> None:
    withheld = Withheld()
    withheld.ask(1, 2, 3)
    withheld.annotate("3")
    withheld.ask(1, 2, 3)
    withheld.annotate("")
    assert withheld.ask() == set()
    assert withheld.ask(1, 2, 3) == set()


def test_a_number_that_was_there_before_the_event_confirms_only_after_it_was_gone() -> None:
    withheld = Withheld()
    withheld.annotate("3")
    for _ in range(3):
        assert withheld.ask(1, 2, 3) == set()
    withheld.annotate("")
    assert withheld.ask(1, 2, 3) == set()
    withheld.annotate("3")
    assert withheld.ask(1, 2, 3) == {1, 2, 3}
    for _ in range(3):
        assert withheld.ask(4, 5, 6) == set(), "it has served"


def test_a_number_that_is_removed_and_set_again_between_two_questions_confirms() -> None:
    """It is what the event asks people to do, and they may be quick."""
    withheld = Withheld()
    withheld.annotate("3")
    assert withheld.ask(1, 2, 3) == set()
    withheld.annotate("")
    withheld.annotate("3")
    assert withheld.ask(1, 2, 3) == {1, 2, 3}


def test_a_number_for_those_that_were_a_mass_is_none_for_as_many_after_they_were_few() -> None:
    withheld = Withheld()
    assert withheld.ask(1, 2, 3) == set()
    assert withheld.ask(4, 5) == {4, 5}
    withheld.annotate("3")
    for _ in range(3):
        assert withheld.ask(1, 2, 3) == set()


def test_the_few_that_are_left_of_a_mass_stay_withheld_until_their_number_is_confirmed() -> None:
    """Who puts a mistake right object by object must not lose the last of them."""
    withheld = Withheld()
    assert withheld.ask(1, 2, 3, 4) == set()
    assert withheld.ask(1, 2) == set()
    assert withheld.ask(1, 5) == set(), "with one that came later they are more than were confirmed"
    assert withheld.ask(1) == set()
    assert [each.split()[0] for each in withheld.told] == ["4", "2", "2", "1"]
    withheld.annotate("1")
    assert withheld.ask(1) == {1}


def test_a_few_go_again_when_nothing_is_left_of_what_was_withheld() -> None:
    withheld = Withheld()
    assert withheld.ask(1, 2, 3) == set()
    assert withheld.ask(3) == set()
    assert withheld.ask() == set()
    assert withheld.ask(3, 4) == {3, 4}


@dataclass(frozen=True)
class Question:
    """What was asked, the value of the annotation at that time, and what an administrator had not confirmed by then."""

    objects: frozenset[int]
    value: str
    waiting: frozenset[int]
    withheld: frozenset[int]
    """What the answer withheld."""
    is_event: bool
    """Whether it was answered by an event, too."""


class ConfirmationMachine(RuleBasedStateMachine):
    """Compares each answer with what follows from all questions so far, read again from the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.withheld = Withheld()
        self.objects: set[int] = set()
        self.next = 0
        self.history: list[Question] = []

    @rule(count=st.integers(1, 4))
    @precondition(lambda self: len(self.objects) < 8)
    def come(self, count: int) -> None:
        self.objects.update(range(self.next, self.next + count))
        self.next += count
        self.ask()

    @rule(data=st.data(), is_asked=st.booleans(), come_back=st.booleans())
    @precondition(lambda self: self.objects)
    def go(self, data: st.DataObject, is_asked: bool, come_back: bool) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.objects)), min_size=1))
        self.objects -= gone
        if is_asked:
            self.ask()
        if come_back:
            self.objects |= gone
            self.ask()

    @rule(value=st.sampled_from(["", "3", "4"]))
    def annotate(self, value: str) -> None:
        self.withheld.annotate(value)
        self.ask()

    @rule(others=st.integers(0, 1))
    @precondition(lambda self: self.withheld.told)
    def confirm_the_last_event(self, others: int) -> None:
        self.withheld.annotate(self.withheld.told[-1].split()[0])
        self.objects.update(range(self.next, self.next + others))
        self.next += others
        self.ask()

    @rule()
    def ask(self) -> None:
        objects, value = frozenset(self.objects), self.withheld.configuration.annotations.get("confirm", "")
        confirmed = {each for each in objects if self.was_confirmed(each, value)}
        is_few = len(objects - confirmed) <= MOST and (objects - confirmed).isdisjoint(self.withheld_before())
        told = len(self.withheld.told)
        answer = self.withheld.ask(*objects)
        assert answer == (objects if is_few else confirmed)
        is_event = len(self.withheld.told) > told
        self.history.append(Question(objects, value, objects - confirmed, objects - answer, is_event))
        assert is_few or self.withheld.told[-1].split()[0] == str(len(objects - confirmed))

    def withheld_before(self) -> frozenset[int]:
        """Return what the last question left waiting."""
        return self.history[-1].withheld if self.history else frozenset()

    def was_confirmed(self, one: int, value: str) -> bool:
        """Whether an administrator confirmed one that is asked for now, and has been since.

        A question confirmed it before, or the value of the annotation does now.
        """
        if not self.history or one not in self.history[-1].objects:
            return False
        return one not in self.history[-1].waiting or self.confirms(value, one)

    def confirms(self, value: str, one: int) -> bool:
        """Whether a value is the number of the last event, which counted one, and was set after that event."""
        events = [index for index, each in enumerate(self.history) if each.is_event]
        since = self.history[events[-1] :] if events else []
        reported = since[0].waiting if since else frozenset()
        is_meant = one in reported and all(each.waiting == reported for each in since)
        is_set = any(each.value != value for each in since)
        waiting = {
            each for each in self.objects if each not in self.history[-1].objects - self.history[-1].waiting
        }
        return is_meant and is_set and value == str(len(reported)) and waiting <= reported


TestConfirmation = ConfirmationMachine.TestCase
TestConfirmation.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
