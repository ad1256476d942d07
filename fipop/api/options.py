"""kube-fip-config as the API server stores it: texts by the names of options."""

from __future__ import annotations

from fipop.jsons import JsonView, as_mapping, as_text

_BAD = "\0"
"""A bad value of every option."""


def read_texts(config_map: JsonView) -> dict[str, str]:
    """Return the text of each option; one that is not UTF-8 is bad, not absent."""
    texts = {name: as_text(value) for name, value in as_mapping(config_map.get("data")).items()}
    return texts | dict.fromkeys(as_mapping(config_map.get("binaryData")), _BAD)


def find_binary(config_map: JsonView) -> tuple[str, ...]:
    """Return a clause for each option that is not UTF-8: `kubectl create configmap` puts its file into binaryData."""
    found = as_mapping(config_map.get("binaryData"))
    return tuple(f'option "{name}" is in binaryData: it must be text in UTF-8' for name in sorted(found))
