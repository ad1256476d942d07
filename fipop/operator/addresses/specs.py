"""Write into the spec of a FloatingIP the addresses that it holds: the documented contract, and its limits.

No wish of people is written over, and nobody who insists on another value is fought without end.
"""

from __future__ import annotations

from collections.abc import Mapping

from fipop.api import names
from fipop.api.models import FloatingIP, Requested
from fipop.ipam.addresses import Address, Family, format_address
from fipop.kube.client import Json, KubeClient
from fipop.kube.resources import FLOATING_IPS
from fipop.operator.addresses.allocation import Blocker, address_of
from fipop.operator.addresses.claiming import Outcome, is_named
from fipop.operator.addresses.ownership import is_made_by_us, read_addresses
from fipop.operator.addresses.request import Request, in_order
from fipop.state.cache import ClusterCache

MAX_WRITE_BACKS = 2
"""How often a spec.ipaddress that was emptied is written again before it is left to whoever empties it."""

SPEC_REVERTED = "SpecReverted"
SPEC_REVERTED_MESSAGE = "spec.ipaddress is changed back again and again: status.addresses tells what is held"


class SpecWriter:
    """Writes the addresses of floating IPs into their specs, and counts how often it had to write one again."""

    def __init__(self, *, client: KubeClient, cache: ClusterCache) -> None:
        self._client = client
        self._cache = cache
        self._write_backs: dict[str, int] = {}

    async def write(self, floating_ip: FloatingIP, request: Request, outcome: Outcome) -> FloatingIP:
        """Write what the spec does not name, or add to `outcome` why not; gives the floating IP as it is then.

        Raises ApiError; ApiConflictError where it is another one by now.
        """
        addresses = self._to_name(floating_ip, request, outcome)
        if not addresses or dict(request.static) == addresses:
            self._forget_write_backs(floating_ip, request)
            return floating_ip
        # What the status told already stood in the spec, too: somebody took it out.
        is_write_back = set(addresses.values()) <= read_addresses(floating_ip.status.addresses)
        if is_write_back and not self._may_write_back(floating_ip):
            outcome.blockers.append(Blocker(reason=SPEC_REVERTED, message=SPEC_REVERTED_MESSAGE))
            return floating_ip
        metadata: Json = {"resourceVersion": str(floating_ip.resource_version), "uid": floating_ip.uid}
        if floating_ip.range is None and is_made_by_us(floating_ip):
            metadata["annotations"] = {names.ANNOTATION_RANGE: next(iter(outcome.held.values())).range}
        patch: Json = {
            "metadata": metadata,
            "spec": {"ipaddress": ",".join(format_address(each) for each in in_order(request, addresses))},
        }
        answer = await self._client.merge_patch(
            FLOATING_IPS, floating_ip.name, patch, namespace=floating_ip.namespace
        )
        if is_write_back:  # one that failed is none
            self._write_backs[floating_ip.uid] = self._write_backs.get(floating_ip.uid, 0) + 1
        return self._cache.take_written(answer)

    def _to_name(
        self, floating_ip: FloatingIP, request: Request, outcome: Outcome
    ) -> Mapping[Family, Address]:
        """Give the addresses that the spec should name: those held, but no wish is written over.

        While one is open the other family, which was chosen, may have become another one. The spec is written before
        the status: where it differs from one that is told already, people wrote it.
        """
        if not outcome.is_short_of(request):
            return {family: address_of(each) for family, each in outcome.held.items()}
        if outcome.stands_still:
            return request.static
        news = {
            family: address_of(each)
            for family, each in outcome.held.items()
            if not is_named(floating_ip, each)
        }
        known = self._cache.reservations_of(floating_ip.meta.key)
        chosen = {address_of(each) for each in known if each.is_held and each.requested is Requested.DYNAMIC}
        return {
            family: news.get(family, address) if address in chosen else address
            for family, address in request.static.items()
        }

    def _may_write_back(self, floating_ip: FloatingIP) -> bool:
        # Beside another blocker the message alone tells, also after a restart.
        stopped = any(SPEC_REVERTED_MESSAGE in each.message for each in floating_ip.status.conditions)
        return not stopped and self._write_backs.get(floating_ip.uid, 0) < MAX_WRITE_BACKS

    def _forget_write_backs(self, floating_ip: FloatingIP, request: Request) -> None:
        """Somebody else's word in the spec ends the quarrel; our own write-back does not."""
        named = {format_address(each) for each in request.static.values()}
        if named and named != set(floating_ip.status.addresses):
            self._write_backs.pop(floating_ip.uid, None)
