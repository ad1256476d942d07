"""The sizes of all collections that objects of the product hold, found by a walk over the object graph."""

import functools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

_LEAVES = (str, bytes, int, float, bool, type(None), type, logging.Logger)


def collection_sizes(*roots: object) -> Counter[str]:
    """Count the items of every collection that the roots reach, by the class and attribute that hold it.

    The walk goes through objects of the product, collections, bound methods and closures. It does not go through
    classes, loggers and objects of other libraries or of the tests.
    """
    sizes: Counter[str] = Counter()
    seen: dict[int, object] = {}
    left: list[tuple[str, object]] = [(type(root).__name__, root) for root in roots]
    while left:
        name, each = left.pop()
        if isinstance(each, _LEAVES) or id(each) in seen:
            continue
        seen[id(each)] = each  # kept alive, so that no other object gets its id
        if isinstance(each, Mapping):
            sizes[name] += len(each)
            left += ((f"{name}[]", part) for item in each.items() for part in item)
        elif isinstance(each, Iterable) and hasattr(each, "__len__"):
            sizes[name] += len(each)
            left += ((f"{name}[]", part) for part in each)
        else:
            left += _parts(name, each)
    return +sizes


def _parts(name: str, each: object) -> Iterator[tuple[str, object]]:
    if isinstance(each, MethodType):
        yield name, each.__self__
    elif isinstance(each, functools.partial):
        yield name, (each.func, each.args, tuple(each.keywords.values()))
    elif isinstance(each, FunctionType):
        for cell in each.__closure__ or ():
            yield name, cell.cell_contents
    elif type(each).__module__.startswith("fipop."):
        for attribute, value in _attributes(each):
            yield f"{type(each).__name__}.{attribute}", value


def _attributes(each: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(each, "__dict__", {}).items()
    for cls in type(each).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(each, slot):
                yield slot, getattr(each, slot)
