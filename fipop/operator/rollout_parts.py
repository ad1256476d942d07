"""What a rollout asks of the rest of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fipop.operator.configuration import Configuration
from fipop.operator.guests.opting import installs
from fipop.operator.guests.passes import served_floating_ips
from fipop.operator.rollout.plan import Notice
from fipop.operator.routing import Router
from fipop.rancher.matching import Guest
from fipop.state.cache import ClusterCache
from fipop.state.guests import GuestDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutParts:
    """Tells of the fleet, and wakes guests and people."""

    cache: ClusterCache
    guests: GuestDirectory
    router: Router
    configuration: Configuration

    def fleet(self) -> Mapping[str, Guest]:
        """Give the guests in which fipop keeps releases now, by id."""
        settings = self.configuration.settings
        return {
            guest.id: guest
            for guest in self.guests.all()
            if installs(settings, guest) and self._is_served(guest)
        }

    def wake(self, guest_id: str, *, urgent: bool) -> None:
        """Want a pass over a guest: its gate changed."""
        if urgent:
            self.router.add_pass(guest_id)
        else:
            self.router.add_routine_pass(guest_id)

    def tell(self, notice: Notice) -> None:
        """Tell people by an event on kube-fip-config."""
        self.configuration.tell(notice.reason, notice.message, is_warning=notice.is_warning)

    def annotation(self, name: str) -> str:
        """Give an annotation of kube-fip-config; "" where there is none."""
        return self.configuration.annotations.get(name, "")

    def complain(self, message: str) -> None:
        """Tell of an annotation that asks for what cannot be had."""
        self.configuration.complain("BadOption", message)

    def _is_served(self, guest: Guest) -> bool:
        served = served_floating_ips(self.cache, guest)
        return bool(served) and not (guest.paused or any(each.paused for each in served))
