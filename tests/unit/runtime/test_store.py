"""The store against what it must be: for every name, the highest version it was told of."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from fipop.kube.resources import Listing
from fipop.runtime.store import Change, RestoredStoreError, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    namespace: str
    name: str
    uid: str
    resource_version: int = field(compare=False)
    colour: str
    tags: frozenset[str]


def project(obj: Mapping[str, Any]) -> Thing:
    metadata = obj["metadata"]
    return Thing(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=int(metadata["resourceVersion"]),
        colour=obj.get("colour", ""),
        tags=frozenset(obj.get("tags", ())),
    )


def thing(name: str, version: int, *, uid: str = "", **fields: Any) -> dict[str, Any]:
    namespace, _, name = name.rpartition("/")
    metadata = {"namespace": namespace, "name": name, "uid": uid or name, "resourceVersion": str(version)}
    return {"metadata": metadata, **fields}


def listing(version: int, *items: dict[str, Any]) -> Listing:
    return Listing(items=items, resource_version=version)


def resync(store: Store[Thing], found: Listing, *, seen_before: int) -> list[Change[Thing]]:
    """Take in a whole list at once; return what is news."""
    return [each for each in store.resync(found, seen_before=seen_before) if each is not None]


def new_store(**options: Any) -> Store[Thing]:
    return Store(
        project,
        kind="Thing",
        indexes={"colour": lambda one: one.colour or None, "tag": lambda one: one.tags},
        **options,
    )


ALL_NAMES = ("a/x", "a/y", "b/x", "b/y")
NAMES = st.sampled_from(ALL_NAMES)
COLOURS = st.sampled_from(["red", "blue", ""])
TAGS = st.sets(st.sampled_from(["p", "q"]))


class StoreMachine(RuleBasedStateMachine):
    """A world whose events reach the store late, twice and out of order, beside answers of writes and lists."""

    events = Bundle("events")
    lists = Bundle("lists")

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.cache: dict[str, dict[str, Any]] = {}
        self.known: dict[str, tuple[int, Thing | None]] = {}
        self.mirror: dict[tuple[str, str], Thing] = {}
        self.store = new_store()

    @rule(target=events, name=NAMES, colour=COLOURS, tags=TAGS)
    def write(self, name: str, colour: str, tags: set[str]) -> tuple[bool, str, dict[str, Any]]:
        self.version += 1
        uid = self.cache[name]["metadata"]["uid"] if name in self.cache else f"{name}-{self.version}"
        self.cache[name] = thing(name, self.version, uid=uid, colour=colour, tags=sorted(tags))
        return False, name, self.cache[name]

    @rule(target=events, name=NAMES)
    def remove(self, name: str) -> Any:
        if name not in self.cache:
            return multiple()
        self.version += 1
        obj = self.cache.pop(name)
        metadata = obj["metadata"] | {"resourceVersion": str(self.version)}
        return True, name, obj | {"metadata": metadata}

    @rule()
    def elsewhere(self) -> None:
        self.version += 1

    @rule(event=events)
    def deliver(self, event: tuple[bool, str, dict[str, Any]]) -> None:
        deleted, name, obj = event
        self.learn(name, int(obj["metadata"]["resourceVersion"]), None if deleted else project(obj))
        self.follow(self.store.delete(obj) if deleted else self.store.put(obj))

    @rule(target=lists)
    def ask_for_a_list(self) -> tuple[int, Listing, dict[str, dict[str, Any]]]:
        snapshot = dict(self.cache)
        return self.store.highest_version, listing(self.version, *snapshot.values()), snapshot

    @rule(answer=lists, between=st.none() | events)
    def get_the_list(
        self,
        answer: tuple[int, Listing, dict[str, dict[str, Any]]],
        between: tuple[bool, str, dict[str, Any]] | None,
    ) -> None:
        seen_before, listed, snapshot = answer
        for name in ALL_NAMES:
            if name in snapshot:
                self.learn(name, int(snapshot[name]["metadata"]["resourceVersion"]), project(snapshot[name]))
            else:
                self.learn(name, listed.resource_version, None)
        for change in self.store.resync(listed, seen_before=seen_before):
            self.follow(change)
            if between is not None:  # events come while a list is taken in
                self.deliver(between)
                between = None

    def learn(self, name: str, version: int, value: Thing | None) -> None:
        if name not in self.known or version > self.known[name][0]:
            self.known[name] = version, value

    def follow(self, change: Change[Thing] | None) -> None:
        if change is None:
            return
        key = (change.latest.namespace, change.latest.name)
        if change.old is None:
            assert key not in self.mirror
        else:
            assert self.mirror.pop(key) == replace(change.old, resource_version=0)
        if change.new is not None:
            self.mirror[key] = replace(change.new, resource_version=0)

    @invariant()
    def the_store_holds_the_latest_of_every_name(self) -> None:
        expected = {
            (value.namespace, value.name): value for _, value in self.known.values() if value is not None
        }
        assert {(one.namespace, one.name): one for one in self.store.all()} == expected
        assert [(one.namespace, one.name) for one in self.store.all()] == sorted(expected)
        assert all(self.store.by_uid(one.uid) == one for one in expected.values())
        assert all(self.store.get(*name) == one for name, one in expected.items())
        assert {name: one.resource_version for name, one in self.versions()} == {
            (value.namespace, value.name): version
            for version, value in self.known.values()
            if value is not None
        }

    def versions(self) -> list[tuple[tuple[str, str], Thing]]:
        return [((one.namespace, one.name), one) for one in self.store.all()]

    @invariant()
    def whoever_follows_the_changes_knows_the_same(self) -> None:
        shown = {(one.namespace, one.name): replace(one, resource_version=0) for one in self.store.all()}
        assert shown == self.mirror

    @invariant()
    def the_indexes_give_what_a_search_gives(self) -> None:
        for colour in ("red", "blue"):
            expected = tuple(one for one in self.store.all() if one.colour == colour)
            assert self.store.by_index("colour", colour) == expected
        for tag in ("p", "q"):
            assert self.store.by_index("tag", tag) == tuple(
                one for one in self.store.all() if tag in one.tags
            )


StoreMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestStoreMachine = StoreMachine.TestCase


# A store that was restored


def build_store_of(*things: dict[str, Any]) -> Store[Thing]:
    store = new_store()
    for each in things:
        store.put(each)
    return store


def with_deleted() -> Store[Thing]:
    store = build_store_of(thing("a/x", 5), thing("a/gone", 10))
    store.delete(thing("a/x", 12))
    return store


def with_listed() -> Store[Thing]:
    store = new_store()
    resync(store, listing(9), seen_before=0)
    return store


@pytest.mark.parametrize(
    ("store", "found", "seen_before", "told"),
    [
        (
            build_store_of(thing("a/x", 12)),
            listing(9, thing("a/x", 8)),
            12,
            "the list of Thing is shown at version 9",
        ),
        (
            build_store_of(thing("a/x", 12)),
            listing(40, thing("a/x", 8)),
            12,
            "Thing a/x is shown at version 8 after 12",
        ),
        (with_deleted(), listing(40, thing("a/x", 5)), 12, "Thing a/x is shown at version 5 after 12"),
        (with_listed(), listing(12, thing("a/x", 7)), 9, "Thing a/x is shown at version 7 after 9"),
    ],
    ids=["older list", "older object", "object that was deleted", "object that an earlier list lacked"],
)
def test_a_list_that_cannot_follow_from_what_was_seen_means_a_restored_store(
    store: Store[Thing], found: Listing, seen_before: int, told: str
) -> None:
    before = store.all()
    with pytest.raises(RestoredStoreError, match=f"^{told}"):
        resync(store, found, seen_before=seen_before)
    assert store.all() == before


def test_an_unknown_index_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        new_store().by_index("size", 3)
