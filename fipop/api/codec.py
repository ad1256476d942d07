"""Objects as values, and back: pydantic reads and writes plain dataclasses whose fields have the names of the YAML.

A class says what the schema of the CRD says: a field without a default is required there, and unknown fields are
ignored. The API server checks each object when it is written, so what does not fit was stored under another schema.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from fipop.errors import FipopError
from fipop.jsons import Json

T = TypeVar("T")


class UnreadableError(FipopError):
    """A value does not fit its class. `parts` are the fields of the outermost object that are to blame."""

    def __init__(self, *, problem: str, parts: Collection[str]) -> None:
        self.parts = parts
        super().__init__(problem)


class YamlFields:
    """The base of a dataclass whose field `ip_families` is `ipFamilies` in the YAML."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(alias_generator=to_camel)


def read(kind: type[T], item: object) -> T:
    """Return a value of a class from its JSON. Raises: UnreadableError."""
    try:
        return _adapter(kind).validate_python(item)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        texts = (f"{'.'.join(map(str, each['loc']))} {describe_problem(each['msg'])}" for each in found)
        parts = {str(each["loc"][0]) for each in found if each["loc"]}
        raise UnreadableError(problem=next(texts).strip(), parts=parts) from None


def describe_problem(message: str) -> str:
    """Return what pydantic says is wrong with a value, as what the value must be."""
    return (
        message.removeprefix("Value error, ")
        .replace("Input should", "must")
        .replace("Field required", "must be set")
    )


def write(value: object) -> Json:
    """Return the JSON of a value without the fields that have their default."""
    found: Json = _adapter(type(value)).dump_python(value, mode="json", by_alias=True, exclude_defaults=True)
    return found


def write_patch(value: object) -> Json:
    """Return the JSON of a value as a merge patch: what is absent or empty is null, so that no old value stays."""
    found: Json = _adapter(type(value)).dump_python(value, mode="json", by_alias=True)
    return {key: _null_if_empty(each) for key, each in found.items()}


def parse_time(text: object) -> datetime | None:
    """Read an RFC 3339 time with a zone; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def format_time(moment: datetime) -> str:
    """Write a time as Kubernetes does: UTC, whole seconds, `Z`."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _read_time(text: object) -> datetime:
    moment = parse_time(text)
    if moment is None:
        raise ValueError("must be a time with a zone")
    return moment


Time = Annotated[datetime, PlainValidator(_read_time), PlainSerializer(format_time)]
"""A time as Kubernetes writes it."""


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    """Return the adapter of a class, which is slow to build."""
    return _adapters.get(kind) or _adapters.setdefault(kind, TypeAdapter(kind))


_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def _null_if_empty(value: Any) -> Any:
    """Return None for an empty list or object; what is in a list is replaced as a whole, and stays as it is."""
    if isinstance(value, dict):
        return {key: _null_if_empty(each) for key, each in value.items()} or None
    return None if value == [] else value
