"""Whoever has an address claims it before anything new is given out."""

from fipop.errors import ApiUnreachableError
from fipop.operator.gates import Gates
from fipop.operator.startup import Startup
from tests.unit.operator.objects import build_floating_ip, world_of


async def test_who_has_an_address_claims_it_oldest_first_and_one_that_fails_stops_nobody() -> None:
    world = world_of(
        floating_ips=[
            build_floating_ip("younger", created="2026-02-02T00:00:00Z", ipaddress="10.0.0.1"),
            build_floating_ip("broken", created="2026-02-01T00:00:00Z", ipaddress="10.0.0.2"),
            build_floating_ip("oldest", created="2026-01-02T00:00:00Z", ipaddress="10.0.0.1"),
            build_floating_ip("held", created="2026-03-01T00:00:00Z", status={"addresses": ["10.0.0.3"]}),
            build_floating_ip("without"),
        ]
    )
    steps: list[str] = []

    async def adopt(key: tuple[str, str]) -> None:
        steps.append(key[1])
        if key[1] == "broken":
            raise ApiUnreachableError(verb="create", kind="FloatingIPReservation")

    async def discover(_guest_id: str) -> None:
        return None

    gates = Gates()
    startup = Startup(
        world=world,
        gates=gates,
        adopt=adopt,
        discover=discover,
        note_inheritance=lambda: steps.append("(what is inherited is noted)"),
    )
    await startup.adopt_all()
    assert steps == ["(what is inherited is noted)", "oldest", "broken", "younger", "held"]
    assert gates.adopted
    assert not gates.are_open
