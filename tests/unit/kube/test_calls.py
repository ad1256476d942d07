"""Requests to an API server as values."""

import json

import pytest

from fipop.errors import ApiInvalidError
from fipop.kube.calls import METADATA, build_call, build_selectors, call_fields, with_query
from fipop.kube.resources import CONFIG_MAPS, FLOATING_IPS


def test_a_call_names_its_object_and_carries_its_body() -> None:
    found = build_call("create", "POST", FLOATING_IPS, namespace="c-m-a", body={"spec": {}})
    assert found.path == "/apis/kubefip.k8s.binbash.org/v1/namespaces/c-m-a/floatingips"
    assert json.loads(found.body or b"") == {"spec": {}}
    status = build_call(
        "get", "GET", CONFIG_MAPS, namespace="a", name="b", subresource="status", accept=METADATA
    )
    assert (status.path, status.body, status.accept) == (
        "/api/v1/namespaces/a/configmaps/b/status",
        None,
        METADATA,
    )


@pytest.mark.parametrize("name", ["../secrets", "a/b", "", ".."])
def test_a_name_that_would_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ApiInvalidError):
        build_call("get", "GET", CONFIG_MAPS, namespace="a", name=name)


def test_a_name_is_never_more_than_a_part_of_the_path() -> None:
    call = build_call("get", "GET", CONFIG_MAPS, namespace="a", name="b?watch=1#x")
    assert call.path.endswith("/configmaps/b%3Fwatch%3D1%23x")


def test_parameters_are_escaped_and_selectors_that_are_not_given_are_left_out() -> None:
    call = build_call("list", "GET", CONFIG_MAPS)
    assert with_query(call, build_selectors("a=b,c", None)).query == "labelSelector=a%3Db%2Cc"
    assert build_selectors(None, "metadata.name=x") == {"fieldSelector": "metadata.name=x"}


def test_an_error_about_a_call_says_which_it_was() -> None:
    call = build_call("get", "GET", CONFIG_MAPS, namespace="a", name="b")
    assert call_fields(call, status=500, reason="InternalError") == {
        "verb": "get",
        "kind": "ConfigMap",
        "name": "b",
        "namespace": "a",
        "status": 500,
        "reason": "InternalError",
    }
