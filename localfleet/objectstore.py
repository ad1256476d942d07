"""Objects of a Kubernetes API server in memory: what it does with a create, a replace, a merge patch and a delete.

The fakes of an API server keep their objects here. The store knows names, namespaces, versions, uids, preconditions,
generations, the status subresource, finalizers, and the defaults of fipop's CRDs. It does not validate objects, does
not prune unknown fields, does not record field managers, and has no access control. tests/contract compares it with a
real API server.

Stored objects are never changed, only replaced. Copy an object before you hand it to a client.
"""

import functools
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from localfleet.errors import LocalFleetError

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Plural, namespace ("" for an object without one), name."""

SYSTEM_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
"""Every API server makes these at its start; the store has them without an object."""

_CRDS = Path(__file__).parent.parent / "crds"
_SERVER_FIELDS = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Fields of metadata that a client cannot change."""
_STATUS_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
"""Fields of metadata that a write of the status changes too, in built-in kinds."""
_NOTHING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How an API server treats one kind of objects."""

    plural: str
    kind: str
    namespaced: bool = True
    is_custom: bool = False
    """It has a CRD: a replace needs a version, a write of the status ignores metadata, each field but metadata and
    status counts as spec."""
    has_status: bool = False
    """It has the status subresource."""
    counts_generations: bool = False
    is_made_by_replace: bool = False
    """A replace of a missing object creates it."""


KINDS: Mapping[str, Kind] = {
    each.plural: each
    for each in (
        Kind(plural="configmaps", kind="ConfigMap"),
        Kind(plural="secrets", kind="Secret"),
        Kind(plural="services", kind="Service", has_status=True, is_made_by_replace=True),
        Kind(plural="pods", kind="Pod", has_status=True, counts_generations=True),
        Kind(plural="deployments", kind="Deployment", has_status=True, counts_generations=True),
        Kind(plural="daemonsets", kind="DaemonSet", has_status=True, counts_generations=True),
        Kind(plural="nodes", kind="Node", namespaced=False, has_status=True),
        Kind(plural="namespaces", kind="Namespace", namespaced=False, has_status=True),
        Kind(
            plural="floatingips", kind="FloatingIP", is_custom=True, has_status=True, counts_generations=True
        ),
        Kind(
            plural="floatingipranges",
            kind="FloatingIPRange",
            namespaced=False,
            is_custom=True,
            has_status=True,
            counts_generations=True,
        ),
        Kind(
            plural="floatingipreservations",
            kind="FloatingIPReservation",
            namespaced=False,
            is_custom=True,
            counts_generations=True,
        ),
        Kind(plural="leases", kind="Lease"),
        Kind(plural="endpointslices", kind="EndpointSlice"),
        Kind(plural="events", kind="Event"),
        Kind(plural="endpoints", kind="Endpoints"),
        Kind(
            plural="customresourcedefinitions",
            kind="CustomResourceDefinition",
            namespaced=False,
            has_status=True,
            counts_generations=True,
        ),
        Kind(plural="harvesterconfigs", kind="HarvesterConfig", is_custom=True, counts_generations=True),
        Kind(plural="clusters", kind="Cluster", is_custom=True, has_status=True, counts_generations=True),
    )
}
_MANAGEMENT_CLUSTER = Kind(
    plural="clusters", kind="Cluster", namespaced=False, is_custom=True, counts_generations=True
)
"""The second of the two kinds that Rancher calls clusters."""


class RefusedCallError(LocalFleetError):
    """The API server refuses a call.

    `is_about_object` tells whether a 404 is about the object that the call names, not about its kind or namespace.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, cause: str = "", is_about_object: bool = False
    ) -> None:
        self.status = status
        self.reason = reason
        self.cause = cause
        self.is_about_object = is_about_object
        super().__init__(message)


