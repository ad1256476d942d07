"""What people are told of Services: on transitions only, in a condition, an event and a line."""

from datetime import UTC, datetime
from typing import Any

from fipop.api.conditions import Verdict
from fipop.cloudprovider.choosing import Choice, Refused
from fipop.cloudprovider.conditions import Word, read_word
from fipop.cloudprovider.notices import FAILED, IN_USE, SHARED_LOCAL, Notices
from fipop.cloudprovider.occupancy import Occupancy, ServiceStore
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.services import Service, parse_service
from fipop.errors import ApiConflictError
from fipop.ipam.addresses import parse_address
from tests.unit.cloudprovider.services import build

X = parse_address("10.0.0.1")
HELD = build("10.0.0.1", "10.0.0.1", marked=True, finalized=True)


class Told:
    """One Service that others see, and what is said of it."""

    def __init__(self, obj: dict[str, Any], *others: dict[str, Any], **keys: str) -> None:
        self.live: dict[str, Any] | None = obj
        self.conflicts = 0
        self.events: list[str] = []
        self.again: list[set[str]] = []
        store: ServiceStore = ServiceStore(parse_service, kind="Service")
        self.occupancy = Occupancy(store)
        self.occupancy.take_keys(PoolKeys({key.replace("_", "-"): value for key, value in keys.items()}))
        for each in (obj, *others):
            change = store.put(each)
            assert change is not None
            self.occupancy.take_service(change)
        self.notices = Notices(
            client=self,
            events=self,  # type: ignore[arg-type] # records events
            occupancy=self.occupancy,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            look_again=lambda uids: self.again.append(set(uids)),
        )

    @property
    def service(self) -> Service:
        assert self.live is not None
        return parse_service(self.live)

    async def get(self, *_: object, **__: object) -> dict[str, Any] | None:
        return self.live

    async def replace(self, _resource: object, body: dict[str, Any], **_: object) -> dict[str, Any]:
        if self.conflicts:
            self.conflicts -= 1
            raise ApiConflictError(verb="replace", kind="Service", status=409)
        self.live = body
        return body

    def record(self, _about: object, _kind: object, reason: str, _message: str) -> None:
        self.events.append(reason)


def other(**spec: Any) -> dict[str, Any]:
    meta = {"name": "other", "uid": "o"}
    return build("10.0.0.1", "10.0.0.1", marked=True, finalized=True, meta=meta, **spec)


async def test_that_it_has_its_address_is_told_once() -> None:
    told = Told(HELD)
    choice = Choice(service=told.service, addresses=(X,), pool="cidr-shop")
    await told.notices.tell_assigned(told.service, choice)
    assert told.live is not None
    assert read_word(told.live) == Word(Verdict.TRUE, "Assigned", "Assigned 10.0.0.1 from key cidr-shop.")
    await told.notices.tell_assigned(told.service, choice)
    assert told.events == ["AddressAssigned"]


async def test_who_waits_is_told_why_and_a_write_that_conflicts_is_tried_again() -> None:
    told = Told(build())
    told.conflicts = 2
    await told.notices.tell_waiting(Refused(service=told.service, reason="PoolFull", message="full"))
    assert told.live is not None
    assert read_word(told.live) == Word(Verdict.FALSE, "PoolFull", "full")
    assert told.events == [FAILED]
    await told.notices.tell_waiting(Refused(service=told.service, reason=IN_USE, message="of another"))
    assert told.events == [FAILED, IN_USE]


async def test_our_word_goes_with_what_it_spoke_of_and_not_from_another_object() -> None:
    told = Told(build())
    await told.notices.tell_waiting(Refused(service=told.service, reason="PoolFull", message="full"))
    await told.notices.tell_nothing(told.service)
    assert told.live is not None
    assert read_word(told.live) is None
    before = told.service
    told.live = build(meta={"uid": "another"})
    await told.notices.tell_waiting(Refused(service=before, reason="PoolFull", message="full"))
    assert read_word(told.live) is None


def test_an_address_that_two_have_is_warned_of_on_both_once() -> None:
    told = Told(HELD, other())
    told.notices.look(told.service)
    told.notices.look(told.service)
    assert told.events == [IN_USE]
    assert told.again == [{"o"}]
    told.notices.forget("u")
    assert told.again[-1] == {"o"}, "who had it too is looked at again"


def test_a_shared_address_that_is_to_be_local_would_be_on_two_nodes() -> None:
    mine = build("10.0.0.1", "10.0.0.1", marked=True, finalized=True, externalTrafficPolicy="Local")
    told = Told(mine, other(ports=[{"port": 81}]), allow_share_shop="true")
    told.notices.look(told.service)
    assert told.events == [SHARED_LOCAL]


def test_of_an_address_that_hundreds_have_few_look_again() -> None:
    """Each that comes would have all look again, and each look would name all."""
    others = [
        build(
            "10.0.0.1",
            "10.0.0.1",
            marked=True,
            finalized=True,
            meta={"name": f"o{number}", "uid": f"o{number}"},
        )
        for number in range(300)
    ]
    told = Told(HELD, *others)
    told.notices.look(told.service)
    assert told.events == [IN_USE]
    assert [len(each) for each in told.again] == [16]
