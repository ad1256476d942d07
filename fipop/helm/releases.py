"""The two helm releases of a guest cluster, each as one value that plan, rollout, conditions and status share.

helm keeps each revision in a Secret. Only metadata is read: labels on it tell role, digest and version of what fipop
installed. What kube-fip-operator installed has none of them until fipop has asked helm once, and labelled it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from fipop.api import names
from fipop.api.codec import parse_time
from fipop.api.objects import ReleaseStatus
from fipop.helm.charts import Role, Target, Values, same_values
from fipop.helm.workloads import Workload, describe
from fipop.jsons import Json, as_mapping
from fipop.settings.options import Settings
from fipop.texts import clean, is_object_name

TAKEN_OVER = "taken-over"
"""The digest of a release of kube-fip-operator that differs from the target."""

LABEL_CHART_VERSION = f"{names.GROUP}/chart-version"
LABEL_OBJECT_NAME = f"{names.GROUP}/object-name"
LABEL_TARGET = f"{names.GROUP}/target"
LABEL_REVISION = f"{names.GROUP}/revision"
"""The revision that fipop made. Helm carries labels over to revisions that others make, this number too."""

_LONGEST_LABEL = 63
_NUMBER = re.compile(r"[0-9]{1,9}")


class Status(StrEnum):
    """How a release stands: what helm calls it, or that there is none."""

    ABSENT = "absent"
    DEPLOYED = "deployed"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    PENDING_INSTALL = "pending-install"
    PENDING_UPGRADE = "pending-upgrade"
    PENDING_ROLLBACK = "pending-rollback"
    UNINSTALLING = "uninstalling"
    UNKNOWN = "unknown"

    @property
    def is_under_way(self) -> bool:
        """Whether a helm process works on it, or died while it did."""
        return self.value.startswith("pending-") or self is Status.UNINSTALLING


class ReleaseOwner(StrEnum):
    """Who made a release."""

    FIPOP = "fipop"
    """It has fipop's labels, or there is no release yet."""
    UNKNOWN = "unknown"
    """It has no labels: helm is asked whether kube-fip-operator made it."""
    OTHER = "other"
    """It is left alone, and it blocks the install: its name is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The Secret of a release's newest revision."""

    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The release of a role in one guest cluster: where it is, how it stands, and what it runs."""

    role: Role
    namespace: str
    name: str
    status: Status = Status.ABSENT
    owner: ReleaseOwner = ReleaseOwner.FIPOP
    revision: int = 0
    digest: str = ""
    """That of the target it was made from; "" without labels of fipop."""
    made_for: str = ""
    """The name of the target that fipop made its newest revision for; "" if fipop did not make it. The digest does not
    say that: targets can have one of two releases in common."""
    is_by_hand: bool = False
    """Whether another helm made a revision after that of fipop."""
    version: str = ""
    object_name: str = ""
    """The name of its objects, chosen at the first install."""
    age_seconds: float = 0.0
    """How long ago its newest revision was made, by the guest cluster's own clock."""
    has_former: bool = False
    """Whether an older revision of it is deployed: what the newest one failed to replace."""
    record: Record | None = None
    workloads: tuple[Workload, ...] = ()
    ready_seconds: float | None = None
    """How long all its pods have been ready; None if that was not asked."""
    conflicting_workloads: tuple[str, ...] = ()
    """Workloads of others that do in this guest cluster what it does: kube-vip for Services, or a cloud provider that
    reads the same ConfigMap. Beside them it is not installed, and takes no part in rollouts."""

    def is_at(self, target: Target | None) -> bool:
        """Whether its newest revision came from a target."""
        return target is not None and self.digest == target.digests[self.role] and not self.is_by_hand

    @property
    def is_missing(self) -> bool:
        """Whether nothing of it was ever deployed: there is no release, or its first revision failed."""
        return self.status is not Status.DEPLOYED and not self.has_former

    @property
    def is_unlocked(self) -> bool:
        """Whether no other helm works on it, no foreign release has its name, and no other workload has its role."""
        is_locked = self.status.is_under_way and self.is_by_hand
        return self.owner is not ReleaseOwner.OTHER and not is_locked and not self.conflicting_workloads

    @property
    def problem(self) -> str:
        """Why it does not serve, as a clause; "" if it does."""
        if self.status is Status.ABSENT:
            return f"release {self} is not installed yet"
        if self.status is not Status.DEPLOYED:
            return f"release {self} is {self.status.value}"
        return describe(self.workloads)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def find_places(settings: Settings, reported: Iterable[ReleaseStatus]) -> tuple[Release, ...]:
    """Return where the releases of a guest cluster are: where the status says so, else where the options want them.

    Nothing is looked for elsewhere: whoever can create Secrets in one namespace of a guest cluster can forge a release
    with any labels. A changed option holds for guest clusters without a release: two kube-vips would compete.
    """
    wanted = {
        Role.KUBE_VIP: settings.kubevip_release_name,
        Role.CLOUD_PROVIDER: settings.kubevip_cloud_provider_release_name,
    }
    known = {each.role: each for each in reported if each.revision}
    return tuple(
        Release(role=role, namespace=known[role].namespace, name=known[role].name)
        if role in known
        else Release(role=role, namespace=settings.kubevip_namespace, name=name)
        for role, name in wanted.items()
    )


