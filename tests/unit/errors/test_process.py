"""Errors of the process, and of the way to an API server: one sentence each."""

import pytest

from fipop.errors import AuthorityReplacedError, FipopError, KubeAccessError, NotLeadingError, StartError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StartError(what="helm program x", problem="cannot be run"), "helm program x cannot be run"),
        (
            NotLeadingError(verb="patch", kind="FloatingIP"),
            "patch FloatingIP: this replica does not lead",
        ),
        (KubeAccessError(server="", problem="no token"), "the API server: no token"),
        (
            AuthorityReplacedError(server="https://a", path="/ca.crt"),
            "the certificate authority of https://a was replaced in /ca.crt",
        ),
    ],
)
def test_each_says_what_was_wrong(error: FipopError, words: str) -> None:
    assert words in str(error)
