"""A story of the in-memory operator or provider: what people do step by step, and what the recording shows of it."""

import copy
import inspect
from collections.abc import Callable, Collection, Coroutine
from random import Random
from typing import Any

from fipop.kube.resources import FLOATING_IPS
from tests.golden.normal import Json, flatten, texts_of, to_yaml
from tests.golden.noting import KINDS, Event, Log, NotingClient, NotingLoop, title_of
from tests.harness.memory import Memory
from tests.harness.small_operator import SmallOperator
from tests.harness.small_provider import Provider

Tell = Callable[["Story"], Coroutine[Any, Any, None]]


class Story:
    """What a scenario uses: `step` says what people do next; operators and providers are made here, and noted."""

    def __init__(self) -> None:
        self.log = Log()
        self.memory = Memory()
        self._said: dict[int, int] = {}

    def step(self, title: str) -> None:
        """Begin the next step: what is written from here on answers to what `title` says."""
        self.log.begin(title)

    def note(self, text: str) -> None:
        """Put a line into the step: what can be seen from outside, and is no object."""
        self.log.steps[-1].notes.append(text)

    def operator(self, former: SmallOperator | None = None, *, writer: str = "") -> SmallOperator:
        """Make an operator; one with a `former` one finds what that stored, as after a restart."""

        def build_client(memory: Memory) -> NotingClient:
            client = NotingClient(memory)
            client.log, client.writer = self.log, writer
            return client

        others = list(former.memory.listeners) if former is not None else []
        made = SmallOperator(former, client=build_client, record_event=self.log.record)
        if former is not None and writer:
            # Both live: the former one still hears of every change.
            made.memory.listeners.extend(others)
        if former is not None:
            made.configuration.annotations = former.configuration.annotations
        made.configuration.on_complaint = self._complain
        self.memory = made.memory
        self.log.listen(self.memory)
        return made

    def _complain(self, reason: str, message: str) -> None:
        about = "ConfigMap kube-fip-config"
        self.log.take_event(Event(about=about, type="Warning", reason=reason, message=message))

    def lose_floating_ips(self, operator: SmallOperator, guest_ids: Collection[str]) -> None:
        """Have the floating IPs of guests gone, which only a list shows."""
        operator.miss(FLOATING_IPS, guest_ids)

    def provider(self, **options: Any) -> Provider:
        """Make a cloud provider over the story's API server; a second one is what comes after a restart."""
        client = NotingLoop(self.memory, options.pop("chance", None) or Random(1), trouble=0.0)
        client.log, client.writer = self.log, options.pop("writer", "")
        self.log.listen(self.memory)
        return Provider(self.memory, client=client, **options)

    async def serve(self, provider: Provider) -> None:
        """Have a provider serve whoever waits, and take down what it reports."""
        await provider.serve()
        seen = self._said.get(id(provider), 0)
        for name, reason, message in provider.said.events[seen:]:
            self.log.take_event(Event(about=f"Service {name}", type="Event", reason=reason, message=message))
        self._said[id(provider)] = len(provider.said.events)

    # What is recorded

    def facts(self, intent: str) -> str:
        """Return the steps with their writes, and all of our objects in the end."""
        steps = []
        for step in self.log.steps:
            shown: Json = {"step": step.title, "writes": step.writes or "none"}
            if step.events:
                shown["events"] = step.events
            if step.notes:
                shown["seen"] = step.notes
            steps.append(shown)
        end = {
            title_of(key): flatten(copy.deepcopy(obj), self.log.names)
            for key, obj in sorted(self.memory.objects.items())
            if key[0] in KINDS
        }
        return to_yaml({"promise": intent, "steps": steps, "end": end})

    def texts(self) -> str:
        """Return all that was told in prose, step by step, and the messages of the end."""
        steps = {f"{n}. {step.title}": step.texts for n, step in enumerate(self.log.steps, 1) if step.texts}
        end = {
            title_of(key): texts_of(obj, self.log.names)
            for key, obj in sorted(self.memory.objects.items())
            if key[0] in KINDS and texts_of(obj, self.log.names)
        }
        return to_yaml({"steps": steps, "end": end})


async def tell(scenario: Tell) -> tuple[str, str]:
    """Run a scenario; its facts and its texts."""
    story = Story()
    await scenario(story)
    return story.facts(intent_of(scenario)), story.texts()


def intent_of(scenario: Tell) -> str:
    """Return the first line of a scenario's docstring."""
    return (inspect.getdoc(scenario) or "").splitlines()[0]
