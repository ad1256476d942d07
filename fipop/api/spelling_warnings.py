"""Keys and values of annotations and labels that are probably not what their author meant."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from fipop.api import names
from fipop.texts import LONGEST_WORD, clean, find_alike, is_namespace

MOST_NAMED = 3

KnownKeys: TypeAlias = Mapping[str, Container[str] | None]
"""The keys that are read of a kind, each with the values that have a meaning; None for any value."""

EXACT = ("true", "false")
"""Where "true" is compared letter by letter: what removes, what deletes, and what the API server reads."""


class _Ids(Container[str]):
    """Every text that is a list of ids of guest clusters, separated by commas."""

    def __contains__(self, value: object) -> bool:
        return all(is_namespace(each.strip()) for each in str(value).split(",") if each.strip())

    def __str__(self) -> str:
        return "ids of guest clusters, separated by commas"


RANGE_KEYS: KnownKeys = {
    names.ANNOTATION_HARVESTER_CLUSTER: None,
    names.ANNOTATION_HARVESTER_NETWORK: None,
    f"{names.GROUP}/allow-delete": EXACT,
}
FLOATING_IP_KEYS: KnownKeys = {
    names.ANNOTATION_CLUSTER: None,
    names.ANNOTATION_RANGE: None,
    names.ANNOTATION_UPDATE_CONFIG_MAP: names.GO_BOOLS,
    names.ANNOTATION_PAUSED: names.GO_BOOLS,
    names.ANNOTATION_IGNORE_CLAIM: _Ids(),
}
CLUSTER_ANNOTATIONS: KnownKeys = {
    names.ANNOTATION_PAUSED: names.GO_BOOLS,
    names.ANNOTATION_FLOATING_IP: names.GO_BOOLS,
}
CLUSTER_LABELS: KnownKeys = {
    names.LABEL_OPT_IN: names.GO_BOOLS,
    names.LABEL_REMOVE: EXACT,
    names.LABEL_CANARY: EXACT,
}


def find_spelling_warnings(what: str, given: Mapping[str, str], known: KnownKeys) -> tuple[str, ...]:
    """Return a sentence about each key that is a known one but for its case or a letter, and each wrong boolean."""
    return tuple(islice(_find(what, given, known), MOST_NAMED))


def _find(what: str, given: Mapping[str, str], known: KnownKeys) -> Iterator[str]:
    for key, value in given.items():
        meanings = known.get(key)
        if meanings is not None and value not in meanings:
            wanted = meanings if isinstance(meanings, _Ids) else '"true" or "false"'
            yield f'The {what} {key} must be {wanted}: it is "{clean(value, LONGEST_WORD)}".'
        meant = find_alike(key, known) if key not in known else ""
        if meant:
            yield f"The {what} {key} is not known: did you mean {meant}?"