@dataclass(slots=True)
class ObjectStore:
    """The objects of one API server. A subclass hears of every commit by `committed`."""

    objects: dict[Key, Json] = field(default_factory=dict)
    version: int = 0
    """Of the last write."""

    def create(self, key: Key, body: Json) -> Json:
        """Create an object and return it."""
        kind, metadata = kind_of(key), body["metadata"]
        self._require_namespace(key)
        if not key[2]:
            raise _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", key, "a name is required")
        if metadata.get("namespace", key[1]) != key[1]:
            raise _refuse(HTTPStatus.BAD_REQUEST, "BadRequest", key, "the object is of another namespace")
        if metadata.get("resourceVersion"):
            # The one answer of an API server to this; it has no reason.
            raise _refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "", key, "resourceVersion should not be set")
        if key in self.objects:
            raise _refuse(HTTPStatus.CONFLICT, "AlreadyExists", key, "already exists")
        kept = {name: value for name, value in metadata.items() if name not in _SERVER_FIELDS}
        if not kind.counts_generations and "generation" in metadata:
            kept["generation"] = metadata["generation"]
        made = {**body, "metadata": kept}
        if kind.has_status:
            made.pop("status", None)
        return self.write(key, made)

    def replace(self, key: Key, body: Json, *, subresource: str | None = None) -> Json:
        """Replace an object, or its status, and return it."""
        kind, metadata = kind_of(key), body["metadata"]
        _require_subresource(kind, key, subresource)
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        current = self.objects.get(key)
        if current is None:
            if kind.is_made_by_replace and uid:
                raise _refuse(HTTPStatus.CONFLICT, "Conflict", key, "the object has another uid")
            if not kind.is_made_by_replace or subresource:
                raise missing(key)
            if version:
                raise _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", key, "the object is not there")
            return self.create(key, body)
        if uid and uid != current["metadata"]["uid"]:
            raise _refuse(HTTPStatus.CONFLICT, "Conflict", key, "the object has another uid")
        _check_version(kind, key, current, version)
        return self._update(kind, key, current, body, subresource)

    def merge_patch(self, key: Key, patch: Json, *, subresource: str | None = None) -> Json:
        """Merge a patch into an object, or its status, and return the object."""
        kind, metadata = kind_of(key), patch.get("metadata") or {}
        _require_subresource(kind, key, subresource)
        current = self.objects.get(key)
        if current is None:
            raise missing(key)
        if metadata.get("name", key[2]) != key[2] or metadata.get("namespace", key[1]) != key[1]:
            raise _refuse(HTTPStatus.BAD_REQUEST, "BadRequest", key, "a patch cannot rename")
        if "resourceVersion" in metadata:
            _check_version(kind, key, current, metadata["resourceVersion"])
        uid = metadata.get("uid")
        if uid and uid != current["metadata"]["uid"] and not (kind.is_custom and subresource):
            # The uid in a patch is no precondition: it is a field that cannot be changed.
            raise _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", key, "the uid cannot be changed")
        return self._update(kind, key, current, merge_patch(current, patch), subresource)

    def delete(self, key: Key, *, uid: str | None = None, version: str | None = None) -> Json:
        """Delete an object, or mark it as deleted while it has finalizers; return its last state."""
        current = self.objects.get(key)
        if current is None:
            raise missing(key)
        metadata = current["metadata"]
        if uid and uid != metadata["uid"]:
            raise _refuse(HTTPStatus.CONFLICT, "Conflict", key, "the object has another uid")
        if version and version != metadata["resourceVersion"]:
            raise _refuse(HTTPStatus.CONFLICT, "Conflict", key, "the object has been modified")
        if key[0] == "namespaces":
            return self._delete_namespace(key)
        if metadata.get("finalizers"):
            return self._mark_deleted(key)
        self.drop(key)
        return current

    def write(self, key: Key, obj: Json) -> Json:
        """Commit an object with the metadata that are the server's, whatever the object says of them; return it."""
        kind, before = kind_of(key), self.objects.get(key)
        if kind.is_custom:
            obj = _with_defaults(key[0], obj)
        metadata = {**obj["metadata"], "name": key[2]}
        if key[1]:
            metadata["namespace"] = key[1]
        if before is None:
            metadata["uid"], metadata["creationTimestamp"] = self.build_uid(), self.timestamp()
            if kind.counts_generations:
                metadata["generation"] = 1
        else:
            was = before["metadata"]
            metadata["uid"], metadata["creationTimestamp"] = was["uid"], was["creationTimestamp"]
            if kind.counts_generations:
                metadata["generation"] = was["generation"] + _is_new_generation(kind, before, obj)
        return self._commit(key, {**obj, "metadata": metadata})

    def drop(self, key: Key) -> None:
        """Commit that an object is gone, finalizers or not."""
        before = self.objects.pop(key)
        self.version += 1
        self.committed(key, before, None)
        self._finish_namespace(key[1])

    def committed(self, key: Key, before: Json | None, after: Json | None) -> None:
        """Take in what the last version changed. None: the object is not there."""

    def timestamp(self) -> str:
        """Return the server's time."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def build_uid(self) -> str:
        """Return the uid of an object that comes to be."""
        return str(uuid.uuid4())

    def _commit(self, key: Key, obj: Json) -> Json:
        before = self.objects.get(key)
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = obj
        self.committed(key, before, obj)
        return obj

    def _update(self, kind: Kind, key: Key, current: Json, wanted: Json, subresource: str | None) -> Json:
        if subresource:
            wanted = _with_status(kind, current, wanted)
        elif kind.has_status:
            wanted = {**wanted}
            wanted.pop("status", None)
            if "status" in current:
                wanted["status"] = current["status"]
        wanted = {**wanted, "metadata": _with_server_fields(key, current["metadata"], wanted["metadata"])}
        if kind.is_custom:
            wanted = _with_defaults(key[0], wanted)
        if wanted == current:
            return current
        if "deletionTimestamp" in wanted["metadata"] and not wanted["metadata"].get("finalizers"):
            self.drop(key)
            return wanted
        return self.write(key, wanted)

    def _mark_deleted(self, key: Key) -> Json:
        current = self.objects[key]
        if "deletionTimestamp" in current["metadata"]:
            return current
        metadata = {
            **current["metadata"],
            "deletionTimestamp": self.timestamp(),
            "deletionGracePeriodSeconds": 0,
        }
        if "generation" in metadata:
            metadata["generation"] += 1
        return self._commit(key, {**current, "metadata": metadata})

    def _delete_namespace(self, key: Key) -> Json:
        """Delete a namespace as its controller does: with all that is in it, and at last itself."""
        marked = self._mark_deleted(key)
        for each in [each for each in self.objects if each[1] == key[2]]:
            self.delete(each)
        self._finish_namespace(key[2])
        return marked

    def _finish_namespace(self, name: str) -> None:
        key = ("namespaces", "", name)
        found = self.objects.get(key) if name else None
        if found is not None and "deletionTimestamp" in found["metadata"]:
            is_empty = all(each[1] != name for each in self.objects)
            if is_empty and not found["metadata"].get("finalizers"):
                self.drop(key)

    def _require_namespace(self, key: Key) -> None:
        name = key[1]
        found = self.objects.get(("namespaces", "", name)) if name else None
        if found is not None and "deletionTimestamp" in found["metadata"]:
            raise _refuse(
                HTTPStatus.FORBIDDEN,
                "Forbidden",
                key,
                "the namespace is being deleted",
                cause="NamespaceTerminating",
            )
        if name and found is None and name not in SYSTEM_NAMESPACES:
            raise _refuse(HTTPStatus.NOT_FOUND, "NotFound", key, f"namespaces {name!r} not found")


def kind_of(key: Key) -> Kind:
    """Return the kind of an object."""
    return _MANAGEMENT_CLUSTER if key[0] == "clusters" and not key[1] else KINDS[key[0]]


def merge_patch(current: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386): null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def copy_json(value: Any) -> Any:
    """Copy what JSON is made of: several times faster than the general way."""
    if isinstance(value, dict):
        return {key: copy_json(each) for key, each in value.items()}
    return [copy_json(each) for each in value] if isinstance(value, list) else value


def _check_version(kind: Kind, key: Key, current: Json, version: str | None) -> None:
    if not version:
        if kind.is_custom:
            raise _refuse(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "Invalid",
                key,
                "resourceVersion must be specified for an update",
            )
    elif version != current["metadata"]["resourceVersion"]:
        raise _refuse(HTTPStatus.CONFLICT, "Conflict", key, "the object has been modified")


def _require_subresource(kind: Kind, key: Key, subresource: str | None) -> None:
    if subresource and not (subresource == "status" and kind.has_status):
        raise _refuse(
            HTTPStatus.NOT_FOUND, "NotFound", key, "the server could not find the requested resource"
        )


def _with_status(kind: Kind, current: Json, wanted: Json) -> Json:
    """Return an object with the status of another, and of its metadata what a write of the status changes."""
    made = {**current}
    made.pop("status", None)
    if "status" in wanted:
        made["status"] = wanted["status"]
    if not kind.is_custom:
        fields = [each for each in _STATUS_METADATA if (each, kind.plural) != ("labels", "deployments")]
        metadata = {name: value for name, value in current["metadata"].items() if name not in fields}
        made["metadata"] = metadata | {
            name: wanted["metadata"][name] for name in fields if name in wanted["metadata"]
        }
    return made


def _with_server_fields(key: Key, current: Json, wanted: Json) -> Json:
    """Return metadata in which the fields that are the server's are as they were."""
    deleted = wanted.get("deletionTimestamp")
    if deleted is not None and deleted != current.get("deletionTimestamp"):
        raise _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", key, "deletionTimestamp cannot be set")
    if "deletionTimestamp" in current and not {*wanted.get("finalizers", ())} <= {
        *current.get("finalizers", ())
    }:
        raise _refuse(
            HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", key, "no finalizer can be added to a deleted object"
        )
    metadata = {**wanted, "name": key[2], "resourceVersion": current["resourceVersion"]}
    if key[1]:
        metadata["namespace"] = key[1]
    for name in _SERVER_FIELDS:
        if name in current:
            metadata[name] = current[name]
        else:
            metadata.pop(name, None)
    return metadata