def build_selector(places: Iterable[Release]) -> str:
    """Return the label selector of the Secrets of these releases, without superseded revisions."""
    return f"owner=helm,status!=superseded,name in ({','.join(sorted(each.name for each in places))})"


def read_release(place: Release, secrets: Iterable[Json], now: datetime) -> Release:
    """Return a release as the Secret of its newest revision shows it."""
    newest, *former = read_revisions(place, secrets, now) or [place]
    return replace(newest, has_former=any(each.status is Status.DEPLOYED for each in former))


def read_revisions(place: Release, secrets: Iterable[Json], now: datetime) -> list[Release]:
    """Return the revisions of a release, the newest first. What is no release of helm 3 is passed over."""
    found = [_read_revision(place, each, now) for each in secrets]
    return sorted((each for each in found if each is not None), key=lambda each: -each.revision)


def build_labels(target: Target, release: Release) -> dict[str, str]:
    """Return the labels that helm puts on the next revision of a release; `read_release` reads them back."""
    role = release.role
    made = replace(
        release,
        digest=target.digests[role],
        version=target.charts[role].version,
        made_for=target.name,
        revision=release.revision + 1,
    )
    return label_as_seen(made)


def take_over(
    release: Release, chart: str, version: str, values: Values, targets: Iterable[Target]
) -> Release:
    """Return an unlabelled release with its owner, by what helm says of it; `targets` are what it is compared with.

    kube-fip-operator named the objects of each release after the release. A kube-vip without that mark is the guest
    cluster's own, perhaps for the address of its control plane.
    """
    role = release.role
    if chart != role.value or values.get("nameOverride") != release.name:
        return replace(release, owner=ReleaseOwner.OTHER)
    same = (
        each.digests[role]
        for each in targets
        if each.charts[role].version == version.removeprefix("v")
        and same_values(role, values, each.values[role])
    )
    return replace(
        release,
        owner=ReleaseOwner.FIPOP,
        digest=next(same, TAKEN_OVER),
        version=version,
        object_name=release.name,
    )


def label_as_seen(release: Release) -> dict[str, str]:
    """Return the labels that make the newest revision of a release one of fipop's, as it is."""
    return {
        names.LABEL_ROLE: release.role.value,
        names.LABEL_DIGEST: release.digest,
        # As helm does with tags: a label takes no plus sign.
        LABEL_CHART_VERSION: release.version.replace("+", "_")[:_LONGEST_LABEL],
        LABEL_OBJECT_NAME: release.object_name[:_LONGEST_LABEL],
        LABEL_TARGET: release.made_for,
        LABEL_REVISION: str(release.revision),
    }


def _read_revision(place: Release, secret: Json, now: datetime) -> Release | None:
    metadata = as_mapping(secret.get("metadata"))
    labels = as_mapping(metadata.get("labels"))
    created, revision = parse_time(metadata.get("creationTimestamp")), str(labels.get("version", ""))
    is_here = (metadata.get("namespace"), labels.get("name")) == (place.namespace, place.name)
    if not is_here or created is None or not _NUMBER.fullmatch(revision):
        return None
    status, role = labels.get("status"), labels.get(names.LABEL_ROLE)
    if status == "uninstalled":
        return replace(place, revision=int(revision))
    owner = (
        ReleaseOwner.UNKNOWN
        if role is None
        else ReleaseOwner.FIPOP
        if role == place.role.value
        else ReleaseOwner.OTHER
    )
    object_name = labels.get(LABEL_OBJECT_NAME)
    is_by_hand = labels.get(LABEL_REVISION) != revision
    return replace(
        place,
        status=_as_status(status),
        owner=owner,
        revision=int(revision),
        digest=clean(labels.get(names.LABEL_DIGEST), _LONGEST_LABEL),
        made_for="" if is_by_hand else clean(labels.get(LABEL_TARGET), _LONGEST_LABEL),
        is_by_hand=is_by_hand,
        version=clean(labels.get(LABEL_CHART_VERSION), _LONGEST_LABEL).replace("_", "+"),
        object_name=str(object_name) if is_object_name(object_name) else place.name,
        age_seconds=max((now - created).total_seconds(), 0.0),
        record=Record(
            name=clean(metadata.get("name")),
            uid=clean(metadata.get("uid")),
            resource_version=clean(metadata.get("resourceVersion")),
        ),
    )


def _as_status(word: Any) -> Status:
    return Status(word) if word in {each.value for each in Status} else Status.UNKNOWN
