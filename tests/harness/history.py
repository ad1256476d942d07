"""What happened in a store, revision by revision, read from etcd itself; and in simulated guests beside it."""

import asyncio
import base64
import contextlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from typing import Any

import aiohttp

from localfleet.simulated import Answer, SimulatedGuest

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Plural, namespace, name."""

RESERVATIONS, FLOATING_IPS, RANGES = "floatingipreservations", "floatingips", "floatingipranges"
OURS = frozenset({RESERVATIONS, FLOATING_IPS, RANGES})
CLUSTER_SCOPED = frozenset({RESERVATIONS, RANGES})
_GROUP = "kubefip.k8s.binbash.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One object after one revision; `obj` is None where it was deleted. `at` is Unix time, when we heard of it."""

    revision: int
    at: float
    plural: str
    namespace: str
    name: str
    obj: Json | None

    @property
    def key(self) -> Key:
        return self.plural, self.namespace, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """All addresses in a guest's ConfigMaps from here on. `revision` is the store's at that time."""

    revision: int
    at: float
    guest: str
    addresses: frozenset[str]
    by_admin: bool


Step = Change | Carried


@dataclass(slots=True)
class History:
    """The steps in their order. Those of guests stand behind the revision that they saw."""

    changes: list[Change] = field(default_factory=list)
    carried: list[Carried] = field(default_factory=list)
    by_people: set[int] = field(default_factory=set)
    """Revisions of specs and annotations that people wrote."""

    def steps(self) -> list[Step]:
        return sorted(
            (*self.changes, *self.carried), key=lambda each: (each.revision, isinstance(each, Carried))
        )


class Recorder:
    """Listens to one control plane's part of an etcd, and keeps what our three kinds are now."""

    def __init__(self, etcd_url: str, prefix: str) -> None:
        self.history = History()
        self.now: dict[Key, Json] = {}
        self.last_change_at = time.monotonic()
        self._url = etcd_url
        self._root = f"/{prefix}/{_GROUP}/"
        self._revision = 0
        self._heard = asyncio.Event()
        self._session = aiohttp.ClientSession(read_bufsize=8 * 1024 * 1024)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin with the next revision."""
        start = await self.revision() + 1
        self._task = asyncio.create_task(self._follow(start))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._session.close()

    async def revision(self) -> int:
        """The store's revision now."""
        query = {"key": _base64("0"), "count_only": True}
        async with self._session.post(f"{self._url}/v3/kv/range", json=query) as answer:
            return int((await answer.json())["header"]["revision"])

    async def catch_up(self) -> None:
        """Return when everything up to now has been heard: a key of our own tells, which no API server looks at."""
        body = {"key": _base64(f"{self._root}~heard"), "value": ""}
        async with self._session.post(f"{self._url}/v3/kv/put", json=body) as answer:
            revision = int((await answer.json())["header"]["revision"])
        while self._revision < revision:
            self._heard.clear()
            await self._heard.wait()

    def begin(self) -> None:
        """Forget what was; what is there now is the history's first revision."""
        self.history = History(
            changes=[
                Change(revision=0, at=0.0, plural=key[0], namespace=key[1], name=key[2], obj=obj)
                for key, obj in sorted(self.now.items())
            ]
        )

    def all(self, plural: str) -> list[Json]:
        return [obj for key, obj in sorted(self.now.items()) if key[0] == plural]

    async def _follow(self, start: int) -> None:
        create = {
            "create_request": {
                "key": _base64(self._root),
                "range_end": _base64(self._root[:-1] + chr(ord("/") + 1)),
                "start_revision": str(start),
            }
        }
        unlimited = aiohttp.ClientTimeout(total=None)
        async with self._session.post(f"{self._url}/v3/watch", json=create, timeout=unlimited) as answer:
            async for line in answer.content:
                for event in json.loads(line).get("result", {}).get("events", ()):
                    self._take(event)

    def _take(self, event: Json) -> None:
        kv = event["kv"]
        revision = int(kv["mod_revision"])
        parts = base64.b64decode(kv["key"]).decode().removeprefix(self._root).split("/")
        if parts[0] in OURS:
            namespace, name = ("", parts[1]) if parts[0] in CLUSTER_SCOPED else (parts[1], parts[2])
            deleted = event.get("type") == "DELETE"
            obj = None if deleted else json.loads(base64.b64decode(kv["value"]))
            if obj is not None:
                obj["metadata"].pop("managedFields", None)
            change = Change(
                revision=revision, at=time.time(), plural=parts[0], namespace=namespace, name=name, obj=obj
            )
            self.history.changes.append(change)
            self.last_change_at = time.monotonic()
            if obj is None:
                self.now.pop(change.key, None)
            else:
                self.now[change.key] = obj
        self._revision = revision
        self._heard.set()


