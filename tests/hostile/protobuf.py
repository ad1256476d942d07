"""The Secrets that helm sends are in Kubernetes' protobuf: as much of it as they hold."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

MAGIC = b"k8s\0"


def read_secret(body: bytes) -> dict[str, Any]:
    """Read a Secret as JSON would have it: metadata with name, namespace and labels, type, data."""
    raw = next(value for number, value in _fields(body[len(MAGIC) :]) if number == 2)
    secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {}}
    for number, value in _fields(raw):
        if number == 1:
            secret["metadata"] = _read_metadata(value)
        elif number == 2:
            name, content = _read_entry(value)
            secret["data"][name.decode()] = base64.b64encode(content).decode()
        elif number == 3:
            secret["type"] = value.decode()
    return secret


def _read_metadata(message: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"labels": {}}
    for number, value in _fields(message):
        if number in (1, 3):
            found["name" if number == 1 else "namespace"] = value.decode()
        elif number == 11:
            name, text = _read_entry(value)
            found["labels"][name.decode()] = text.decode()
    return found


def _read_entry(message: bytes) -> tuple[bytes, bytes]:
    entry = dict(_fields(message))
    return entry.get(1, b""), entry.get(2, b"")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Give number and content of the fields that have a length; numbers are skipped."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == 0:
            _, at = _varint(message, at)
        elif tag & 7 == 2:
            length, at = _varint(message, at)
            yield tag >> 3, message[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {tag & 7}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
