"""Finds what the settings ask for, keeps it, and applies it to the settings in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fipop.guest.errors import ChartError
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.helm.charts import Role, wanted_releases
from fipop.guest.helm.targets import Target, build_target, hash_asked, pin_versions
from fipop.guest.release_gate import Aim, build_aim
from fipop.operator.rollout.store import RolloutStore
from fipop.settings.options import Settings


@dataclass(slots=True, kw_only=True)
class Targets:
    """The targets that are kept, by name; `problems` tells by role which chart that is asked for cannot be had."""

    store: RolloutStore
    sessions: GuestSessions
    known: dict[str, Target] = field(default_factory=dict)
    problems: Mapping[Role, ChartError] = field(default_factory=dict)
    _aims: dict[str, Aim] = field(default_factory=dict)
    _applied: Settings | None = None

    async def load(self) -> None:
        """Read what is kept."""
        self.known = await self.store.load_targets()
        self._aims.clear()

    async def find(self, settings: Settings, current: str) -> Target | None:
        """Give what the settings ask for, with the charts there are; what was kept of it where they cannot be had.

        `current` names the target of the rollout that is known.
        """
        before, asked = self.known.get(current), hash_asked(settings)
        if before is None or before.asked != asked:
            before = next((each for each in self.known.values() if each.asked == asked), before)
        wanted = wanted_releases(pin_versions(settings, before))
        charts, problems = {}, {}
        for one in wanted:
            try:
                charts[one.role] = (await self.sessions.charts.get(one.source)).identity
            except ChartError as error:
                problems[one.role] = error
        kept_one = before if before is not None and before.asked == asked else None
        self.problems = problems
        if problems:
            return kept_one
        found = build_target(settings, charts)
        if kept_one is not None and kept_one.name == found.name:
            return kept_one
        kept = self.known.get(found.name)
        if kept is None or kept.asked != asked:
            await self.store.save_target(found)
            self.known[found.name] = found
            self._aims.pop(found.name, None)
        return found

    def aim(self, name: str, settings: Settings) -> Aim | None:
        """Give a target with the settings in force; None where it is not kept."""
        if settings is not self._applied:
            self._aims.clear()
            self._applied = settings
        target = self.known.get(name)
        if target is not None and name not in self._aims:
            self._aims[name] = build_aim(target, settings)
        return self._aims.get(name)

    async def keep_only(self, *names: str) -> None:
        """Drop all others."""
        for name in [name for name in self.known if name not in names]:
            await self.store.drop_target(name)
            del self.known[name]
            self._aims.pop(name, None)
