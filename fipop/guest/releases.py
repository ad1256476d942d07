"""Helm's releases in a guest as values, read from the Secrets in which helm keeps them.

Metadata is enough for what fipop installed: labels on the Secret tell role, digest and version. What
kube-fip-operator installed has none of these and is decoded once (`decode_release`).
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from fipop.api import names
from fipop.api.conditions import parse_time
from fipop.errors import ReleaseRecordError
from fipop.guest.charts import ChartIdentity, Role, WantedRelease

Json: TypeAlias = dict[str, Any]

SELECTOR = "owner=helm,status!=superseded"
"""Of helm's Secrets, those that say how a release stands; its older revisions are superseded."""

LABEL_CHART_VERSION = f"{names.GROUP}/chart-version"
LABEL_OBJECT_NAME = f"{names.GROUP}/object-name"
LABEL_REVISION = f"{names.GROUP}/revision"
"""The revision that fipop made. Helm carries labels over to revisions that others make, this number too."""

_MAX_RELEASE_BYTES = 16 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_LONGEST_LABEL = 63


class Status(StrEnum):
    """Helm's word for how a revision stands."""

    DEPLOYED = "deployed"
    FAILED = "failed"
    PENDING_INSTALL = "pending-install"
    PENDING_UPGRADE = "pending-upgrade"
    PENDING_ROLLBACK = "pending-rollback"
    UNINSTALLING = "uninstalling"
    UNINSTALLED = "uninstalled"
    UNKNOWN = "unknown"

    @property
    def is_under_way(self) -> bool:
        """Whether a helm process works on it, or died while it did."""
        return self.value.startswith("pending-") or self is Status.UNINSTALLING


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRecord:
    """One revision of a release, from the metadata of its Secret."""

    secret: str
    uid: str
    resource_version: str
    namespace: str
    name: str
    revision: int
    status: Status
    created: datetime
    role: Role | None = None
    digest: str | None = None
    chart_version: str | None = None
    object_name: str | None = None
    made_revision: str | None = None

    @property
    def is_by_us(self) -> bool:
        """Whether fipop made this very revision; a later one by hand has our digest, and yet other contents."""
        return self.digest is not None and self.made_revision == str(self.revision)

    @property
    def key(self) -> tuple[str, str]:
        """What names a release in a guest: (namespace, name)."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRelease:
    """What a release's Secret holds, as far as it is asked for; values may hold secrets."""

    chart_name: str
    chart_version: str
    values: Mapping[str, Any] = field(repr=False)
    manifest: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseState:
    """How one release stands: its latest revision, and how many of its last revisions failed in a row."""

    latest: ReleaseRecord
    failures: int = 0
    decoded: DecodedRelease | None = None

    @property
    def chart_version(self) -> str:
        """The version of the chart that the latest revision came from; "" where it is not known."""
        return self.latest.chart_version or (self.decoded.chart_version if self.decoded else "")

    @property
    def object_name(self) -> str:
        """The name that the release's objects have; it was chosen at the first install."""
        if self.latest.object_name is not None:
            return self.latest.object_name
        override = self.decoded.values.get("nameOverride") if self.decoded is not None else None
        return override if isinstance(override, str) and override else self.latest.name


def parse_record(secret: Json) -> ReleaseRecord | None:
    """Read the metadata of a release's Secret; None for what is no release of helm 3."""
    metadata = secret.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    labels = metadata.get("labels")
    labels = labels if isinstance(labels, dict) else {}
    created = parse_time(metadata.get("creationTimestamp"))
    revision = str(labels.get("version", ""))
    if labels.get("owner") != "helm" or not labels.get("name") or created is None or not revision.isdecimal():
        return None
    return ReleaseRecord(
        secret=str(metadata.get("name")),
        uid=str(metadata.get("uid")),
        resource_version=str(metadata.get("resourceVersion")),
        namespace=str(metadata.get("namespace")),
        name=str(labels["name"]),
        revision=int(revision),
        status=_member(Status, labels.get("status")) or Status.UNKNOWN,
        created=created,
        role=_member(Role, labels.get(names.LABEL_ROLE)),
        digest=labels.get(names.LABEL_DIGEST),
        chart_version=_version_of(labels.get(LABEL_CHART_VERSION)),
        object_name=labels.get(LABEL_OBJECT_NAME),
        made_revision=labels.get(LABEL_REVISION),
    )


