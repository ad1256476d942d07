"""What helm's words mean: the one place that reads a program's stderr.

A guest's API server may have written most of them. So only the end is read, and no pattern has an open end: each takes
time that grows with the text, not with its square.
"""

from __future__ import annotations

import re

from fipop.guest.errors import HelmFailure

CLASSIFIED_BYTES = 4096
"""How much of the end of helm's words is read: helm says last why it gave up."""

# The first match wins: an error of the API server may quote the words of another class.
PATTERNS: tuple[tuple[HelmFailure, tuple[str, ...]], ...] = (
    (
        HelmFailure.FILES,
        ("no space left on device", "disk quota exceeded", "read-only file system", "file too large"),
    ),
    (HelmFailure.IN_PROGRESS, (r"another operation \(install/upgrade/rollback\) is in progress",)),
    (HelmFailure.NAME_TAKEN, ("invalid ownership metadata", "cannot be imported into the current release")),
    (HelmFailure.NAMESPACE_TERMINATING, ("because it is being terminated",)),
    (HelmFailure.CERTIFICATE, ("x509: ", "tls: failed to verify", "certificate signed by unknown")),
    (HelmFailure.RENDERING, ("execution error", "template: ", "values don't meet the specifications")),
    (
        HelmFailure.INVALID,
        ("is invalid", "error validating", "cannot be handled as", "no matches for kind", "unable to build"),
    ),
    (HelmFailure.DENIED, ("admission webhook", "failed calling webhook", "admissionpolicy")),
    (
        HelmFailure.UNAUTHORIZED,
        ("unauthorized", "must be logged in", "provide credentials", "credential not found"),
    ),
    (HelmFailure.FORBIDDEN, ("forbidden",)),
    (
        HelmFailure.CHART_NOT_FOUND,
        (
            r'chart "[^"\n]{1,256}"[^\n]{0,64}? not found',
            "no chart (?:name|version) found",
            "404 not found",
            r": not found\b",
            "could not (?:be found|locate)",
            "manifest unknown",
            "name unknown",
        ),
    ),
    (HelmFailure.KILLED, ("context canceled", "signal: (?:terminated|killed)")),
    (
        HelmFailure.UNREACHABLE,
        (
            "cluster unreachable",
            "connection re(?:fused|set)",
            "i/o timeout",
            "no such host",
            "network is unreachable",
            "no route to host",
            "handshake timeout",
            "deadline exceeded",
            "etcdserver",
            r"\beof\b",
            "server is currently unable",
            r"\b50[0234] ",
            "bad gateway",
            "service unavailable",
        ),
    ),
    (HelmFailure.RENDERING, ("parse error", "error converting yaml", "failed to render")),
)
_COMPILED = tuple((failure, re.compile("|".join(patterns))) for failure, patterns in PATTERNS)


def classify(stderr: bytes) -> HelmFailure:
    """Give the class of a failure from the end of what helm wrote to stderr."""
    text = stderr[-CLASSIFIED_BYTES:].decode(errors="replace").lower()
    return next((failure for failure, pattern in _COMPILED if pattern.search(text)), HelmFailure.UNKNOWN)
