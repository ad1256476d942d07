"""The plans: which harm is done to which requests of two providers, while people do what they do."""

from dataclasses import dataclass, field

from localfleet.faultproxy import Do, On, Rule

FIRST, SECOND = "first", "second"
"""Two providers that elect a leader, by short Leases: one that is frozen goes on after the end of its own."""
CLASS = "kube-vip.io/kube-vip-class"

SERVICES, CONFIG_MAPS, LEASES = "services", "configmaps", "leases"
SHORT, LONG, PAST_LEASE = 0.4, 2.5, 6.0
CROWD_STEPS = 3700
"""Of which 2,000 create a Service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run; `rules` by provider. `seed` draws what people do, in so many `steps`."""

    name: str
    seed: int
    steps: int = 40
    rules: dict[str, tuple[Rule, ...]] = field(default_factory=dict)
    providers: tuple[str, ...] = (FIRST, SECOND)


def _write(do: Do, plural: str, nth: int, **options: float) -> Rule:
    return Rule(on=On.WRITE, do=do, plural=plural, nth=nth, **options)  # type: ignore[arg-type]


_HARMS = (
    (Do.KILL_BEFORE, {}),
    (Do.KILL_AFTER, {}),
    (Do.CUT_BEFORE, {}),
    (Do.CUT_AFTER, {}),
    (Do.CUT_LATE, {"seconds": SHORT}),
    (Do.CUT_LATE, {"seconds": LONG}),
    (Do.FREEZE_BEFORE, {"seconds": LONG}),
    (Do.FREEZE_AFTER, {"seconds": LONG}),
    (Do.STATUS, {"status": 409}),
    (Do.STATUS, {"status": 500}),
    (Do.STATUS_AFTER, {"status": 500}),
    (Do.STATUS_AFTER, {"status": 409}),
    (Do.DELAY, {"seconds": SHORT}),
)
_NTHS = (1, 2, 3, 5, 8)

_EVENTS = (
    Rule(on=On.EVENT, do=Do.HOLD, plural=SERVICES, rate=0.05, seconds=SHORT),
    Rule(on=On.EVENT, do=Do.REPLAY, plural=SERVICES, rate=0.2),
    Rule(on=On.EVENT, do=Do.GONE, plural=SERVICES, nth=5),
    Rule(on=On.EVENT, do=Do.ERROR, plural=SERVICES, nth=9),
    Rule(on=On.EVENT, do=Do.HOLD, plural=CONFIG_MAPS, rate=0.3, seconds=SHORT),
    Rule(on=On.EVENT, do=Do.REPLAY, plural=CONFIG_MAPS, rate=0.3),
    Rule(on=On.LIST, do=Do.STATUS, plural=SERVICES, nth=1, count=3, status=500),
    Rule(on=On.GET, do=Do.STATUS, plural=SERVICES, rate=0.1, status=500),
    Rule(on=On.GET, do=Do.CUT_AFTER, plural=CONFIG_MAPS, rate=0.3),
    Rule(on=On.REQUEST, do=Do.STATUS, rate=0.1, status=429, seconds=1.0),
    Rule(on=On.REQUEST, do=Do.CUT_AFTER, rate=0.1),
    Rule(on=On.WRITE, do=Do.KILL_AFTER, rate=0.03),
    Rule(on=On.WRITE, do=Do.KILL_BEFORE, rate=0.03),
    Rule(on=On.WRITE, do=Do.CUT_LATE, rate=0.1, seconds=SHORT),
    Rule(on=On.WRITE, do=Do.FREEZE_BEFORE, rate=0.03, seconds=1.0),
)


def build_plans() -> list[Plan]:
    """Give all plans, in the order in which they run."""
    plans = [Plan(name="undisturbed", seed=1)]
    seed = 1
    for plural in (SERVICES, LEASES):
        for do, options in _HARMS:
            for nth in _NTHS:
                seed += 1
                words = "-".join(str(each) for each in options.values())
                name = f"{do}{'-' if words else ''}{words}-{plural}-{nth}"
                # Either may lead first.
                rules = (_write(do, plural, nth, **options),)
                plans.append(Plan(name=name, seed=seed, rules={FIRST: rules, SECOND: rules}))
    for number, rule in enumerate(_EVENTS):
        seed += 1
        name = f"{rule.on}-{rule.do}-{rule.plural or 'any'}-{number}"
        plans.append(Plan(name=name, seed=seed, rules={FIRST: (rule,), SECOND: (rule,)}))
    late = Rule(on=On.WRITE, do=Do.CUT_LATE, plural=SERVICES, rate=0.2, seconds=1.0)
    frozen = Rule(on=On.WRITE, do=Do.FREEZE_BEFORE, plural=SERVICES, rate=0.05, seconds=1.0)
    for number, rules in enumerate(((), (late,), (frozen,), (late, frozen))):
        for again in range(4):
            seed += 1
            both = {FIRST: rules, SECOND: rules} if rules else {}
            plans.append(Plan(name=f"late-and-frozen-{number}-{again}", seed=seed, rules=both))
    for plural in (SERVICES, LEASES):
        for nth in (1, 2, 5):
            seed += 1
            rules = (_write(Do.FREEZE_BEFORE, plural, nth, seconds=PAST_LEASE),)
            name = f"frozen-past-its-lease-{plural}-{nth}"
            plans.append(Plan(name=name, seed=seed, rules={FIRST: rules, SECOND: rules}))
    plans.append(
        Plan(
            name="crowd", seed=4711, steps=CROWD_STEPS, rules={FIRST: (_EVENTS[11],), SECOND: (_EVENTS[13],)}
        )
    )
    return plans