def _is_new_generation(kind: Kind, before: Json, after: Json) -> bool:
    if not kind.is_custom:
        if kind.plural == "deployments":
            was, now = (each["metadata"].get("annotations") or {} for each in (before, after))
            if was != now:
                return True
        return bool(before.get("spec") != after.get("spec"))
    ignored = {"metadata", "status"} if kind.has_status else {"metadata"}
    names = (before.keys() | after.keys()) - ignored
    return any(before.get(name) != after.get(name) for name in names)


def _with_defaults(plural: str, obj: Json) -> Json:
    defaults = _defaults().get(plural)
    return _filled(obj, defaults) if defaults else obj


@functools.cache
def _defaults() -> dict[str, Json]:
    """Return of each of fipop's CRDs the properties with defaults: name to (default, properties below it)."""
    found = {}
    for path in sorted(_CRDS.glob("*.yaml")):
        for crd in yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader):
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            found[crd["spec"]["names"]["plural"]] = _defaults_below(schema)
    return found


def _defaults_below(schema: Json) -> Json:
    below = {}
    for name, each in schema.get("properties", {}).items():
        inner = _defaults_below(each)
        if inner or "default" in each:
            below[name] = (each.get("default", _NOTHING), inner)
    return below


def _filled(obj: Json, defaults: Json) -> Json:
    """Return an object with its defaults; the very same one if it has them."""
    made = obj
    for name, (default, below) in defaults.items():
        value = obj.get(name)
        wanted = value if value is not None or default is _NOTHING else copy_json(default)
        if below and isinstance(wanted, dict):
            wanted = _filled(wanted, below)
        if wanted is not value:
            made = {**made, name: wanted}
    return made


def missing(key: Key) -> RefusedCallError:
    """Return the refusal of a call that names an object which is not there."""
    return _refuse(HTTPStatus.NOT_FOUND, "NotFound", key, "not found", is_about_object=True)


def _refuse(
    status: int, reason: str, key: Key, message: str, *, cause: str = "", is_about_object: bool = False
) -> RefusedCallError:
    return RefusedCallError(
        int(status), reason, f"{key[0]} {key[2]!r}: {message}", cause=cause, is_about_object=is_about_object
    )
