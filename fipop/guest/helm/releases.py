"""Helm's releases in a guest as values, read from the metadata of the Secrets in which helm keeps them.

Labels on the Secret tell role, digest and version of what fipop installed. What kube-fip-operator installed has none of
these, and helm is asked what it is (`ReleaseDescription`); what stands in a Secret is never read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from fipop.api import names
from fipop.api.codec import parse_time
from fipop.guest.helm.charts import ChartIdentity, Role
from fipop.jsons import Json, as_mapping
from fipop.texts import clean, is_namespace, is_object_name, is_release_name

SELECTOR = "owner=helm,status!=superseded"
"""Of helm's Secrets, those that say how a release stands; its older revisions are superseded."""

LABEL_CHART_VERSION = f"{names.GROUP}/chart-version"
LABEL_OBJECT_NAME = f"{names.GROUP}/object-name"
LABEL_REVISION = f"{names.GROUP}/revision"
"""The revision that fipop made. Helm carries labels over to revisions that others make, this number too."""

_LONGEST_LABEL = 63
_REVISION = re.compile(r"[0-9]{1,9}")


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
class ReleaseDescription:
    """What helm tells of a revision: its chart, and the values that somebody gave, which may hold secrets."""

    chart_name: str
    chart_version: str
    values: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseState:
    """How one release stands: its latest revision, and how many of its last revisions failed in a row.

    `deployed_revision`: the one that helm calls deployed; 0 for none.
    """

    latest: ReleaseRecord
    failures: int = 0
    deployed_revision: int = 0
    description: ReleaseDescription | None = None

    @property
    def chart_version(self) -> str:
        """The version of the chart that the latest revision came from; "" where it is not known."""
        return self.latest.chart_version or (self.description.chart_version if self.description else "")

    @property
    def object_name(self) -> str:
        """The name that the release's objects have; it was chosen at the first install."""
        if self.latest.object_name is not None:
            return self.latest.object_name
        override = self.description.values.get("nameOverride") if self.description is not None else None
        return str(override) if is_object_name(override) else self.latest.name


def parse_record(secret: Json) -> ReleaseRecord | None:
    """Read the metadata of a release's Secret; None for what is no release of helm 3."""
    metadata = as_mapping(secret.get("metadata"))
    labels = as_mapping(metadata.get("labels"))
    created = parse_time(metadata.get("creationTimestamp"))
    name, namespace, object_name = (
        labels.get("name"),
        metadata.get("namespace"),
        labels.get(LABEL_OBJECT_NAME),
    )
    revision = str(labels.get("version", ""))
    is_release = labels.get("owner") == "helm" and is_release_name(name) and is_namespace(namespace)
    if not is_release or created is None or not _REVISION.fullmatch(revision):
        return None
    return ReleaseRecord(
        secret=str(metadata.get("name")),
        uid=str(metadata.get("uid")),
        resource_version=str(metadata.get("resourceVersion")),
        namespace=str(namespace),
        name=str(name),
        revision=int(revision),
        status=_member(Status, labels.get("status")) or Status.UNKNOWN,
        created=created,
        role=_member(Role, labels.get(names.LABEL_ROLE)),
        digest=clean(labels.get(names.LABEL_DIGEST), _LONGEST_LABEL) or None,
        chart_version=_version_of(labels.get(LABEL_CHART_VERSION)),
        object_name=str(object_name) if is_object_name(object_name) else None,
        made_revision=clean(labels.get(LABEL_REVISION), _LONGEST_LABEL) or None,
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
        deployed = next((one.revision for one in revisions if one.status is Status.DEPLOYED), 0)
        states[key] = ReleaseState(latest=revisions[0], failures=failures, deployed_revision=deployed)
    return states


def _member(kind: Any, value: object) -> Any:
    return kind(value) if isinstance(value, str) and value in {item.value for item in kind} else None


def _version_of(label: object) -> str | None:
    return clean(label, _LONGEST_LABEL).replace("_", "+") or None
