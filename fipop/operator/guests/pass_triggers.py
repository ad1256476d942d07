"""When a change of a floating IP calls for a pass over its guest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fipop.api.models import FloatingIP
from fipop.state.cache import ClusterCache


@dataclass(slots=True, kw_only=True)
class PassTriggers:
    """Remembers of each floating IP what its guest was to be told at its last round."""

    cache: ClusterCache
    add_pass: Callable[[str], None]
    _told: dict[tuple[str, str], tuple[object, ...]] = field(default_factory=dict)

    def note_settled(self, floating_ip: FloatingIP) -> None:
        """Want a pass over the guest where it has to be told something new."""
        key = floating_ip.meta.key
        if self.cache.floating_ips.get(*key) is None:
            return  # it went during its round, and that brought a pass about
        telling = (
            floating_ip.uid,
            floating_ip.status.addresses,
            floating_ip.service_namespace,
            floating_ip.allow_share,
            floating_ip.interface,
            floating_ip.update_config_map,
            floating_ip.paused,
            floating_ip.ignored_claims,
            floating_ip.cluster,
            floating_ip.status.guest.removal if floating_ip.status.guest is not None else None,
        )
        if self._told.get(key) != telling:
            self._told[key] = telling
            self.add_pass(floating_ip.namespace)

    def forget(self, key: tuple[str, str]) -> None:
        """Forget a floating IP that is gone."""
        self._told.pop(key, None)
