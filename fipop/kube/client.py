"""The only door to the Kubernetes API: every call has a deadline and ends in a value or a typed error."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from fipop.errors import NotLeadingError
from fipop.jsons import Json
from fipop.kube.access import connection_from_kubeconfig, connection_in_cluster
from fipop.kube.answers import Answer, is_object_missing, require_object, require_success
from fipop.kube.calls import FIELD_MANAGER, Call, build_call
from fipop.kube.connection import Connection
from fipop.kube.listing import Listing
from fipop.kube.reader import KubeReader, WatchEvent
from fipop.kube.resources import Resource
from fipop.kube.transport import RequestRecord

__all__ = [
    "Connection",
    "KubeClient",
    "KubeReader",
    "Listing",
    "RequestRecord",
    "WatchEvent",
    "connection_from_kubeconfig",
    "connection_in_cluster",
]


class KubeClient(KubeReader):
    """Reads from one API server, and writes there.

    After an error whose `outcome_unknown` is true a write may have been committed: look first.
    """

    _may_write: Callable[[], bool] = staticmethod(lambda: True)

    def for_leader(self, leads: Callable[[], bool]) -> Self:
        """Return a client over the same connections whose writes raise NotLeadingError while `leads` says no.

        It is asked again when the request has its connection: a process that was stopped past its lease finds out in
        the middle of its work.
        """
        guarded = copy.copy(self)
        guarded._may_write = leads  # noqa: SLF001 - of our own class
        return guarded

    async def create(self, resource: Resource, body: Json, *, namespace: str | None = None) -> Json:
        """Create an object and return it as stored; the namespace is the given one, else the body's."""
        metadata = body["metadata"]
        call = build_call(
            "create",
            "POST",
            resource,
            namespace=namespace or metadata.get("namespace"),
            query=FIELD_MANAGER,
            body=body,
        )
        call = replace(call, name=metadata.get("name"))
        return require_object(call, await self._write(call))

    async def replace(self, resource: Resource, body: Json, *, subresource: str | None = None) -> Json:
        """Replace an object by one that was read before; name, namespace and resourceVersion are the body's."""
        metadata = body["metadata"]
        call = build_call(
            "replace",
            "PUT",
            resource,
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            subresource=subresource,
            query=FIELD_MANAGER,
            body=body,
        )
        return require_object(call, await self._write(call))

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Json:
        """Merge a patch into an object and return it; with `metadata.resourceVersion` in it a stale one is a 409."""
        call = build_call(
            "patch",
            "PATCH",
            resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            query=FIELD_MANAGER,
            body=patch,
            content_type="application/merge-patch+json",
        )
        return require_object(call, await self._write(call))

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | int | None = None,
        propagation: str | None = None,
    ) -> bool:
        """Delete an object; False where it was gone already. A precondition that fails is ApiConflictError."""
        preconditions = {
            "uid": uid,
            "resourceVersion": None if resource_version is None else str(resource_version),
        }
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {key: value for key, value in preconditions.items() if value is not None},
        }
        if propagation is not None:
            options["propagationPolicy"] = propagation
        call = build_call("delete", "DELETE", resource, namespace=namespace, name=name, body=options)
        answer = await self._write(call)
        if is_object_missing(call, answer):
            return False
        require_success(call, answer)
        return True

    async def _write(self, call: Call) -> Answer:
        def check() -> None:
            if not self._may_write():
                raise NotLeadingError(verb=call.verb, kind=call.kind)

        check()
        return await self._receive(call, self._deadline(None), self._limits.answer_bytes, before_send=check)
