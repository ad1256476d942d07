"""Keys and values of annotations and labels that are probably not what their author meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from fipop.api import names
from fipop.texts import clean, find_alike

MOST_NAMED = 3

# The keys that are read of each kind, and whether the value is a boolean.
RANGE_KEYS = {
    names.ANNOTATION_HARVESTER_CLUSTER: False,
    names.ANNOTATION_HARVESTER_NETWORK: False,
    f"{names.GROUP}/allow-delete": True,
}
FLOATING_IP_KEYS = {
    names.ANNOTATION_CLUSTER: False,
    names.ANNOTATION_RANGE: False,
    names.ANNOTATION_UPDATE_CONFIG_MAP: True,
    names.ANNOTATION_PAUSED: True,
    names.ANNOTATION_IGNORE_CLAIM: False,
}
CLUSTER_ANNOTATIONS = {names.ANNOTATION_PAUSED: True, names.ANNOTATION_FLOATING_IP: True}
CLUSTER_LABELS = {names.LABEL_OPT_IN: True, names.LABEL_REMOVE: True, names.LABEL_CANARY: True}


def find_oddities(what: str, given: Mapping[str, str], known: Mapping[str, bool]) -> tuple[str, ...]:
    """Return a sentence about each key that is a known one but for its case or a letter, and each wrong boolean."""
    return tuple(islice(_find(what, given, known), MOST_NAMED))


def _find(what: str, given: Mapping[str, str], known: Mapping[str, bool]) -> Iterator[str]:
    for key, value in given.items():
        if known.get(key) and names.parse_go_bool(value) is None:
            yield f'The {what} {key} must be "true" or "false": it is "{clean(value, 63)}".'
        meant = find_alike(key, known) if key not in known else ""
        if meant:
            yield f"The {what} {key} is not known: did you mean {meant}?"