def build_labels(
    role: Role, wanted_digest: str, chart: ChartIdentity, *, object_name: str, revision: int
) -> dict[str, str]:
    """Give the labels that fipop has helm put on a release; `parse_record` reads them back."""
    return {
        names.LABEL_ROLE: role.value,
        names.LABEL_DIGEST: wanted_digest,
        # As helm does with tags: a label takes no plus sign.
        LABEL_CHART_VERSION: chart.version.replace("+", "_")[:_LONGEST_LABEL],
        LABEL_OBJECT_NAME: object_name[:_LONGEST_LABEL],
        LABEL_REVISION: str(revision),
    }


def decode_release(secret: Json) -> DecodedRelease:
    """Read a release's Secret: base64 in base64, gzip, JSON. It comes from a guest: bounded, and nothing trusted.

    Raises ReleaseRecordError.
    """
    metadata = secret.get("metadata") or {}
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"], validate=True), validate=True)
        unpacker = zlib.decompressobj(_GZIP)
        text = unpacker.decompress(packed, _MAX_RELEASE_BYTES)
        if not unpacker.eof:
            raise ValueError
        release = json.loads(text)
        chart = release["chart"]["metadata"]
        values = release.get("config") or {}
        manifest = release.get("manifest") or ""
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, binascii.Error, zlib.error):
        raise _unreadable(metadata, "it is no release of helm, or too large") from None
    if not isinstance(values, dict) or not isinstance(manifest, str):
        raise _unreadable(metadata, "its values or its manifest have another shape")
    return DecodedRelease(
        chart_name=str(chart.get("name")),
        chart_version=str(chart.get("version")),
        values=values,
        manifest=manifest,
    )


def build_states(records: Iterable[ReleaseRecord]) -> dict[tuple[str, str], ReleaseState]:
    """Group revisions into releases, by (namespace, name)."""
    grouped: dict[tuple[str, str], list[ReleaseRecord]] = {}
    for record in records:
        grouped.setdefault(record.key, []).append(record)
    states = {}
    for key, revisions in sorted(grouped.items()):
        revisions.sort(key=lambda record: record.revision, reverse=True)
        failures = 0
        for record in revisions:
            if record.status is not Status.FAILED:
                break
            failures += 1
        states[key] = ReleaseState(latest=revisions[0], failures=failures)
    return states


def find_managed(
    states: Mapping[tuple[str, str], ReleaseState], wanted: WantedRelease
) -> ReleaseState | None:
    """Give the release of a role that carries our labels; of several the one of the wanted name, else the first."""
    ours = [
        state
        for state in states.values()
        if state.latest.role is wanted.role and state.latest.status is not Status.UNINSTALLED
    ]
    ours.sort(key=lambda state: (state.latest.key != (wanted.namespace, wanted.name), state.latest.key))
    return ours[0] if ours else None


def find_candidates(
    states: Mapping[tuple[str, str], ReleaseState],
    wanted: WantedRelease,
    running: Sequence[tuple[str, str]],
) -> tuple[ReleaseState, ...]:
    """Give the releases without our labels that may be the predecessor's for this role, the likeliest first.

    `running`: releases whose workloads run the role's program; so one is found that a changed name would hide.
    """
    candidates = [
        state
        for state in states.values()
        if state.latest.role is None
        and state.latest.status is not Status.UNINSTALLED
        and (state.latest.name == wanted.name or state.latest.key in running)
    ]
    candidates.sort(key=lambda state: (state.latest.key != (wanted.namespace, wanted.name), state.latest.key))
    return tuple(candidates)


def _unreadable(metadata: Json, reason: str) -> ReleaseRecordError:
    return ReleaseRecordError(
        namespace=str(metadata.get("namespace")), name=str(metadata.get("name")), reason=reason
    )


def _member(kind: Any, value: object) -> Any:
    return kind(value) if isinstance(value, str) and value in {item.value for item in kind} else None


def _version_of(label: object) -> str | None:
    return label.replace("_", "+") if isinstance(label, str) and label else None
