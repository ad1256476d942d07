"""What rollouts and departures are given of the rest of the operator, in each term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fipop.api.models import Removal
from fipop.operator.configuration import Configuration
from fipop.operator.estate import Estate
from fipop.operator.guests.departures import Departures
from fipop.operator.guests.tasks import served_floating_ips
from fipop.operator.notices import Notices
from fipop.operator.rollout.controller import RolloutController
from fipop.operator.rollout.plan import Notice
from fipop.operator.rollout.store import RolloutStore
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
            if settings.kubevip_guest_install.includes(opted_in=guest.opted_in) and self._is_served(guest)
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


def build_rollout(
    estate: Estate, *, cache: ClusterCache, guests: GuestDirectory, router: Router
) -> RolloutController:
    """Build what leads rollouts in one term."""
    return RolloutController(
        store=RolloutStore(client=estate.client, namespace=estate.namespace),
        guests=guests,
        sessions=estate.sessions,
        settings=lambda: estate.configuration.settings,
        surroundings=RolloutParts(
            cache=cache, guests=guests, router=router, configuration=estate.configuration
        ),
        now=lambda: estate.client.server_now().timestamp(),
    )


def build_departures(estate: Estate, *, guests: GuestDirectory, notices: Notices) -> Departures:
    """Build what knows of the guests that are left in one term."""

    def find_all() -> list[Guest]:
        # Also those whose links are still to be resolved: a new term must not count only those that it knows by then.
        ids = sorted({cluster.cluster_name for cluster in estate.cache.clusters.all()})
        found = (guests.known(each) or guests.glimpse(each) for each in ids)
        return [guest for guest in found if guest is not None]

    def find_records(guest_id: str) -> frozenset[Removal]:
        statuses = (each.status.guest for each in estate.cache.floating_ips_of(guest_id))
        return frozenset(each.removal for each in statuses if each is not None and each.removal is not None)

    return Departures(
        settings=lambda: estate.configuration.settings,
        guests=find_all,
        recorded=find_records,
        confirmed=notices.confirmed_removals,
        tell=notices.tell_mass_removal,
        state=guests.state,
    )
