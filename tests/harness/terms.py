"""A leader's term as the program puts it together, over a client and queues of a test."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from fipop.guest.guest_pass import GuestSessions
from fipop.kube.client import KubeClient
from fipop.kube.resources import Resource
from fipop.metrics.exposition import Metrics
from fipop.operator.manager import Manager
from fipop.operator.queues import Key, WorkQueues
from fipop.runtime.workqueue import WorkQueue
from fipop.settings.options import DEFAULTS, Settings
from fipop.state.cache import ClusterCache
from tests.harness.memory import MemoryClient

_METRICS = Metrics(lambda: cast("Any", None), version="0")


class Pending:
    """Stands where a work queue does: keys that wait, each once, in their order."""

    def __init__(self, put_off: Callable[[Any, float], None] | None = None) -> None:
        self.keys: dict[Any, None] = {}
        self.depth = self.active = 0
        self.name = "objects"
        self._put_off = put_off

    def waiting(self, _priority: object) -> int:
        return 0

    def add(self, key: object, *, delay_seconds: float = 0.0, **_: object) -> None:
        if delay_seconds and self._put_off is not None:
            self._put_off(key, delay_seconds)
        else:
            self.keys[key] = None

    def drop_rerun(self, key: object) -> None:
        self.keys.pop(key, None)


@dataclass
class Listener:
    """Hears of what happens in a cluster cache, as far as a test asks."""

    on_change: Callable[[Resource, Any], None] = lambda _resource, _change: None
    on_loss: Callable[[], None] = lambda: None

    def changed(self, resource: Resource, change: Any) -> None:
        self.on_change(resource, change)

    def lost_unseen(self) -> None:
        self.on_loss()


@dataclass
class FakeConfiguration:
    """Settings that nobody changes; `annotations` is where people confirm what the operator withholds."""

    annotations: dict[str, str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    settings: Settings = DEFAULTS
    on_complaint: Callable[[str, str], None] = lambda _reason, _message: None
    annotation_changes: Counter[str] = field(default_factory=Counter)

    def annotate(self, name: str, value: str = "") -> None:
        """Set an annotation; "" removes it."""
        self.annotation_changes[name] += value != self.annotations.get(name, "")
        self.annotations = {**self.annotations, name: value}

    def complain(self, reason: str, message: str) -> None:
        self.complaints.append(reason)
        self.on_complaint(reason, message)


@dataclass(frozen=True)
class Recorder:
    """Hands events to a function."""

    record: Callable[..., None]


class Leading:
    """Leads always."""

    def still_leading_for(self, _seconds: float) -> bool:
        return True


def build_manager(
    cache: ClusterCache,
    client: MemoryClient,
    queues: WorkQueues,
    *,
    configuration: FakeConfiguration | None = None,
    sessions: object = None,
    record_event: Callable[..., None] = lambda *_: None,
) -> Manager:
    """Build a term that leads always; its events go to `record_event`."""
    return Manager(
        cache=cache,
        client=cast("KubeClient", client),
        events=cast("Any", Recorder(record_event)),
        configuration=cast("Any", configuration or FakeConfiguration()),
        elector=cast("Any", Leading()),
        metrics=_METRICS,
        sessions=cast("GuestSessions", sessions),
        queues=queues,
        random=Random(1),
    )


def queues_of(objects: Pending, visits: Pending | None = None) -> WorkQueues:
    """Give queues of which only those of objects and of checks matter: they are one here."""
    queue, passes, installs = (
        cast("WorkQueue[Key]", each) for each in (objects, visits or Pending(), Pending())
    )
    return WorkQueues(objects=queue, checks=queue, passes=passes, installs=installs)
