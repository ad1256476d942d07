"""The base of all errors of fipop."""

from __future__ import annotations


class FipopError(Exception):
    """Base of all errors that fipop raises on purpose; the text is one sentence fit for a condition or a log."""
