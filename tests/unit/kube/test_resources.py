import pytest

from fipop.errors import ApiError
from fipop.kube.resources import CONFIG_MAPS, FLOATING_IP_RANGES, FLOATING_IPS, LEASES, NAMESPACES


def test_paths_follow_the_layout_of_the_kubernetes_api():
    assert NAMESPACES.path() == "/api/v1/namespaces"
    assert NAMESPACES.path(name="demo") == "/api/v1/namespaces/demo"
    assert CONFIG_MAPS.path() == "/api/v1/configmaps"
    assert CONFIG_MAPS.path(namespace="a", name="b") == "/api/v1/namespaces/a/configmaps/b"
    assert FLOATING_IPS.path(namespace="a", name="b", subresource="status") == (
        "/apis/kubefip.k8s.binbash.org/v1/namespaces/a/floatingips/b/status"
    )
    assert LEASES.api_version == "coordination.k8s.io/v1"
    assert CONFIG_MAPS.api_version == "v1"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "%2e%2e", "../secrets"])
def test_a_name_that_would_address_something_else_is_refused(name):
    with pytest.raises(ApiError):
        CONFIG_MAPS.path(namespace="a", name=name)
    with pytest.raises(ApiError):
        CONFIG_MAPS.path(namespace=name, name="b")


def test_a_name_is_quoted():
    assert CONFIG_MAPS.path(namespace="a", name="b?x=1#y") == "/api/v1/namespaces/a/configmaps/b%3Fx%3D1%23y"


def test_a_scope_that_does_not_fit_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="cluster scoped"):
        FLOATING_IP_RANGES.path(namespace="a")
    with pytest.raises(ValueError, match="needs a namespace"):
        FLOATING_IPS.path(name="a")
