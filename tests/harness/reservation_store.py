"""Reservations in memory: for the protocol's logic, where an API server would only be slow."""

import copy
import itertools

from fipop.errors import ApiAlreadyExistsError, ApiConflictError, ApiUnreachableError
from tests.harness.objects import Json


class Reservations:
    """The API server's side: create, get, replace and delete of reservations, each write with its own version.

    `cut` says of the next write whether its answer is lost after it was done.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.cut = False
        self.writes: list[str] = []
        # Above the versions of the objects that a test puts in from outside.
        self._versions = itertools.count(1_000_000)

    async def create(self, _resource: object, body: Json) -> Json:
        name = body["metadata"]["name"]
        if name in self.objects:
            raise ApiAlreadyExistsError(verb="create", kind="FloatingIPReservation", name=name, status=409)
        return self._write(
            "create", body | {"metadata": {"name": name, "uid": f"uid-{next(self._versions)}"}}
        )

    async def get(self, _resource: object, name: str) -> Json | None:
        return copy.deepcopy(self.objects.get(name))

    async def replace(self, _resource: object, body: Json) -> Json:
        self._check(body["metadata"]["name"], body["metadata"]["uid"], body["metadata"]["resourceVersion"])
        return self._write("replace", body)

    async def delete(self, _resource: object, name: str, *, uid: str, resource_version: str) -> bool:
        if name not in self.objects:
            return False
        self._check(name, uid, resource_version)
        del self.objects[name]
        self.writes.append(f"delete {name}")
        return True

    def _check(self, name: str, uid: str, version: str) -> None:
        found = self.objects.get(name, {"metadata": {}})["metadata"]
        if (found.get("uid"), found.get("resourceVersion")) != (uid, version):
            raise ApiConflictError(verb="replace", kind="FloatingIPReservation", name=name, status=409)

    def _write(self, verb: str, body: Json) -> Json:
        metadata = {**body["metadata"], "resourceVersion": str(next(self._versions))}
        name = metadata["name"]
        self.objects[name] = {**body, "metadata": metadata}
        self.writes.append(f"{verb} {name}")
        if self.cut:
            self.cut = False
            raise ApiUnreachableError(
                verb=verb, kind="FloatingIPReservation", name=name, reason="ConnectionCut"
            )
        return copy.deepcopy(self.objects[name])


async def look_never(reservation: object) -> None:
    """Stand for a look at an offer where nothing is offered."""
    raise AssertionError(f"{reservation} was never offered")
