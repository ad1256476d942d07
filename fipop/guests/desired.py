"""What a guest cluster should have, by what is known in the management cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fipop.addresses.claims import address_of, read_addresses, slots_named_by
from fipop.addresses.decision import bind_guest
from fipop.addresses.inventory import Inventory
from fipop.addresses.status import find_pause
from fipop.api import names
from fipop.api.objects import FloatingIP, FloatingIPReservation
from fipop.guests.announced import find_dark_since
from fipop.guests.config_map import KnownAddresses
from fipop.guests.discovery import GuestDirectory
from fipop.guests.observed import HARVESTER_MAP, Observed
from fipop.guests.record import GuestRecord
from fipop.helm.charts import Role, Target
from fipop.helm.releases import Release, Status, find_places
from fipop.interfaces import loop_time
from fipop.ipam.addresses import Address, format_address
from fipop.metrics.counters import GuestEvent, count_guest_event
from fipop.rancher.matching import Guest, is_same_network
from fipop.rollout.member import Member
from fipop.runtime.configuration import Configuration
from fipop.settings.options import Settings

AUTO_INTERFACE = "auto"
"""kube-vip on each node chooses the interface with a subnet that contains the address."""
BARE_SECONDS = 600.0
"""How long a guest cluster without a floating IP keeps the keys of fipop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """What one guest cluster should have."""

    guest: Guest
    floating_ips: tuple[FloatingIP, ...] = ()
    """Those whose addresses belong into its ConfigMap."""
    held: tuple[FloatingIPReservation, ...] = ()
    """The reservations that back these addresses."""
    known: KnownAddresses = field(default_factory=KnownAddresses)
    in_conflict: frozenset[Address] = frozenset()
    """The addresses of these floating IPs that another guest cluster uses, too."""
    places: tuple[Release, ...] = ()
    """Where its releases are; empty if fipop neither keeps nor removes any, and none is known."""
    keeps: bool = False
    """Whether fipop keeps its releases there."""
    removes: bool = False
    """Whether fipop removes its releases."""

    @property
    def addresses(self) -> frozenset[Address]:
        """The addresses that reservations back."""
        return frozenset(map(address_of, self.held))

    @property
    def is_complete(self) -> bool:
        """Whether no reservation is missing. A missing one is made again; until then its address stays as it is."""
        backed = frozenset(map(format_address, self.addresses))
        return all(backed.issuperset(each.status.addresses) for each in self.floating_ips)

    @property
    def names_interface(self) -> bool:
        """Whether a floating IP names an interface."""
        return any(each.spec.interface not in ("", AUTO_INTERFACE) for each in self.floating_ips)

    @property
    def served(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """The addresses of each floating IP."""
        return {each.key: each.status.addresses for each in self.floating_ips}


def find_desired(
    inventory: Inventory, guest_id: str, record: GuestRecord, settings: Settings
) -> DesiredState | None:
    """Return what a guest cluster should have; None if it is only read: paused, unknown, or nothing is due there."""
    guest = inventory.known(guest_id)
    if guest is None or is_paused(inventory, guest):
        return None
    every = inventory.floating_ips_of(guest.id)
    serves = [(each, bind_guest(inventory, each).blocker is None) for each in every if each.status.addresses]
    floating_ips = tuple(each for each, is_bound in serves if is_bound)
    held = tuple(
        each
        for one in floating_ips
        for each in inventory.reservations_of(one.key)
        if each.is_held and each.spec.owner.uid == one.uid
    )
    former = inventory.find_quarantined(guest.id)
    known = KnownAddresses(
        own=frozenset(map(address_of, (*held, *former))),
        frozen=read_addresses(
            text for each, is_bound in serves if not is_bound for text in each.status.addresses
        ),
    )
    keeps = bool(floating_ips) and _is_opted_in(guest, settings)
    removes = is_leaving(guest, settings)
    reported = [each for status in inventory.guest_statuses(guest.id) for each in status.releases]
    is_known = any(each.revision for each in reported)
    if not (floating_ips or former or removes or _has_old_keys(inventory, record, guest.id)):
        return None
    return DesiredState(
        guest=guest,
        floating_ips=tuple(_with_interface(inventory, each) for each in floating_ips),
        held=held,
        known=known,
        in_conflict=_find_conflicts(inventory, floating_ips),
        places=find_places(settings, reported) if keeps or removes or is_known else (),
        keeps=keeps and not removes,
        removes=removes,
    )


def describe_interface_mismatch(
    inventory: Inventory, floating_ip: FloatingIP, interfaces: Mapping[str, str]
) -> str:
    """Return how the interface of a floating IP contradicts that of its network; "" if it does not."""
    found = inventory.ranges.get("", floating_ip.status.range or "")
    network, wanted = (found.harvester_network or "", floating_ip.spec.interface) if found else ("", "")
    for name, interface in interfaces.items() if network and wanted not in ("", AUTO_INTERFACE) else ():
        if is_same_network(network, name) and interface != wanted:
            return (
                f"Interface {wanted} is not that of network {name}: ConfigMap kube-system/{HARVESTER_MAP} of the guest "
                f"cluster has {interface}. Correct spec.interface."
            )
    return ""


def is_leaving(guest: Guest, settings: Settings) -> bool:
    """Return whether a guest cluster has to lose the releases of fipop: two labels say so."""
    wants_removal = guest.cluster.opted_out and guest.cluster.wants_removal
    return wants_removal and not (settings.unknown_release_options or guest.deleting)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptedInGuests:
    """The guest clusters in which fipop keeps releases, for the controller of rollouts."""

    guests: GuestDirectory
    configuration: Configuration

    def list_opted_in(self) -> Iterator[Guest]:
        """Yield the guest clusters that are opted in, by id."""
        settings = self.configuration.settings
        return (guest for guest in self.guests.inventory.known_guests() if _is_opted_in(guest, settings))

    def find_member(self, guest: Guest, target: Target, stable: Target | None) -> Member:
        """Return a guest cluster as its last visit found it, with these targets as they are for it."""
        record = self.guests.record(guest.id)
        own, own_stable = record.choose_targets(guest.cluster, target, stable)
        now, at = self.guests.client.server_now(), loop_time()
        inventory = self.guests.inventory
        floating_ips = inventory.floating_ips_of(guest.id)
        dark = (
            find_dark_since(each, record.announced_states.get(each.key), now=now, at=at)
            for each in floating_ips
        )
        return Member(
            target=own,
            stable=own_stable,
            releases=record.releases,
            visited_at=record.visited_at,
            taken_up_at=record.began_at if record.began_target == own.name else None,
            chosen_at=record.chosen_at,
            hindrance=_find_hindrance(inventory, guest, floating_ips) or record.describe_rest(own.name),
            helm_problem=record.describe_failure(own.name),
            dark_since=max((each for each in dark if each is not None), default=None),
            is_canary=guest.cluster.labels.get(names.LABEL_CANARY) == "true",
            name=guest.cluster_name,
            shown=guest.shown,
        )


def choose_namespace(desired: DesiredState, observed: Observed | None, written: str | None) -> str | None:
    """Return the namespace of the ConfigMap: where the cloud provider runs, else where it was `written` last.

    None: the one of the options.
    """
    if observed is not None:
        provider = observed.cloud_provider
        return provider.namespace if provider.status is not Status.ABSENT else written
    # What could not be read is where it was, if the status names it.
    known = (each.namespace for each in desired.places if each.role is Role.CLOUD_PROVIDER)
    return written or next(known, None)


def count_event(guests: GuestDirectory, guest: Guest, event: GuestEvent, *, success: bool) -> None:
    """Count an event of a guest cluster that is still there."""
    if guests.inventory.exists(guest.id):
        count_guest_event(guest.cluster_name, guest.harvester_cluster_name or "", event, success)


def find_needs(floating_ip: FloatingIP | None) -> tuple[object, ...] | None:
    """Return all that a visit of its guest cluster takes from a floating IP; None if it takes nothing."""
    if floating_ip is None or not floating_ip.status.addresses:
        return None
    return (
        floating_ip.uid,
        floating_ip.status.addresses,
        floating_ip.spec.scope,
        floating_ip.spec.pool_namespaces,
        floating_ip.spec.allow_share,
        floating_ip.spec.interface,
        floating_ip.update_config_map,
        floating_ip.paused,
        floating_ip.ignored_claims,
        floating_ip.cluster,
        floating_ip.problem,
    )


def _with_interface(inventory: Inventory, floating_ip: FloatingIP) -> FloatingIP:
    """Return a floating IP with the interface of its range if it names none itself."""
    found = inventory.ranges.get("", floating_ip.status.range or "")
    if floating_ip.spec.interface or found is None:
        return floating_ip
    return replace(floating_ip, spec=replace(floating_ip.spec, interface=found.spec.interface))


def _is_opted_in(guest: Guest, settings: Settings) -> bool:
    return settings.kubevip_guest_install.includes(opted_in=guest.cluster.opted_in)


def is_paused(inventory: Inventory, guest: Guest) -> bool:
    """Return whether an administrator paused it."""
    return bool(_find_pause(guest, inventory.floating_ips_of(guest.id)))


def _find_pause(guest: Guest, floating_ips: Iterable[FloatingIP]) -> str:
    """Return what pauses a guest cluster. Keys of several floating IPs are merged: all stay as they are."""
    return find_pause(guest.cluster, (each for each in floating_ips if each.status.addresses))


def _find_hindrance(inventory: Inventory, guest: Guest, every: Collection[FloatingIP]) -> str:
    """Return why a guest cluster with floating IPs takes no part in rollouts, as sentences; "" if it can."""
    if not guest.provisioned:
        return "Rancher has not provisioned the guest cluster."
    if pause := _find_pause(guest, every):
        return pause
    floating_ips = [each for each in every if each.status.addresses]
    if all(bind_guest(inventory, each).blocker is not None for each in floating_ips):
        return "The guest cluster has no floating IP with an address."
    return ""


def _has_old_keys(inventory: Inventory, record: GuestRecord, guest_id: str) -> bool:
    """Whether a guest cluster has been without a floating IP for so long that it loses the keys of fipop."""
    since = record.bare_since
    is_bare = since is not None and loop_time() - since >= BARE_SECONDS
    return is_bare and bool(inventory.reports.find_ours(guest_id))


def _find_conflicts(inventory: Inventory, floating_ips: tuple[FloatingIP, ...]) -> frozenset[Address]:
    return frozenset(
        address
        for each in floating_ips
        for space, address in slots_named_by(each.status)
        if inventory.find_rivals(each, space, address)
    )
