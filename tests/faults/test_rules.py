"""Plans are values: counted, repeated, printed as one line and read back."""

import pytest

from localfleet.faultproxy.rules import Do, On, Rule, Schedule, classify
from tests.faults import plans
from tests.faults.crowd import crowd
from tests.faults.plans import Plan

FIPS = "/apis/kubefip.k8s.binbash.org/v1/namespaces/c-m-a/floatingips"


@pytest.mark.parametrize(
    ("method", "path", "query", "verb", "plural", "name"),
    [
        ("GET", FIPS, "", On.LIST, "floatingips", ""),
        ("GET", FIPS, "watch=1&timeoutSeconds=5", On.WATCH, "floatingips", ""),
        ("GET", f"{FIPS}/f", "", On.GET, "floatingips", "f"),
        ("PATCH", f"{FIPS}/f/status", "fieldManager=fipop", On.WRITE, "floatingips", "f"),
        ("GET", "/api/v1/namespaces/kube-fip", "", On.GET, "namespaces", "kube-fip"),
        ("GET", "/api/v1/namespaces", "", On.LIST, "namespaces", ""),
        (
            "POST",
            "/apis/kubefip.k8s.binbash.org/v1/floatingipreservations",
            "",
            On.WRITE,
            "floatingipreservations",
            "",
        ),
        ("GET", "/readyz", "", On.LIST, "", ""),
    ],
)
def test_requests_are_understood(
    method: str, path: str, query: str, verb: On, plural: str, name: str
) -> None:
    seen = classify(method, path, query)
    assert (seen.verb, seen.plural, seen.name) == (verb, plural, name)


def test_the_nth_write_is_struck_and_no_other() -> None:
    schedule = Schedule([Rule(on=On.WRITE, do=Do.KILL_AFTER, nth=2)])
    write, read = classify("PATCH", f"{FIPS}/f", ""), classify("GET", FIPS, "")
    struck = [schedule.decide(seen) for seen in (read, write, read, write, write)]
    assert [rule is not None for rule in struck] == [False, False, False, True, False]
    assert schedule.struck == 1


def test_leases_and_events_do_not_count() -> None:
    schedule = Schedule([Rule(on=On.WRITE, do=Do.KILL_AFTER, nth=1)])
    lease = classify("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-fip/leases/fipop-operator", "")
    event = classify("POST", "/api/v1/namespaces/kube-fip/events", "")
    assert schedule.decide(lease) is None
    assert schedule.decide(event) is None
    assert schedule.decide(classify("PATCH", f"{FIPS}/f", "")) is not None


def test_leases_count_for_a_rule_that_names_them() -> None:
    schedule = Schedule([Rule(on=On.WRITE, do=Do.KILL_AFTER, plural="leases", nth=2)])
    lease = classify("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-fip/leases/fipop-operator", "")
    assert [schedule.decide(lease) is not None for _ in range(3)] == [False, True, False]


def test_what_a_body_mentions_tells_requests_of_one_path_apart() -> None:
    schedule = Schedule([Rule(on=On.WRITE, do=Do.DELAY, nth=1, mentions="steady-1")])
    write = classify("POST", "/apis/kubefip.k8s.binbash.org/v1/floatingipreservations", "")
    bodies = (b"", b'{"name": "steady-0"}', b'{"name": "steady-1"}', b'{"name": "steady-1"}')
    assert [schedule.decide(write, body) is not None for body in bodies] == [False, False, True, False]


def test_the_same_seed_strikes_the_same_requests() -> None:
    def strikes(seed: int) -> list[bool]:
        schedule = Schedule([Rule(on=On.WRITE, do=Do.STATUS, rate=0.5)], seed=seed)
        return [schedule.decide(classify("PATCH", f"{FIPS}/f", "")) is not None for _ in range(50)]

    assert strikes(1) == strikes(1)
    assert strikes(1) != strikes(2)


def test_watch_events_are_counted_by_kind() -> None:
    schedule = Schedule([Rule(on=On.EVENT, do=Do.WITHHOLD, nth=1, event="DELETED", plural="floatingips")])
    assert schedule.parses_events
    assert schedule.decide_event("floatingips", "ADDED") is None
    assert schedule.decide_event("floatingipranges", "DELETED") is None
    assert schedule.decide_event("floatingips", "DELETED") is not None


def test_every_plan_is_one_line_and_comes_back_from_it() -> None:
    made = [
        *plans.at_every_write("moves", 9),
        *plans.at_rates("moves", 3),
        *plans.about_events("moves"),
        *plans.at_the_start("moves"),
        *plans.with_two("moves", 4),
        *plans.with_a_leader("moves"),
        *plans.by_the_clock("moves"),
        crowd(150),
    ]
    for plan in made:
        assert "\n" not in plan.to_line()
        assert Plan.from_line(plan.to_line()) == plan
    assert len({plan.to_line() for plan in made}) == len(made)


def test_only_a_run_to_which_nothing_is_done_is_a_reference() -> None:
    assert not plans.undisturbed("moves").is_disturbed
    assert all(plan.is_disturbed for plan in (*plans.with_two("moves", 0), *plans.by_the_clock("moves")))


def test_events_that_never_come_are_not_withheld() -> None:
    shown = {("MODIFIED", "floatingipranges"), ("ADDED", "floatingips"), ("DELETED", "floatingips")}
    rules = [plan.rules[0] for plan in plans.about_events("moves", shown)]
    named = {(rule.event, rule.plural) for rule in rules if rule.event}
    assert named == {*shown, ("DELETED", "")}
    assert {rule.plural for rule in rules} == {"floatingips", "floatingipranges", ""}
    assert len(plans.about_events("moves")) > len(rules)
