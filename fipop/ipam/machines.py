"""Addresses of machines: nodes, and the API server of a cluster. They are in use, whatever a range says."""

from __future__ import annotations

from fipop.ipam.addresses import Address, Family, parse_addresses
from fipop.jsons import JsonView, as_list, as_mapping, as_text

_COUNTED = ("InternalIP", "ExternalIP")
"""The types of addresses of a node, of which the first of each family counts."""


def read_node(obj: JsonView) -> tuple[str, frozenset[Address]]:
    """Return the name of a Node, and its first InternalIP and ExternalIP of each family."""
    entries = [as_mapping(each) for each in as_list(as_mapping(obj.get("status")).get("addresses"))]
    first: dict[tuple[str, Family], Address] = {}
    for each in entries:
        for address in parse_addresses([as_text(each.get("address"))]):
            if each.get("type") in _COUNTED:
                first.setdefault((as_text(each.get("type")), address.family), address)
    return as_text(as_mapping(obj.get("metadata")).get("name")), frozenset(first.values())


def read_endpoints(obj: JsonView) -> frozenset[Address]:
    """Return the addresses of Endpoints."""
    subsets = map(as_mapping, as_list(obj.get("subsets")))
    listed = (as_mapping(each) for subset in subsets for each in as_list(subset.get("addresses")))
    return frozenset(parse_addresses(as_text(each.get("ip")) for each in listed))
