"""Untrusted texts, made fit for a status, an event, a log line, a metric's label or a command line.

An admin of a guest cluster chooses the answers of its API: escape sequences that rewrite a terminal, characters that
turn the direction of a line, a megabyte instead of a word. All such texts pass this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

LONGEST_WORD = 63
"""The longest name, version or status that is shown: that of a label."""
LONGEST_MESSAGE = 1024

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_READ_AHEAD = 4
_WORD = re.compile(r"([a-z]+)[,:;.?!]*(?:\s|$)")
_NAMES = frozenset({"fipop", "helm", "kubectl"})

# Each a class of characters between two others: nothing in them backtracks more than once for a character.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_LONGEST_RELEASE_NAME = 53
_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")


def clean(text: object, limit: int = LONGEST_MESSAGE) -> str:
    """Return a text printable and cut to `limit` characters, "" if it is not a text.

    ANSI sequences are dropped; every other character that is not printable (control characters, those that change the
    direction of writing, lone surrogates) becomes "?". The time that takes depends on `limit` alone.
    """
    if not isinstance(text, str):
        return ""
    read = _ANSI.sub("", text[: _READ_AHEAD * limit])
    shown = read if read.isprintable() else "".join(each if each.isprintable() else "?" for each in read)
    return shown if len(shown) <= limit and len(text) <= _READ_AHEAD * limit else shown[: limit - 1] + "…"


def sentence(clause: str) -> str:
    """Return a clause as a sentence: with a capital letter and, unless it is a question, a full stop; "" stays "".

    A first word that is a name, a path or a field stays as it is: a file system tells them apart by their case.
    """
    word = _WORD.match(clause)
    begun = clause[:1].upper() + clause[1:] if word is not None and word[1] not in _NAMES else clause
    return begun + ("" if clause.endswith((".", "?")) else ".") if clause else ""


def find_alike(name: str, known: Iterable[str]) -> str:
    """Return the first known name that a name differs from by case or by one letter at most; "" if there is none."""
    return next((each for each in known if _is_alike(name.lower(), each.lower())), "")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question in brackets, after a space, if a known name is like a name that is not known; else ""."""
    like = find_alike(name, known)
    return f' (did you mean "{like}"?)' if like else ""


def _is_alike(name: str, known: str) -> bool:
    if abs(len(name) - len(known)) > 1:
        return False
    shorter = [{text, *(text[:at] + text[at + 1 :] for at in range(len(text)))} for text in (name, known)]
    return not shorter[0].isdisjoint(shorter[1])


def list_some(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first `most` names, and how many more there are: "a, b and 3 more"."""
    shown = separator.join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def count_text(number: int) -> str:
    """Return a number of addresses: exact up to those of IPv4, and a larger one as the nearest power of two, 2^64."""
    return str(number) if number <= 1 << 32 else f"2^{round(math.log2(number))}"


def read_version(tag: str) -> tuple[int, ...]:
    """Return the version that the tag of an image names, such as v1.2.3; empty if it names none."""
    found = _VERSION.fullmatch(tag)
    return tuple(map(int, found.groups())) if found is not None else ()


def is_namespace(text: object) -> bool:
    """Whether a text can be the name of a namespace (RFC 1123 label)."""
    return isinstance(text, str) and _LABEL.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Whether a text can be the value of a label, and so a word of a command line."""
    return _LABEL_VALUE.fullmatch(text) is not None


def is_object_name(text: object) -> bool:
    """Whether a text can be the name of an object (RFC 1123 subdomain)."""
    return isinstance(text, str) and _SUBDOMAIN.fullmatch(text) is not None


def read_name(value: object) -> str:
    """Return the name of an object; "?" for anything else, none of which gets into a condition."""
    return str(value) if is_object_name(value) else "?"


def is_release_name(text: object) -> bool:
    """Whether a text can be the name of a helm release, and so an argument of helm."""
    return is_object_name(text) and len(str(text)) <= _LONGEST_RELEASE_NAME
