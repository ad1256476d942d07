"""Which hosts a credential for charts goes to."""

import base64
from typing import Any

import pytest
from yarl import URL

from fipop.errors import FipopError
from fipop.guest.helm.chart_access import ChartAccess, parse_credential
from fipop.guest.helm.charts import ChartSource, wanted_releases
from fipop.settings.options import DEFAULTS, parse_settings

OCI = "oci://registry.example/charts"
CREDENTIAL = {"username": "u", "password": "p"}


def secret(**fields: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in fields.items()}}


def sources(**options: str) -> tuple[ChartSource, ...]:
    settings, bad = parse_settings({"kubevipChartSecret": "charts", **options}, DEFAULTS)
    assert not bad
    return tuple(each.source for each in wanted_releases(settings))


@pytest.mark.parametrize(
    ("options", "host"),
    [
        ({}, "kube-vip.io"),
        ({"kubevipChartRepoUrl": "https://charts.example:8443/stable"}, "charts.example:8443"),
        ({"kubevipChartRef": f"{OCI}/kube-vip"}, "registry.example"),
        ({"kubevipChartRef": "oci://Registry.example:443/charts/kube-vip"}, "registry.example"),
        ({"kubevipCloudProviderChartRef": f"{OCI}/kube-vip-cloud-provider"}, "kube-vip.io"),
        ({"kubevipChartRef": "file:///charts/kube-vip.tgz"}, "kube-vip.io"),
    ],
)
def test_a_credential_is_for_the_host_of_kube_vips_chart_alone(options: dict[str, str], host: str) -> None:
    assert {each.secret_host for each in sources(**options) if each.secret} == {host}


@pytest.mark.parametrize(
    ("fields", "url", "goes"),
    [
        ({}, "https://registry.example/v2/", True),
        ({}, "https://registry.example:443/v2/", True),
        ({}, "https://registry.example:5000/v2/", False),
        ({}, "https://evil.registry.example/", False),
        ({}, "https://kube-vip.io/helm-charts", False),
        ({}, "http://registry.example/charts", False),
        ({"allowHTTP": "true"}, "http://registry.example/charts", True),
        ({"allowHTTP": "true"}, "http://kube-vip.io/charts", False),
        ({"hosts": "auth.example, Mirror.example:5000"}, "https://auth.example/token", True),
        ({"hosts": "auth.example, Mirror.example:5000"}, "https://mirror.example:5000/charts", True),
        ({"hosts": "auth.example"}, "https://registry.example/v2/", False),
        ({"hosts": "auth.example:443"}, "https://auth.example/token", True),
        ({"hosts": "auth.example:443", "allowHTTP": "true"}, "http://auth.example/token", False),
        ({"hosts": "auth.example:80", "allowHTTP": "true"}, "http://auth.example/token", True),
        ({"hosts": "auth.example:80", "allowHTTP": "true"}, "https://auth.example/token", False),
    ],
)
def test_it_goes_to_no_other_host_and_over_http_only_where_that_is_said(
    fields: dict[str, str], url: str, goes: bool
) -> None:
    access = parse_credential("charts", secret(**CREDENTIAL, **fields), "registry.example")
    assert (access.problem_with(URL(url)) == "") is goes


def test_where_there_is_no_credential_nothing_is_withheld() -> None:
    assert ChartAccess().problem_with(URL("http://anywhere.example")) == ""


@pytest.mark.parametrize("fields", [{}, {"username": "u"}, {"token": "t", "username": "u", "password": "p"}])
def test_half_a_credential_is_none(fields: dict[str, str]) -> None:
    with pytest.raises(FipopError, match="username and password, or token"):
        parse_credential("charts", secret(**fields), "registry.example")
