"""What helm's words mean. Each text was seen, or stands so in helm's or Kubernetes' sources."""

import re
import tracemalloc

import pytest

from fipop.guest.errors import HelmFailure
from fipop.guest.helm.failures import CLASSIFIED_BYTES, PATTERNS, classify

SEEN = """
IN_PROGRESS Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress
NAME_TAKEN Error: Unable to continue with install: ServiceAccount "x" in namespace "y" exists and cannot be imported\
 into the current release: invalid ownership metadata; annotation validation error
UNREACHABLE Error: kubernetes cluster unreachable: Get "https://10.0.0.1/version": dial tcp: connect: connection refused
UNREACHABLE Error: Get "https://x/api": net/http: TLS handshake timeout
UNREACHABLE Error: client rate limiter Wait returned an error: context deadline exceeded
UNREACHABLE Error: Get "https://x/api": unexpected EOF
UNREACHABLE Error: looks like "https://c.example" is not a valid chart repository or cannot be reached: failed to\
 fetch https://c.example/index.yaml : 503 Service Unavailable
CHART_NOT_FOUND Error: failed to fetch https://c.example/kube-vip-1.tgz : 404 Not Found
CHART_NOT_FOUND Error: chart "kube-vip" version "7.7.7" not found in https://c.example repository
CHART_NOT_FOUND Error: chart "x" matching 7 not found in charts index.
CHART_NOT_FOUND Error: registry.example/charts/kube-vip:7.7.7: not found
CERTIFICATE Error: Get "https://r/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority
FORBIDDEN Error: services "x" is forbidden: User "u" cannot create resource "services" in API group ""
NAMESPACE_TERMINATING Error: secrets "x" is forbidden: unable to create new content in namespace y because it is being\
 terminated
UNAUTHORIZED Error: kubernetes cluster unreachable: the server has asked for the client to provide credentials
RENDERING Error: template: kube-vip/templates/daemonset.yaml:7:3: executing "x" at <y>: nil pointer
RENDERING Error: execution error at (kube-vip/templates/x.yaml:1:4): a value is needed
RENDERING Error: values don't meet the specifications of the schema(s) in the following chart(s)
RENDERING Error: YAML parse error on kube-vip/templates/x.yaml
INVALID Error: DaemonSet.apps "kube-vip" is invalid: spec.template.spec.containers[0].image: Required value
INVALID Error: DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal number
INVALID Error: no matches for kind "PodMonitor" in version "monitoring.coreos.com/v1"
FILES Error: write /tmp/x: no space left on device
KILLED Error: release kube-vip failed: context canceled
DENIED Error: INSTALLATION FAILED: 1 error occurred: * admission webhook "deny.example" denied the request: unauthorized
FILES Error: write /tmp/x: file too large
UNKNOWN Error: something new
"""
CASES = [line.split(" ", 1) for line in SEEN.replace("\\\n", "").strip().splitlines()]


@pytest.mark.parametrize(("failure", "words"), CASES)
def test_helms_words_have_a_class(failure: str, words: str) -> None:
    assert classify(words.encode()) is HelmFailure[failure]


@pytest.mark.parametrize("words", [b"", b"\xff\xfe"])
def test_words_that_say_nothing_have_a_class_too(words: bytes) -> None:
    assert classify(words) is HelmFailure.UNKNOWN


@pytest.mark.parametrize("length", [CLASSIFIED_BYTES, 256 * 1024])
def test_no_words_of_a_guest_take_long_to_classify(length: int) -> None:
    """A denial of 192 KB held the whole operator up for 10 s, one of twice the length for 40 s."""
    words = b"Error: something " * (length // 17)
    tracemalloc.start()
    try:
        assert classify(words) is HelmFailure.UNKNOWN
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 10 * CLASSIFIED_BYTES, "what is not read is not copied either"


@pytest.mark.parametrize("pattern", [pattern for _, patterns in PATTERNS for pattern in patterns])
def test_no_pattern_has_an_open_end(pattern: str) -> None:
    """A pattern with an open end takes time that grows with the square of a text made for it."""
    assert re.search(r"(?<!\\)[*+]|\{\d*,\}", pattern) is None


def test_only_the_end_of_helms_words_is_read() -> None:
    assert classify(b"Error: forbidden" + b" " * CLASSIFIED_BYTES) is HelmFailure.UNKNOWN
    assert classify(b" " * 1_000_000 + b"Error: forbidden") is HelmFailure.FORBIDDEN
