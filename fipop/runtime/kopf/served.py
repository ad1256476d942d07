"""What the API server serves: kopf looks once, and never again."""

from __future__ import annotations

from collections.abc import Collection

import aiohttp

from fipop.kube.resources import Resource


async def find_missing(
    session: aiohttp.ClientSession, server: str, resources: Collection[Resource], *, seconds: float
) -> tuple[str, ...]:
    """Give those of the resources, by their full names, that are not served (yet).

    Each question has `seconds`. Raises aiohttp.ClientError and TimeoutError.
    """
    served = {
        path: await _find_served(session, server.rstrip("/") + path, seconds)
        for path in sorted({_version_path(resource) for resource in resources})
    }
    return tuple(
        full_name(resource)
        for resource in resources
        if resource.plural not in served[_version_path(resource)]
    )


def full_name(resource: Resource) -> str:
    """Give `plural.group`, or the plural alone for the core group."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


async def _find_served(session: aiohttp.ClientSession, url: str, seconds: float) -> frozenset[str]:
    async with session.get(url, timeout=aiohttp.ClientTimeout(total=seconds)) as response:
        if not response.ok:
            return frozenset()
        answer = await response.json()
    return frozenset(entry["name"] for entry in answer["resources"])


def _version_path(resource: Resource) -> str:
    return resource.path().rpartition("/")[0]
