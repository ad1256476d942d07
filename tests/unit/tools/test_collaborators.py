"""No constructor of the product has more collaborators than can be understood at once."""

from scripts.collaborators import MOST, count_collaborators, find_problems, read_classes

SOURCE = """
class Client:
    def __init__(self, url: str, *, on_request: Callable[[], None] | None = None) -> None: ...

@dataclass(frozen=True)
class Range:
    name: str
    size: int

@dataclass(frozen=True)
class Reader:
    client: Client
    found: Range
    again: Callable[[], None] = print

@dataclass(slots=True)
class Controller:
    reader: Reader
    clients: Mapping[str, Client]
    finish: Callable[[], None]
    wanted: Range
    count: int = 0
    _known: dict[str, Client] = field(default_factory=dict)
"""


def test_what_acts_counts_and_what_is_a_value_or_has_a_default_does_not() -> None:
    assert count_collaborators(read_classes([SOURCE])) == {"Reader": 1, "Controller": 3}


def test_a_class_with_too_many_is_named_and_an_exception_is_held_to_be_one() -> None:
    (problem,) = find_problems({"Big": MOST + 1, "Small": MOST}, {})
    assert problem.startswith("Big: ")
    assert find_problems({"Big": MOST + 1}, {"Big": "why"}) == []
    assert find_problems({"Big": MOST}, {"Big": "why"}) == ["Big: is no exception any more"]
