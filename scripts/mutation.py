"""The command `mutmut`, with three kinds of mutants that it lacks: scripts.mutants starts this file.

Most modules of fipop decide by early returns. mutmut changes the parts of a condition, but a condition that is one call
stays as it is, and so do returned values and statements that only have an effect.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from mutmut.__main__ import cli
from mutmut.mutation.mutators import mutation_operators

_NEGATED_BY_MUTMUT = (cst.Equal, cst.NotEqual, cst.In, cst.NotIn, cst.Is, cst.IsNot)


def negate_condition(node: cst.If) -> Iterator[cst.If]:
    """Take the other branch, unless mutmut makes the same mutant of the condition."""
    test = node.test
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return
    is_plain = isinstance(test, cst.Comparison) and len(test.comparisons) == 1
    if is_plain and isinstance(test.comparisons[0].operator, _NEGATED_BY_MUTMUT):
        return
    grouped = test.with_changes(lpar=[cst.LeftParen(), *test.lpar], rpar=[*test.rpar, cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(operator=cst.Not(), expression=grouped))


def drop_call(node: cst.Expr) -> Iterator[cst.Pass]:
    """Leave out a statement that only has an effect."""
    if isinstance(node.value, cst.Call | cst.Await):
        yield cst.Pass()


def drop_raise(node: cst.Raise) -> Iterator[cst.Pass]:
    """Go on where the function gives up."""
    del node
    yield cst.Pass()


def return_none(node: cst.Return) -> Iterator[cst.Return]:
    """Forget the result."""
    if node.value is not None and not (isinstance(node.value, cst.Name) and node.value.value == "None"):
        yield node.with_changes(value=cst.Name("None"))


if __name__ == "__main__":
    # mutmut has no setting for more kinds; its version is pinned by the requirements.
    mutation_operators.extend(  # type: ignore[attr-defined]
        [
            (cst.If, negate_condition),
            (cst.Expr, drop_call),
            (cst.Raise, drop_raise),
            (cst.Return, return_none),
        ]
    )
    cli()
