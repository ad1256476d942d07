"""Objects of a Kubernetes API as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""An object that is ours to change."""

JsonView: TypeAlias = Mapping[str, Any]
"""An object that is only read."""