@dataclass(slots=True, kw_only=True)
class Use:
    """A Service uses an address from `since` to `until`, in Unix time."""

    service: Key
    address: str
    since: float
    until: float = inf


@dataclass(slots=True, kw_only=True)
class RecordedGuest(SimulatedGuest):
    """A simulated guest that tells the recorder which addresses its ConfigMaps name, after each write."""

    guest_id: str = ""
    recorder: Recorder | None = None
    theirs: dict[str, str] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    """All that its Services ever used."""

    def furnish(self, **data: str) -> None:
        """Have a ConfigMap `kubevip` with what people of the guest wrote, and with `data` that others left."""
        self.theirs = dict(THEIRS)
        self.put(
            "configmaps",
            {"metadata": {"namespace": "kube-system", "name": "kubevip"}, "data": {**THEIRS, **data}},
        )

    def bereft_of(self) -> list[str]:
        """The keys of people of the guest that are no longer as they wrote them."""
        found = self.objects.get(("configmaps", "kube-system", "kubevip"), {}).get("data") or {}
        return sorted(key for key, value in self.theirs.items() if found.get(key) != value)

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], accept: str, content_type: str, body: bytes
    ) -> Answer:
        """As its base; the revision is read before the write, so that no grant that came later excuses it."""
        if method == "GET" or self.recorder is None:
            return await SimulatedGuest.answer(self, method, path, query, accept, content_type, body)
        revision = await self.recorder.revision()
        answer = await SimulatedGuest.answer(self, method, path, query, accept, content_type, body)
        self.note(revision, by_admin=False)
        return answer

    def committed(self, key: Key, before: Json | None, after: Json | None) -> None:
        """Record which addresses a Service uses from now on, and which no more."""
        if key[0] != "services":
            return
        had, has = _used_by(before), _used_by(after)
        for use in self.uses if had - has else ():
            if use.service == key and use.until == inf and use.address not in has:
                use.until = time.time()
        self.uses += [Use(service=key, address=each, since=time.time()) for each in sorted(has - had)]

    def note(self, revision: int, *, by_admin: bool) -> None:
        """Record what is carried now."""
        assert self.recorder is not None
        carried = Carried(
            revision=revision,
            at=time.time(),
            guest=self.guest_id,
            addresses=self.addresses(),
            by_admin=by_admin,
        )
        self.recorder.history.carried.append(carried)
        self.recorder.last_change_at = time.monotonic()

    def addresses(self) -> frozenset[str]:
        """All single addresses that the values of its ConfigMaps `kubevip` name."""
        found: set[str] = set()
        for (plural, _, name), obj in self.objects.items():
            if plural == "configmaps" and name == "kubevip":
                for value in (obj.get("data") or {}).values():
                    found |= addresses_in(value)
        return frozenset(found)


THEIRS = {
    "cidr-theirs": "192.0.2.0/24",
    "range-team-a": "198.51.100.10-198.51.100.20",
    "search-order": "desc",
}
"""Keys of a guest's ConfigMap that are none of fipop's."""


def _used_by(service: Json | None) -> frozenset[str]:
    balancer = ((service or {}).get("status") or {}).get("loadBalancer") or {}
    return frozenset(str(ip_address(each["ip"])) for each in balancer.get("ingress") or ())


def addresses_in(text: str) -> frozenset[str]:
    """The single addresses of a pool, in their canonical form."""
    found = set()
    for part in re.split(r"[,\s]+", text):
        with contextlib.suppress(ValueError):
            found.add(str(ip_address(part.removesuffix("/32").removesuffix("/128"))))
    return frozenset(found)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
