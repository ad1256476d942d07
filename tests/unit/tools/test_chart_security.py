"""What checkov finds in the chart is compared with the exceptions and their reasons."""

from scripts.chart_security import EXCEPTIONS, Finding, compare, read_exceptions

DIGEST = Finding(check="CKV_K8S_43", resource="Deployment.kube-fip.fipop")
TOKEN = Finding(check="CKV_K8S_38", resource="Deployment.kube-fip.fipop")
REASON = "the digest of an image is known to its release alone"


def test_a_finding_without_an_exception_and_an_exception_without_its_finding_are_wrong() -> None:
    assert list(compare({DIGEST: "Use a digest"}, {DIGEST: REASON})) == []
    (line,) = compare({DIGEST: "Use a digest", TOKEN: "No token"}, {DIGEST: REASON})
    assert line.startswith("CKV_K8S_38 Deployment.kube-fip.fipop: No token")
    (line,) = compare({DIGEST: "Use a digest"}, {DIGEST: REASON, TOKEN: REASON})
    assert line.startswith("CKV_K8S_38 Deployment.kube-fip.fipop: the exception is of no finding")


def test_an_exception_is_of_one_object_and_has_a_reason() -> None:
    other = Finding(check=DIGEST.check, resource="Deployment.kube-fip.other")
    assert len(list(compare({DIGEST: "", other: ""}, {DIGEST: REASON}))) == 1
    (line,) = compare({DIGEST: ""}, {DIGEST: "not needed"})
    assert "has no reason" in line


def test_the_exceptions_of_the_chart_can_be_read() -> None:
    found = read_exceptions(EXCEPTIONS.read_text())
    assert list(compare(dict.fromkeys(found, ""), found)) == []
    assert found
