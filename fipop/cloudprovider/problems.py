"""What is wrong with the addresses that a Service has: values in, values out. It is reported, and nothing else."""

from __future__ import annotations

from fipop.api.service import ADDRESSES, MOST_ADDRESSES, Service
from fipop.cloudprovider.needs import is_assigned
from fipop.cloudprovider.pools import PoolKeys
from fipop.cloudprovider.usage import Usage, User, name_users
from fipop.ipam.addresses import DHCP_ADDRESSES, FamilyPolicy, format_address, parse_addresses
from fipop.texts import clean


def find_problems(service: Service, user: User, usage: Usage, keys: PoolKeys) -> dict[str, str]:
    """Return the text of a Warning by its reason; "" if that problem does not exist."""
    # Nothing is known of the addresses of a key that cannot be read.
    are_known = bool(keys.pools) and not any(each.problem for each in keys.pools)
    shared, dropped, outside = [], [], []
    for address in service.annotated or tuple(filter(None, [service.requested])):
        text, others = format_address(address), usage.find_conflicting(address, user)
        if others:
            shared.append(f"Address {text} is also in use by {name_users(others)}. Change one.")
        if others := usage.find_dropped(address, user):
            dropped.append(
                f"Address {text} is shared with {name_users(others)}, which has other pods, and "
                "externalTrafficPolicy of one of them is Local. One node announces the address, and drops traffic for "
                "pods on other nodes. Set Cluster, or give each its own address."
            )
        if are_known and address not in DHCP_ADDRESSES and not keys.has_address(address):
            outside.append(f"Address {text} is in no pool of the ConfigMap. fipop leaves it as it is.")
    return {
        "AnnotationUnusual": " ".join(service.spelling_warnings),
        "AddressInUse": " ".join(shared),
        "SharedAddressLocal": " ".join(dropped),
        "AddressOutsidePools": " ".join(outside),
        "InvalidAddress": "" if is_assigned(service) else _find_invalid(service),
        "FamilyMissing": "" if is_assigned(service) else _find_missing_family(service),
    }


def _find_invalid(service: Service) -> str:
    text = service.annotation or service.request
    parts = [each.strip() for each in text.split(",")[:MOST_ADDRESSES]] if text else []
    odd = [clean(each, 64) for each in parts if not parse_addresses([each])]
    return " ".join(f'"{each}" is not an IP address. Correct the Service.' for each in odd)


def _find_missing_family(service: Service) -> str:
    has = {each.family for each in service.annotated}
    lacking = [each.label for each in service.families if each not in has]
    if service.policy is not FamilyPolicy.REQUIRE_DUAL_STACK or not has or not lacking:
        return ""
    return f"The Service requires {lacking[0]}, too. Add an address to annotation {ADDRESSES}."
