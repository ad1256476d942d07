"""Rancher's objects, in short words."""

from typing import Any

from tests.unit.rancher.examples import encode


def secret(**fields: str) -> dict[str, Any]:
    return {"data": {f"harvestercredentialConfig-{key}": encode(text) for key, text in fields.items()}}
