"""The ConfigMap `kubevip` of a guest cluster: the keys that its floating IPs ask for, and the patch that sets them.

The cloud provider there reads it: `cidr-<namespace>`, `cidr-<pool>` or `cidr-global` has addresses, `allow-share-…` and
`interface-…` shape them, and `allow-pool-<pool>` names the namespaces whose Services may choose the pool. A key is
fipop's if its value is what fipop wrote last, or if it is `cidr-global` and names only addresses that this guest
cluster has or had. All other keys stay.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus

from fipop.api import names
from fipop.api.objects import FloatingIP
from fipop.deadlines import PERMIT_SECONDS
from fipop.errors import ApiError, FipopError
from fipop.ipam.addresses import Address, format_address, parse_address
from fipop.ipam.pool import MAX_GUEST_PARTS, Part, count_parts, parse_leniently
from fipop.jsons import Json, JsonView, as_mapping, as_texts
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS, EVENTS, NAMESPACES
from fipop.texts import clean, is_namespace

logger = logging.getLogger(__name__)

PREDECESSOR_NAMESPACE = "kube-system"
"""kube-fip-operator wrote here, whatever `kubevipNamespace` said."""
HIDDEN_RANGE = "range-global"
"""A key of the guest cluster's owner that serves no Service once there is `cidr-global`."""

_CIDR, _ALLOW_SHARE, _INTERFACE = "cidr-", "allow-share-", "interface-"
_PREFIXES = (_CIDR, _ALLOW_SHARE, _INTERFACE, names.ALLOW_POOL_PREFIX)
_CIDR_GLOBAL = f"{_CIDR}global"
_PREDECESSOR_EMPTY = "/32"
"""What kube-fip-operator wrote for a floating IP without an address."""
MAX_NAMESPACES = 8
"""The most namespaces that one visit writes in."""
MAX_POOL_NAMESPACES = 256
"""The most namespaces of a pool whose Services count as waiting."""
_LONGEST_ANNOTATION = 256 * 1024
_VERSION = re.compile(r"[!-~]{1,64}")


