"""One round over a guest: it is found out, its floating IP is made, and nobody waits unseen."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fipop.api import names
from fipop.errors import ConflictError, ForbiddenError
from fipop.operator.guests.discovery import GuestReconciler
from fipop.rancher.discovery import Discovery, Waiting
from fipop.runtime.workqueue import RetryAfter
from fipop.settings.options import DEFAULTS
from tests.harness.answering_client import AnsweringClient
from tests.harness.every_guest import EveryGuest
from tests.harness.guests import HARVESTER_POOL, build_guest
from tests.harness.objects import NOW, Json, build_floating_ip, build_range, cache_of
from tests.harness.recorded_events import RecordedEvents

ID = "c-m-1"
GUEST = build_guest(ID)
ANYWHERE = build_range("pool", "10.0.0.0/24", clusterSelector={"matchLabels": {}})


class FoundGuests(EveryGuest):
    """Finds what a test says."""

    def __init__(self, world: "World") -> None:
        super().__init__(cache=world.cache, client=AnsweringClient(now=NOW, create=world.create))
        self.world = world

    async def discover(self, _guest_id: str) -> Discovery | None:
        return self.world.found


class World:
    """One guest, as discovery finds it."""

    def __init__(self, found: Discovery | None, *, ranges: list[Json] | None = None) -> None:
        self.found = found
        self.cache = cache_of(ranges=[ANYWHERE] if ranges is None else ranges)
        self.made: list[Json] = []
        self.error: Exception | None = None
        self.settings = DEFAULTS
        self.learned: list[str] = []
        self.recorded = RecordedEvents()
        self.guests = FoundGuests(self)
        self.reconciler = GuestReconciler(
            guests=self.guests,
            events=self.recorded,
            configuration=self,  # type: ignore[arg-type] # it has settings
            learned=lambda guest: self.learned.append(guest.id),
        )

    @property
    def events(self) -> list[str]:
        return self.recorded.reasons

    async def round(self) -> RetryAfter | None:
        return await self.reconciler.reconcile(ID)

    async def create(self, _resource: object, body: Json) -> Json:
        if self.error is not None:
            raise self.error
        self.made.append(body)
        metadata = {**body["metadata"], "uid": "u", "resourceVersion": "99999", "generation": 1}
        return {**body, "metadata": metadata}


async def test_a_new_guest_gets_its_floating_ip_once() -> None:
    world = World(GUEST)
    assert await world.round() is None
    (made,) = world.made
    assert made["metadata"]["namespace"] == ID
    assert made["metadata"]["name"].endswith(names.FLOATING_IP_SUFFIX)
    assert made["metadata"]["annotations"][names.ANNOTATION_CLUSTER] == GUEST.cluster_name
    await world.round()
    assert len(world.made) == 1, "the answer is known"
    assert world.learned == [ID], "what is known already is not told again"


@pytest.mark.parametrize("changes", [{"deleting": True}, {"wants_floating_ip": False}])
async def test_who_is_not_to_have_one_gets_none(changes: dict[str, bool]) -> None:
    world = World(build_guest(ID, **changes))
    await world.round()
    assert world.made == []


async def test_who_has_one_by_any_name_gets_no_other() -> None:
    world = World(GUEST)
    world.cache = world.guests.cache = cache_of(ranges=[ANYWHERE], floating_ips=[build_floating_ip("own")])
    await world.round()
    assert world.made == []


@pytest.mark.parametrize(
    "error",
    [
        ConflictError("create FloatingIP", status=409, reason="AlreadyExists"),
        ForbiddenError("create FloatingIP", status=403, reason="NamespaceTerminating"),
    ],
)
async def test_what_somebody_made_or_what_goes_is_no_failure(error: Exception) -> None:
    world = World(GUEST)
    world.error = error
    assert await world.round() is None


@pytest.mark.parametrize(("on_harvester", "events"), [(True, ["NoMatchingRange"]), (False, [])])
async def test_who_no_range_serves_waits_and_is_told_of_on_harvester(
    on_harvester: bool, events: list[str]
) -> None:
    world = World(build_guest(ID, pools=(HARVESTER_POOL,) if on_harvester else ()), ranges=[])
    await world.round()
    assert (world.made, world.events) == ([], events)


async def test_a_link_that_no_event_tells_of_is_asked_for_again_the_rarer_the_older_the_guest() -> None:
    missing = Waiting(message="there is no Secret", created=NOW, needs_retry=True)
    world = World(missing)
    assert await world.round() == RetryAfter(3.0)
    world.found = replace(missing, created=NOW - timedelta(days=1))
    delays = [await world.round() for _ in range(6)]
    assert delays[-1] == RetryAfter(30.0)
    world.found = replace(missing, needs_retry=False)
    assert await world.round() is None, "an event will tell"


async def test_passes_may_serve_who_waits_for_a_link_that_a_range_needs() -> None:
    world = World(Waiting(message="m", created=NOW, guest=GUEST))
    await world.round()
    assert world.learned == [ID]
    assert world.made == []
