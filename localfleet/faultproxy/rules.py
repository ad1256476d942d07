"""What harm is done to which request: values that are printed as JSON and read back, and the counting by them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from random import Random
from typing import Any
from urllib.parse import parse_qs

_BY_THE_CLOCK = frozenset({"leases", "events", "tokenreviews", "subjectaccessreviews", "selfsubjectreviews"})
"""What an operator writes by the clock and not for its work: the n-th write means one that matters.

They count for rules that name them.
"""


class On(StrEnum):
    """What a rule counts."""

    WRITE = "write"
    GET = "get"
    LIST = "list"
    WATCH = "watch"
    REQUEST = "request"
    """Every request but watches."""
    ALL = "all"
    """Every request, watches, Leases and what is no resource too."""
    EVENT = "event"
    """Every event of a watch."""


class Do(StrEnum):
    """The harm. `seconds` and `status` of the rule say how long and with what."""

    KILL_BEFORE = "kill-before"
    """The client is killed, and the API server never hears of the request."""
    KILL_AFTER = "kill-after"
    """The API server does the work; the client is killed before it hears the answer."""
    CUT_BEFORE = "cut-before"
    CUT_AFTER = "cut-after"
    CUT_LATE = "cut-late"
    """The client's connection is cut at once; the API server gets the request `seconds` later."""
    STATUS = "status"
    """The proxy answers with `status`; the API server never hears of it."""
    STATUS_AFTER = "status-after"
    """The API server does the work, and the client is told of a failure with `status`."""
    DELAY = "delay"
    FREEZE_BEFORE = "freeze-before"
    """The client is stopped for `seconds`; the request goes on before that."""
    FREEZE_AFTER = "freeze-after"
    """The client is stopped for `seconds` when the API server has done the work."""
    HANG = "hang"
    """Nothing is answered for `seconds`, then the connection is cut."""
    WITHHOLD = "withhold"
    """The event is never shown."""
    HOLD = "hold"
    """The event, and the stream behind it, wait for `seconds`."""
    REPLAY = "replay"
    """The event is shown, and after it the first state of its object that this proxy saw."""
    GONE = "gone"
    """Instead of the event comes an ERROR 410, and the stream ends."""
    ERROR = "error"
    """Instead of the event comes an ERROR 500, and the stream ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Harm for the requests (or events) number `nth` to `nth + count - 1` of those that match.

    With `nth` 0 all of them are meant, each with the probability `rate`. An empty `plural` means any resource,
    an empty `method` any method, an empty `event` any type of event. Where `mentions` is given, only requests whose
    body has that text are meant: who a reservation is for stands nowhere else.
    """

    on: On
    do: Do
    nth: int = 0
    count: int = 1
    rate: float = 0.0
    plural: str = ""
    method: str = ""
    event: str = ""
    mentions: str = ""
    status: int = 500
    seconds: float = 0.0

    def counts(self, seen: "Seen") -> bool:
        """Whether it counts requests of this kind."""
        if self.on is On.ALL:
            return self.plural in {"", seen.plural}
        is_kind = self.on is seen.verb or (self.on is On.REQUEST and seen.verb is not On.WATCH)
        return is_kind and (self.plural == seen.plural if self.plural else seen.is_work)

    def to_json(self) -> dict[str, Any]:
        """As JSON, without what stands at its default."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Rule":
        """Back from `to_json`."""
        return cls(**{**data, "on": On(data["on"]), "do": Do(data["do"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request as the API server's path language tells it; `verb` is never EVENT or REQUEST."""

    verb: On
    method: str
    plural: str
    namespace: str
    name: str
    subresource: str

    @property
    def is_work(self) -> bool:
        """Whether it is about a resource, and no Lease or Event."""
        return bool(self.plural) and self.plural not in _BY_THE_CLOCK


def classify(method: str, path: str, query: str) -> Seen:
    """Read what a request is about; for a path without a resource, `plural` is empty."""
    parts = [part for part in path.split("/") if part]
    rest = parts[2:] if parts[:1] == ["api"] else parts[3:] if parts[:1] == ["apis"] else []
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest[:3], "", "", "")[:3]
    if method not in {"GET", "HEAD"}:
        verb = On.WRITE
    elif parse_qs(query).get("watch", ["0"])[0] in {"1", "true"}:
        verb = On.WATCH
    else:
        verb = On.GET if name else On.LIST
    return Seen(
        verb=verb, method=method, plural=plural, namespace=namespace, name=name, subresource=subresource
    )


class Schedule:
    """Decides, request by request, which rule strikes. The same rules and seed decide the same sequence alike."""

    def __init__(self, rules: Sequence[Rule] = (), *, seed: int = 0) -> None:
        self.rules = tuple(rules)
        self.struck = 0
        self._random = Random(seed)
        self._counts = [0] * len(self.rules)

    @property
    def parses_events(self) -> bool:
        """Whether watch events have to be looked at."""
        return any(rule.on is On.EVENT for rule in self.rules)

    def decide(self, seen: Seen, body: bytes = b"") -> Rule | None:
        """Count a request; the rule that strikes it."""
        return self._first(
            lambda rule: (
                rule.counts(seen) and rule.method in {"", seen.method} and rule.mentions.encode() in body
            )
        )

    def decide_event(self, plural: str, event: str) -> Rule | None:
        """Count an event of a watch; the rule that strikes it."""
        return self._first(
            lambda rule: rule.on is On.EVENT and rule.plural in {"", plural} and rule.event in {"", event}
        )

    def _first(self, matches: Any) -> Rule | None:
        chosen: Rule | None = None
        for index, rule in enumerate(self.rules):
            if not matches(rule):
                continue
            self._counts[index] += 1
            strikes = (
                rule.nth <= self._counts[index] < rule.nth + rule.count
                if rule.nth
                else self._random.random() < rule.rate
            )
            if strikes and chosen is None:
                chosen = rule
        self.struck += chosen is not None
        return chosen
