"""Who was given what another has from the same range: addresses of one range are of one network, in whatever space."""

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from fipop.kube.resources import FLOATING_IP_RESERVATIONS
from tests.faults.history import Change
from tests.faults.stored import Owner, is_held, owner_of, slot_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Title:
    """By what an address is somebody's, since a revision; `is_given`: not had before, from another range."""

    owner: Owner
    range: str
    address: str
    revision: int
    is_given: bool


@dataclass(slots=True)
class Shares:
    """Follows the reservations; those that people delete (`by_people` has their revisions) are had all the same."""

    by_people: Container[int]
    _titles: dict[str, _Title] = field(default_factory=dict)

    def hear(self, change: Change) -> None:
        """Take in what became of a reservation."""
        if change.plural != FLOATING_IP_RESERVATIONS.plural:
            return
        if change.obj is None or not is_held(change.obj):
            if change.obj is not None or change.revision not in self.by_people:
                self._titles.pop(change.name, None)
            return
        owner, range_name = owner_of(change.obj), change.obj["spec"]["range"]
        before = self._titles.get(change.name)
        if before is None or (before.owner, before.range) != (owner, range_name):
            self._titles[change.name] = _Title(
                owner=owner,
                range=range_name,
                address=slot_of(change.obj)[1],
                revision=change.revision,
                is_given=before is None or before.owner != owner,
            )

    def among(self, held: Iterable[str]) -> list[str]:
        """Tell what was given to one while another had it from the same range; `held` names the reservations.

        Who keeps an address when he names another range of the same space was not given it: that somebody has the same
        one of that range in another space came with the range, when people moved it.
        """
        titles: dict[tuple[str, str], list[_Title]] = defaultdict(list)
        for name in held:
            title = self._titles[name]
            titles[title.range, title.address].append(title)
        return [
            f"{which} has {sorted({each.owner for each in them})}"
            for which, them in titles.items()
            if len({each.owner for each in them}) > 1 and max(them, key=lambda each: each.revision).is_given
        ]
