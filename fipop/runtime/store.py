"""The objects of one resource kind as projections, ordered by resourceVersion.

Three sources feed a store, in any order: watch events, the answers of our own writes, authoritative lists.
What makes that safe is one rule per name: the highest version wins, and a deletion is a version like any
other; a list is one of every name that it lacks. An API server numbers the writes of its whole store, so two
objects that bore the same name one after the other are ordered too.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from fipop.api.codec import UnreadableError
from fipop.errors import FipopError
from fipop.jsons import JsonView
from fipop.kube.resources import Listing

logger = logging.getLogger(__name__)

Name = tuple[str, str]


class Projection(Protocol):
    """What a store asks of the values it holds: immutable, and equal where they differ in their version only."""

    @property
    def namespace(self) -> str | None:
        """The namespace; "" or None where the kind is cluster scoped."""

    @property
    def name(self) -> str:
        """The name within the namespace."""

    @property
    def uid(self) -> str:
        """The identity of this very object, not of its name."""

    @property
    def resource_version(self) -> int:
        """The write that made the object what it is; it takes no part in comparisons."""


P = TypeVar("P", bound=Projection)
P_co = TypeVar("P_co", bound=Projection, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[P_co]):
    """What became of the object that bears a name; at least one side is there.

    Where both are there and their uids differ, the old object was deleted and another took its name.
    """

    old: P_co | None
    new: P_co | None

    @property
    def latest(self) -> P_co:
        """The new side, or what was last known of a deleted object."""
        latest = self.new if self.new is not None else self.old
        assert latest is not None
        return latest


class RestoredStoreError(FipopError):
    """The API server shows an older state than it showed before: its store was restored from a backup.

    What we hold in memory is then worth nothing: the process exits and starts afresh.
    """

    def __init__(self, what: str, *, shown: int, seen: int) -> None:
        super().__init__(f"{what} is shown at version {shown} after {seen} was seen: the store was restored")


class Store(Generic[P]):
    """All objects of one kind, by name, by uid and by what the caller wants to look them up by.

    `project` makes a value of an object as the API server serves it. Raises: UnreadableError.
    `indexes` maps an index's name to a function that gives the key of a projection in it: None for none, a
    frozenset for several.
    """

    def __init__(
        self,
        project: Callable[[JsonView], P],
        *,
        kind: str = "object",
        indexes: Mapping[str, Callable[[P], Hashable]] | None = None,
    ) -> None:
        self._project = project
        self._kind = kind
        self._living: dict[Name, P] = {}
        self._by_uid: dict[str, P] = {}
        self._order: list[Name] = []
        self._tombstones: dict[Name, int] = {}
        self._highest_version = 0
        self._listed_at = 0
        self._key_of = dict(indexes or {})
        self._indexes: dict[str, dict[Hashable, dict[Name, P]]] = {name: {} for name in self._key_of}

    @property
    def highest_version(self) -> int:
        """The highest version seen so far, in an object, a deletion or a list."""
        return self._highest_version

    def get(self, namespace: str | None, name: str) -> P | None:
        """Return the living object of that name."""
        return self._living.get((namespace or "", name))

    def by_uid(self, uid: str) -> P | None:
        """Return the living object with that uid."""
        return self._by_uid.get(uid)

    def all(self) -> tuple[P, ...]:
        """Return all living objects, sorted by namespace and name."""
        return tuple(self._living[name] for name in self._order)

    def by_index(self, index: str, key: Hashable) -> tuple[P, ...]:
        """Return the living objects that have `key` in the index of that name, sorted by namespace and name."""
        bucket = self._indexes[index].get(key)
        return tuple(bucket[name] for name in sorted(bucket)) if bucket else ()

    def keys(self, index: str) -> tuple[Hashable, ...]:
        """Return the keys that the index of that name has objects of, in no order."""
        return tuple(self._indexes[index])

    def put(self, obj: JsonView) -> Change[P] | None:
        """Take in an object as an event, a list or the answer of a write shows it.

        None where that is no news: an older or equal version, or a projection that changed in its version only. An
        object that cannot be read is left out: what was known of it stays.
        """
        name, version = _name_of(obj), _version_of(obj)
        self._highest_version = max(self._highest_version, version)
        if version <= self._known_version(name):
            return None
        try:
            projection = self._project(obj)
        except UnreadableError as error:
            fields = {"kind": self._kind, "object": "/".join(filter(None, name)), "error": str(error)}
            logger.warning("Could not read object", extra=fields)
            return None
        return self.take(projection)

    def take(self, new: P) -> Change[P] | None:
        """Take in a projection that is younger than all that is known of its name; None where only its version is."""
        name = new.namespace or "", new.name
        old = self._living.get(name)
        self._tombstones.pop(name, None)
        self._replace(name, old, new)
        if new == old:
            return None
        return Change(old=old, new=new)

    def delete(self, obj: JsonView) -> Change[P] | None:
        """Take in a DELETED event; None where the object is not known or its name was taken again since."""
        name, version = _name_of(obj), _version_of(obj)
        self._highest_version = max(self._highest_version, version)
        return self._tombstone(name, version)

    def resync(self, listing: Listing[JsonView], *, seen_before: int) -> Iterator[Change[P] | None]:
        """Bring the store in line with an authoritative list, object by object; yield None for one without news.

        The caller may do other things between two objects, and take in events: for each name the highest version
        wins. `seen_before` is `highest_version` at the time the list was asked for: events that overtook the answer
        prove nothing. An object that the list lacks is dropped only where its version is not newer than the
        list's.

        Raises RestoredStoreError, with the store unchanged, where the list can't follow from what was seen.
        """
        items = {_name_of(item): item for item in listing.items}
        self._check_not_restored(items, listing.resource_version, seen_before)
        for name in sorted(items):
            yield self.put(items[name])
        for name in [each for each in self._order if each not in items]:
            yield self._tombstone(name, listing.resource_version)
        self._highest_version = max(self._highest_version, listing.resource_version)
        self._listed_at = max(self._listed_at, listing.resource_version)
        self._tombstones = {name: at for name, at in self._tombstones.items() if at > self._listed_at}

    def _check_not_restored(
        self, items: Mapping[Name, JsonView], list_version: int, seen_before: int
    ) -> None:
        if list_version < seen_before:
            raise RestoredStoreError(f"the list of {self._kind}", shown=list_version, seen=seen_before)
        for name, item in items.items():
            known, shown = self._known_version(name), _version_of(item)
            # What is newer than the list may differ from it; what is not newer must be in it as we saw it.
            if shown < known <= list_version:
                what = f"{self._kind} {'/'.join(filter(None, name))}"
                raise RestoredStoreError(what, shown=shown, seen=known)

    def _known_version(self, name: Name) -> int:
        living = self._living.get(name)
        if living is not None:
            return living.resource_version
        # What is not living now was not at the time of the last list either, or was deleted since.
        return max(self._listed_at, self._tombstones.get(name, 0))

    def _tombstone(self, name: Name, version: int) -> Change[P] | None:
        """Note that the name was free at `version`, so that nothing older can bring it back."""
        if version < self._known_version(name):
            return None
        old = self._living.get(name)
        self._replace(name, old, None)
        self._tombstones[name] = version
        return None if old is None else Change(old=old, new=None)

    def _replace(self, name: Name, old: P | None, new: P | None) -> None:
        if old is not None:
            self._unindex(name, old)
            del self._by_uid[old.uid]
        if new is not None:
            self._living[name] = new
            self._by_uid[new.uid] = new
            self._index(name, new)
            if old is None:
                bisect.insort(self._order, name)
        elif old is not None:
            del self._living[name]
            del self._order[bisect.bisect_left(self._order, name)]

    def _index(self, name: Name, projection: P) -> None:
        for index, key_of in self._key_of.items():
            for key in _keys(key_of(projection)):
                self._indexes[index].setdefault(key, {})[name] = projection

    def _unindex(self, name: Name, projection: P) -> None:
        for index, key_of in self._key_of.items():
            buckets = self._indexes[index]
            for key in _keys(key_of(projection)):
                del buckets[key][name]
                if not buckets[key]:
                    del buckets[key]


def _keys(key: Hashable) -> frozenset[Hashable]:
    if isinstance(key, frozenset):
        return key
    return frozenset() if key is None else frozenset((key,))


def _name_of(obj: JsonView) -> Name:
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def _version_of(obj: JsonView) -> int:
    # Opaque by the letter of the API, but etcd's revision in fact, and comparable by KEP-5504 since 1.35.
    return int(obj["metadata"]["resourceVersion"])