@dataclass(slots=True, kw_only=True)
class ConfigMapKey:
    """One key that floating IPs ask for."""

    values: dict[str, None] = field(default_factory=dict)
    """In their order."""
    overwrite: bool = False
    """Whether it also replaces a foreign value."""
    floating_ips: list[tuple[str, str]] = field(default_factory=list)

    @property
    def value(self) -> str:
        """The text of the key."""
        return ",".join(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapPlan:
    """The write that a ConfigMap needs; none if `changes` is empty and `owned` is what the annotation says."""

    changes: Mapping[str, str | None]
    owned: Mapping[str, str]
    blocked: tuple[str, ...] = ()
    """The keys that have a foreign value."""


class Outcome(StrEnum):
    """What a visit did about the ConfigMap."""

    UNCHANGED = "unchanged"
    WRITTEN = "written"
    WITHHELD = "withheld"
    """The write was not permitted."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapResult:
    """How the ConfigMap is after a visit."""

    outcome: Outcome = Outcome.UNCHANGED
    blocked: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """The keys that have a foreign value, with the floating IPs that ask for them."""
    hides_range: bool = False
    """Whether key `range-global` is hidden by what fipop wrote."""
    overruled: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By floating IP whose interface does not count, a sentence."""
    error: FipopError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAddresses:
    """The addresses of a guest cluster by which its keys are judged."""

    own: frozenset[Address] = frozenset()
    """Those that it holds, and those that it had and that are in quarantine."""
    frozen: frozenset[Address] = frozenset()
    """Those of floating IPs whose `clustername` is wrong: keys with one of them stay as they are."""


def build_keys(floating_ips: Iterable[FloatingIP], granted: frozenset[str]) -> dict[str, ConfigMapKey]:
    """Return the keys of a guest cluster's floating IPs, the oldest first: pools are joined, else the oldest decides.

    `granted`: the addresses that reservations back. A floating IP without one of them asks for nothing.
    """
    keys: dict[str, ConfigMapKey] = {}

    def ask(one: FloatingIP, name: str, values: Iterable[str], *, joins: bool = False) -> None:
        key = keys.setdefault(name, ConfigMapKey())
        if joins or not key.values:
            key.values |= dict.fromkeys(values)
            key.overwrite = key.overwrite or one.update_config_map
            key.floating_ips.append(one.key)

    for one in sorted(floating_ips, key=lambda each: (each.metadata.creation_timestamp, each.key)):
        addresses = [each for each in one.status.addresses if each in granted]
        if not addresses:
            continue
        scope = one.spec.scope or "global"
        ask(one, _CIDR + scope, map(_as_cidr, addresses), joins=True)
        if one.spec.allow_share is not None:
            ask(one, _ALLOW_SHARE + scope, ["true" if one.spec.allow_share else "false"])
        if one.spec.interface:
            ask(one, _INTERFACE + scope, [one.spec.interface])
        if one.spec.pool_namespaces:
            ask(one, names.ALLOW_POOL_PREFIX + scope, one.spec.pool_namespaces, joins=True)
    for name, key in keys.items():
        if name.startswith(names.ALLOW_POOL_PREFIX):
            key.values = dict.fromkeys(
                [names.EVERY_NAMESPACE] if names.EVERY_NAMESPACE in key.values else sorted(key.values)
            )
    return keys


def find_foreign_pools(config_maps: Iterable[Json]) -> frozenset[str]:
    """Return the namespaces whose Services another writer gives a pool to; "global" stands for all others."""
    found: set[str] = set()
    for each in config_maps:
        applied = read_applied(each)
        for key, text in as_texts(each.get("data")).items():
            kind, _, scope = key.partition("-")
            if kind == "namespaces":
                found.update(names.split_names(text))
            elif (f"{kind}-" == _CIDR and applied.get(key) != text) or (
                kind == "range" and key != HIDDEN_RANGE
            ):
                found.add(scope)
    return frozenset(found)


def find_pool_namespaces(
    config_maps: Iterable[Json], namespace: str, pools: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Return the namespaces whose Services may choose a pool, by pool, as the ConfigMap of a namespace has them."""
    here = next((each for each in config_maps if _namespace(each) == namespace), {})
    data, found = as_texts(here.get("data")), dict[str, frozenset[str]]()
    for pool in pools:
        if (text := data.get(names.ALLOW_POOL_PREFIX + pool)) is not None:
            found[pool] = frozenset(filter(names.is_consent, names.split_names(text)[:MAX_POOL_NAMESPACES]))
    return found


def find_overruled(
    floating_ips: Iterable[FloatingIP], keys: Mapping[str, ConfigMapKey]
) -> dict[tuple[str, str], str]:
    """Return a sentence for each floating IP whose interface does not count, as an older one's has the key."""
    found = {}
    for one in floating_ips:
        name = _INTERFACE + (one.spec.scope or "global")
        if one.spec.interface and name in keys and keys[name].value != one.spec.interface:
            found[one.key] = (
                f"Interface {one.spec.interface} does not count: key {name} is {keys[name].value}, by an older "
                "floating IP. Set serviceNamespace or pool to tell them apart."
            )
    return found


def plan_config_map(
    current: Json | None,
    keys: Mapping[str, ConfigMapKey],
    known: KnownAddresses,
    *,
    max_parts: int = MAX_GUEST_PARTS,
) -> ConfigMapPlan:
    """Compare a ConfigMap (None: there is none) with the keys that are wanted.

    Of its pools at most `max_parts` parts are read, the shortest first; a longer one is foreign.
    """
    data, applied = as_texts((current or {}).get("data")), read_applied(current)
    pools = _read_pools(data, max_parts)

    def is_frozen(name: str) -> bool:
        scope = next((name.removeprefix(each) for each in _PREFIXES if name.startswith(each)), name)
        return any(part.holds(each) for part in pools.get(_CIDR + scope, ()) for each in known.frozen)

    def is_ours(name: str, value: str) -> bool:
        if applied.get(name) == value:
            return True
        parts = pools.get(name, ())
        is_read = len(parts) == count_parts(value) and all(each.first == each.last for each in parts)
        names_own = is_read and {Address(each.family, each.first) for each in parts} <= known.own
        return name == _CIDR_GLOBAL and (value.strip() == _PREDECESSOR_EMPTY or names_own)

    changes: dict[str, str | None] = {}
    owned = {name: value for name, value in applied.items() if is_frozen(name)}
    blocked = []
    for name, key in sorted(keys.items()):
        found = data.get(name)
        is_open = found is None or key.overwrite or is_ours(name, found)
        if is_open and not is_frozen(name):
            owned[name] = key.value
            if found != key.value:
                changes[name] = key.value
        elif found != key.value:
            blocked.append(name)
            if name in applied:
                owned[name] = applied[name]
    for name, value in sorted(data.items()):
        is_stale = name not in keys and name.startswith(_PREFIXES) and not is_frozen(name)
        if is_stale and is_ours(name, value):
            changes[name] = None
    return ConfigMapPlan(changes=changes, owned=owned, blocked=tuple(blocked))


def find_namespace(config_maps: Sequence[Json], known: KnownAddresses) -> str | None:
    """Return the namespace of the ConfigMap that fipop or kube-fip-operator wrote last; None if neither did."""
    ours = sorted(_namespace(each) for each in config_maps if _is_annotated(each))
    if ours:
        return ours[0]
    predecessors = (each for each in config_maps if _namespace(each) == PREDECESSOR_NAMESPACE)
    has_key = any(plan_config_map(each, {}, known).changes for each in predecessors)
    return PREDECESSOR_NAMESPACE if has_key else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapWriter:
    """Brings the ConfigMaps of one guest cluster to what is wanted.

    `permit` is asked right before each write, after the guest cluster was read: whether the reservations are still
    held, live, and whether this replica leads. A write that does not follow at once does not follow at all.
    """

    client: KubeClient
    permit: Callable[[], Awaitable[bool]]

    async def sync(
        self, found: Sequence[Json], namespace: str, keys: Mapping[str, ConfigMapKey], known: KnownAddresses
    ) -> ConfigMapResult:
        """Set the keys in a namespace, and remove those of fipop elsewhere: where it or its predecessor wrote."""
        items = {_namespace(each): each for each in found}
        stale = [each for each, item in items.items() if _is_annotated(item) or each == PREDECESSOR_NAMESPACE]
        # The predecessor's place first: it is the one that a cloud provider can read.
        stale.sort(key=lambda place: (place != PREDECESSOR_NAMESPACE, place))
        places = list(dict.fromkeys([namespace, *stale]))[:MAX_NAMESPACES]
        outcome, error = Outcome.UNCHANGED, None
        blocked: dict[str, tuple[tuple[str, str], ...]] = {}
        hides_range = HIDDEN_RANGE in as_texts(items.get(namespace, {}).get("data")) and _CIDR_GLOBAL in keys
        try:
            for place in places:
                current, wanted = items.get(place), keys if place == namespace else {}
                # However many there are, what is read of them in one go is bounded.
                plan = plan_config_map(current, wanted, known, max_parts=MAX_GUEST_PARTS // len(places))
                blocked |= {name: tuple(keys[name].floating_ips) for name in plan.blocked}
                if not plan.changes and read_applied(current) == plan.owned:
                    continue
                if not await self._may_write():
                    outcome = Outcome.WITHHELD
                    break
                await self._write(current, place, plan)
                outcome = Outcome.WRITTEN
                if hides_range and _CIDR_GLOBAL in plan.changes and wanted:
                    await self._report_hidden(place)
        except FipopError as failure:
            error = failure
            outcome = Outcome.FAILED if isinstance(failure, ApiError) else Outcome.WITHHELD
        hides_range = hides_range and _CIDR_GLOBAL not in blocked
        return ConfigMapResult(outcome=outcome, blocked=blocked, hides_range=hides_range, error=error)

    async def _may_write(self) -> bool:
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        return await self.permit() and clock() - asked_at <= PERMIT_SECONDS

    async def _write(self, current: Json | None, namespace: str, plan: ConfigMapPlan) -> None:
        fields = {"namespace": namespace, "keys": clean(", ".join(plan.changes))}
        logger.info("Writing ConfigMap of guest cluster", extra=fields)
        mark = json.dumps(dict(plan.owned), sort_keys=True, separators=(",", ":")) if plan.owned else None
        metadata: Json = {"annotations": {names.ANNOTATION_APPLIED: mark}}
        body: Json = {"metadata": metadata}
        if plan.changes:
            body["data"] = dict(plan.changes)
        if current is not None:
            # 409 if it was written in between.
            metadata["resourceVersion"] = current["metadata"]["resourceVersion"]
            await self.client.merge_patch(CONFIG_MAPS, names.GUEST_CONFIG_MAP, body, namespace=namespace)
            return
        metadata["name"] = names.GUEST_CONFIG_MAP
        try:
            await self.client.create(CONFIG_MAPS, body, namespace=namespace)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                # An administrator named a namespace that is missing; the next visit writes there.
                await self.client.create(NAMESPACES, {"metadata": {"name": namespace}})
            raise

    async def _report_hidden(self, namespace: str) -> None:
        """Record an event in the guest cluster that a key of its owner serves no Service any more."""
        about = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": names.GUEST_CONFIG_MAP,
            "namespace": namespace,
        }
        body = {
            "metadata": {"name": f"{names.GUEST_CONFIG_MAP}.{HIDDEN_RANGE}"},
            "involvedObject": about,
            "reason": "RangeHidden",
            "message": describe_hidden(),
            "type": "Warning",
            "source": {"component": "fipop"},
            "count": 1,
        }
        with suppress(ApiError):  # as long as it is there, it is known
            await self.client.create(EVENTS, body, namespace=namespace)


def describe_hidden() -> str:
    """Return the sentence about a range that `cidr-global` hides."""
    return (
        f"Key {HIDDEN_RANGE} of ConfigMap kubevip serves no Service: the cloud provider reads {_CIDR_GLOBAL} first, "
        "which fipop writes. Use keys of a namespace for addresses of your own."
    )


def parse_config_map(item: Json) -> Json:
    """Return of a guest cluster's ConfigMap what is read. Raises ValueError for what no API server would answer."""
    metadata = item["metadata"]
    namespace, version = metadata.get("namespace"), metadata.get("resourceVersion")
    if not is_namespace(namespace) or not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise ValueError("no ConfigMap of an API server")
    return {
        "metadata": {
            "namespace": namespace,
            "name": names.GUEST_CONFIG_MAP,
            "resourceVersion": version,
            "annotations": as_texts(metadata.get("annotations")),
        },
        "data": as_texts(item.get("data")),
    }


def read_applied(config_map: JsonView | None) -> dict[str, str]:
    """Return the keys that fipop wrote last to a ConfigMap, with their values."""
    # Anybody in the guest cluster can edit it: at worst it gives away that guest cluster's own keys.
    metadata = as_mapping((config_map or {}).get("metadata"))
    text = as_texts(metadata.get("annotations")).get(names.ANNOTATION_APPLIED, "")
    try:
        return as_texts(json.loads(text)) if len(text) <= _LONGEST_ANNOTATION else {}
    except (ValueError, RecursionError):
        return {}


def _read_pools(data: Mapping[str, str], max_parts: int) -> dict[str, tuple[Part, ...]]:
    """Read the pools, the shortest first, up to a bound: whoever writes a huge one does not hide the others."""
    pools: dict[str, tuple[Part, ...]] = {}
    counted = sorted((count_parts(value), name) for name, value in data.items() if name.startswith(_CIDR))
    for parts, name in counted:
        max_parts -= parts
        if max_parts < 0:
            break
        pools[name] = parse_leniently(data[name])
    return pools


def _as_cidr(address: str) -> str:
    parsed = parse_address(address)
    return f"{format_address(parsed)}/{parsed.family.bits}"


def _namespace(config_map: Json) -> str:
    return str(config_map["metadata"]["namespace"])


def _is_annotated(config_map: Json) -> bool:
    return names.ANNOTATION_APPLIED in as_texts(config_map["metadata"].get("annotations"))
