"""The store against what it must be: for every name, the highest version it was told of."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
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


class TestPut:
    def test_a_new_object_is_a_change(self) -> None:
        store = new_store()

        change = store.put(thing("a/x", 5, colour="red"))

        assert change is not None
        assert (change.old, change.new) == (None, store.get("a", "x"))
        assert store.by_uid("x") == change.new
        assert store.highest_version == 5

    @pytest.mark.parametrize("version", [4, 5])
    def test_an_older_or_equal_version_is_ignored(self, version: int) -> None:
        store = new_store()
        store.put(thing("x", 5, colour="red"))

        assert store.put(thing("x", version, colour="blue")) is None
        assert store.get(None, "x") == project(thing("x", 5, colour="red"))

    def test_a_version_that_changes_nothing_else_is_no_change_but_kept_for_the_next_write(self) -> None:
        store = new_store()
        store.put(thing("x", 5, colour="red"))

        assert store.put(thing("x", 6, colour="red", heartbeat="now")) is None
        found = store.get("", "x")
        assert found is not None
        assert found.resource_version == 6

    def test_versions_are_numbers_and_not_text(self) -> None:
        store = new_store()
        store.put(thing("x", 9, colour="red"))

        assert store.put(thing("x", 10, colour="blue")) is not None

    def test_an_object_that_took_the_name_of_another_replaces_it(self) -> None:
        store = new_store()
        store.put(thing("x", 5, uid="first"))

        change = store.put(thing("x", 9, uid="second"))

        assert change is not None
        assert change.old is not None
        assert change.new is not None
        assert (change.old.uid, change.new.uid) == ("first", "second")
        assert store.by_uid("first") is None
        assert len(store.all()) == 1

    def test_late_news_of_the_one_before_do_not_touch_the_one_that_took_its_name(self) -> None:
        store = new_store()
        store.put(thing("x", 9, uid="second"))

        assert store.put(thing("x", 6, uid="first")) is None
        assert store.delete(thing("x", 7, uid="first")) is None
        assert store.by_uid("second") is not None


class TestLateNews:
    def test_news_from_before_a_list_do_not_bring_back_what_the_list_lacks(self) -> None:
        store = new_store()
        resync(store, listing(9), seen_before=0)

        assert store.put(thing("x", 7)) is None
        assert store.put(thing("x", 9)) is None
        assert len(store.all()) == 0
        assert store.put(thing("x", 10)) is not None

    def test_nor_do_they_where_the_name_had_been_deleted_before(self) -> None:
        store = new_store()
        store.delete(thing("x", 2, uid="first"))
        resync(store, listing(9), seen_before=2)

        assert store.put(thing("x", 7, uid="second")) is None
        assert len(store.all()) == 0

    def test_a_list_that_shows_what_an_earlier_one_lacked_was_restored(self) -> None:
        store = new_store()
        resync(store, listing(9), seen_before=0)

        with pytest.raises(RestoredStoreError):
            resync(store, listing(12, thing("x", 7)), seen_before=9)


class TestDelete:
    def test_a_deletion_is_a_change_that_shows_what_was(self) -> None:
        store = new_store()
        store.put(thing("x", 5, colour="red"))

        assert store.delete(thing("x", 7)) == Change(old=project(thing("x", 5, colour="red")), new=None)
        assert len(store.all()) == 0
        assert store.all() == ()
        assert store.by_uid("x") is None

    def test_a_late_modification_does_not_bring_a_deleted_object_back(self) -> None:
        store = new_store()
        store.delete(thing("x", 7))

        assert store.put(thing("x", 6)) is None
        assert store.get("", "x") is None

    def test_an_object_created_again_after_its_deletion_is_new(self) -> None:
        store = new_store()
        store.put(thing("x", 5))
        store.delete(thing("x", 7))

        change = store.put(thing("x", 8, uid="again"))

        assert change is not None
        assert change.old is None

    def test_deleting_twice_changes_nothing(self) -> None:
        store = new_store()
        store.put(thing("x", 5))
        store.delete(thing("x", 7))

        assert store.delete(thing("x", 7)) is None


class TestResync:
    def test_it_loads_an_empty_store(self) -> None:
        store = new_store()
        changes = resync(store, listing(9, thing("b", 3), thing("a", 5)), seen_before=0)

        assert [change.latest.name for change in changes] == ["a", "b"]
        assert store.highest_version == 9

    def test_what_the_list_lacks_is_dropped_and_stays_dropped(self) -> None:
        store = new_store()
        store.put(thing("x", 5))

        [change] = resync(store, listing(9), seen_before=5)

        assert change.new is None
        assert store.put(thing("x", 8)) is None

    def test_what_is_newer_than_the_list_is_kept(self) -> None:
        store = new_store()
        store.put(thing("x", 12))

        assert resync(store, listing(9), seen_before=0) == []
        assert store.get("", "x") is not None

    def test_what_was_deleted_after_the_list_was_made_does_not_come_back(self) -> None:
        store = new_store()
        store.put(thing("x", 5))
        store.delete(thing("x", 12))

        assert resync(store, listing(9, thing("x", 5)), seen_before=5) == []
        assert store.get("", "x") is None

    def test_an_event_that_overtook_the_list_is_no_restored_store(self) -> None:
        store = new_store()
        store.put(thing("x", 5))
        asked_at = store.highest_version
        store.put(thing("x", 12, colour="red"))

        assert resync(store, listing(9, thing("x", 5)), seen_before=asked_at) == []
        found = store.get("", "x")
        assert found is not None
        assert found.colour == "red"

    def test_a_list_older_than_what_was_seen_before_means_a_restored_store(self) -> None:
        store = new_store()
        store.put(thing("x", 12))

        with pytest.raises(RestoredStoreError) as caught:
            resync(store, listing(9, thing("x", 8)), seen_before=12)
        assert str(caught.value).startswith("the list of Thing is shown at version 9 after 12 was seen")
        assert len(store.all()) == 1

    def test_a_list_that_shows_an_object_older_than_it_was_seen_means_a_restored_store(self) -> None:
        store = new_store()
        store.put(thing("a/x", 12))
        store.put(thing("a/gone", 10))

        with pytest.raises(RestoredStoreError) as caught:
            resync(store, listing(40, thing("a/x", 8)), seen_before=12)
        assert str(caught.value).startswith("Thing a/x is shown at version 8 after 12 was seen")
        assert store.get("a", "gone") is not None

    def test_a_list_that_shows_an_object_whose_deletion_was_seen_means_a_restored_store(self) -> None:
        store = new_store()
        store.put(thing("x", 5))
        store.delete(thing("x", 12))

        with pytest.raises(RestoredStoreError):
            resync(store, listing(40, thing("x", 5)), seen_before=12)


class TestLookups:
    def test_all_is_sorted_by_namespace_and_name_whatever_the_order_of_arrival(self) -> None:
        store = new_store()
        for version, name in enumerate(["b/a", "a/z", "a/b", "c/a"], start=1):
            store.put(thing(name, version, uid=name))

        assert [(one.namespace, one.name) for one in store.all()] == [
            ("a", "b"),
            ("a", "z"),
            ("b", "a"),
            ("c", "a"),
        ]

    def test_an_index_follows_its_key(self) -> None:
        store = new_store()
        store.put(thing("x", 1, colour="red"))
        store.put(thing("y", 2, colour="red"))
        store.put(thing("x", 3, colour="blue"))

        assert [one.name for one in store.by_index("colour", "red")] == ["y"]
        assert [one.name for one in store.by_index("colour", "blue")] == ["x"]
        store.delete(thing("x", 4))
        assert store.by_index("colour", "blue") == ()

    def test_an_index_gives_the_latest_projection_also_where_only_the_version_changed(self) -> None:
        store = new_store()
        store.put(thing("x", 1, colour="red"))
        store.put(thing("x", 2, colour="red"))

        assert [one.resource_version for one in store.by_index("colour", "red")] == [2]

    def test_a_key_of_none_is_not_indexed_and_a_frozenset_is_many_keys(self) -> None:
        store = new_store()
        store.put(thing("x", 1, tags=["a", "b"]))

        assert store.by_index("colour", None) == ()
        assert [one.name for one in store.by_index("tag", "a")] == ["x"]
        assert [one.name for one in store.by_index("tag", "b")] == ["x"]

    def test_an_unknown_index_is_a_mistake(self) -> None:
        with pytest.raises(KeyError):
            new_store().by_index("size", 3)


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

    @rule(answer=lists)
    def get_the_list(self, answer: tuple[int, Listing, dict[str, dict[str, Any]]]) -> None:
        seen_before, listed, snapshot = answer
        for name in ALL_NAMES:
            if name in snapshot:
                self.learn(name, int(snapshot[name]["metadata"]["resourceVersion"]), project(snapshot[name]))
            else:
                self.learn(name, listed.resource_version, None)
        for change in resync(self.store, listed, seen_before=seen_before):
            self.follow(change)

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
        assert len(self.store.all()) == len(expected)
        assert all(self.store.by_uid(one.uid) == one for one in expected.values())

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


class History:
    """Three names: events late, doubled and out of order, answers of own writes, old lists."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.store = new_store()
        self.version = 0
        self.truth: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[bool, dict[str, Any]]] = []
        self.lists: list[tuple[Listing, int]] = []
        self.shown: dict[str, int] = {}

    def live(self) -> None:
        steps = (self.write, self.write, self.write, self.remove, self.ask, self.hear, self.hear, self.read)
        for _ in range(self.chance.randint(5, 60)):
            self.version += 1
            self.chance.choice(steps)(self.chance.choice("xyz"))
        self.chance.shuffle(self.events)
        for each in self.events:
            self.take(*each)
        self.ask("")
        found, _ = self.lists.pop()
        resync(self.store, found, seen_before=self.store.highest_version)

    def write(self, name: str) -> None:
        uid = self.truth[name]["metadata"]["uid"] if name in self.truth else f"{name}-{self.version}"
        colour = self.chance.choice(("red", "blue"))
        self.truth[name] = thing(f"a/{name}", self.version, uid=uid, colour=colour)
        self.events.append((False, self.truth[name]))
        if self.chance.random() < 0.3:
            self.take(False, self.truth[name])

    def remove(self, name: str) -> None:
        if gone := self.truth.pop(name, None):
            metadata = {**gone["metadata"], "resourceVersion": str(self.version)}
            self.events.append((True, {**gone, "metadata": metadata}))

    def ask(self, _name: str) -> None:
        self.lists.append((listing(self.version, *self.truth.values()), self.store.highest_version))

    def hear(self, _name: str) -> None:
        if self.events:
            is_late = self.chance.random() < 0.2
            self.take(*(self.chance.choice(self.events) if is_late else self.events.pop(0)))

    def read(self, _name: str) -> None:
        if self.lists:
            found, seen_before = self.lists.pop(0)
            for _ in self.store.resync(found, seen_before=seen_before):
                if self.events and self.chance.random() < 0.3:  # events come while a list is taken in
                    self.take(*self.events.pop(0))
            self.check()

    def take(self, is_deletion: bool, obj: dict[str, Any]) -> None:
        (self.store.delete if is_deletion else self.store.put)(obj)
        self.check()

    def check(self) -> None:
        """The store never shows an older state of a name than it showed before, and indexes what it has."""
        for one in self.store.all():
            assert one.resource_version >= self.shown.get(one.name, 0)
            self.shown[one.name] = one.resource_version
        for colour in ("red", "blue"):
            expected = tuple(one for one in self.store.all() if one.colour == colour)
            assert self.store.by_index("colour", colour) == expected


@pytest.mark.parametrize("histories", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_after_any_history_the_store_holds_the_latest_of_every_name(histories: int) -> None:
    for seed in range(histories):
        history = History(Random(seed))
        history.live()
        versions = {name: int(each["metadata"]["resourceVersion"]) for name, each in history.truth.items()}
        assert {one.name: one.resource_version for one in history.store.all()} == versions
