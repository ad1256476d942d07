"""Errors of the process, and of the way to an API server: one sentence each."""

import pytest

from fipop.errors import AuthorityReplacedError, FipopError, KubeAccessError, NotLeadingError, StartError


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (StartError(what="helm program x", problem="cannot be run"), "helm program x cannot be run"),
        (
            NotLeadingError(verb="patch", kind="FloatingIP"),
            "cannot patch FloatingIP: this replica does not lead",
        ),
        (KubeAccessError(server="", problem="no token"), "no connection to the API server: no token"),
        (
            AuthorityReplacedError(server="https://a", path="/ca.crt"),
            "the certificate authority of https://a was replaced in /ca.crt: only a fresh start reads it",
        ),
    ],
)
def test_each_says_what_was_wrong(error: FipopError, sentence: str) -> None:
    assert str(error) == sentence
