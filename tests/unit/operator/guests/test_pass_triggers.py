"""A guest gets a pass where it has to be told something new, once."""

from typing import Any

from fipop.operator.guests.pass_triggers import PassTriggers

from fipop.kube.resources import FLOATING_IPS
from tests.harness.objects import build_floating_ip, cache_of, held_by, newer


def test_a_pass_is_wanted_where_the_guest_has_to_be_told_something_new() -> None:
    wanted: list[str] = []
    first = build_floating_ip("web", status=held_by(["10.0.0.1"]))
    cache = cache_of(floating_ips=[first])
    triggers = PassTriggers(cache=cache, add_pass=wanted.append)

    def settle(**changes: Any) -> int:
        if changes:
            cache.observe(FLOATING_IPS, newer(first, **changes))
        found = cache.floating_ips.get("c-m-1", "web")
        assert found is not None
        triggers.note_settled(found)
        return len(wanted)

    assert (settle(), settle()) == (1, 1)
    assert settle(status=held_by(["10.0.0.2"])) == 2
    assert settle(status=held_by(["10.0.0.2"]) | {"conditions": []}) == 2, "the guest has no part in that"
    triggers.forget(("c-m-1", "web"))
    assert settle() == 3


def test_one_that_went_during_its_round_wants_none() -> None:
    wanted: list[str] = []
    cache = cache_of(floating_ips=[build_floating_ip("web")])
    triggers = PassTriggers(cache=cache, add_pass=wanted.append)
    found = cache.floating_ips.get("c-m-1", "web")
    assert found is not None
    cache.forget(FLOATING_IPS, found)
    triggers.note_settled(found)
    assert wanted == []
