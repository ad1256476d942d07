"""values.schema.json: what helm refuses before anything is installed."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fipop.cli.operator import operator
from fipop.settings.options import DEFAULTS, parse_settings
from tests.chart.legal_values import SCHEMA, VALIDATOR, merged
from tests.chart.rendering import ROOT, Chart, HelmRefusedError

OPTIONS = {
    name: SCHEMA["definitions"][found["$ref"].rpartition("/")[2]] if "$ref" in found else found
    for name, found in SCHEMA["properties"]["settings"]["properties"].items()
}
WITH_PATTERN = {name: form for name, form in OPTIONS.items() if "pattern" in form}
"""The options whose form the schema knows; that a host is none of the link it leaves to the operator."""

REFUSED: dict[str, dict[str, Any]] = {
    "an unknown value": {"replica": 1},
    "an unknown option": {"settings": {"loglevel": "Info"}},
    "a log level in the wrong case": {"settings": {"logLevel": "info"}},
    "an interval of 0": {"settings": {"operateGuestClusterInterval": 0}},
    "an interval that is no whole number": {"settings": {"operateGuestClusterInterval": 1.5}},
    "the port of the probes for the metrics": {"settings": {"metricsPort": 8081}},
    "a port that is none": {"settings": {"metricsPort": 65536}},
    "a boolean as text": {"settings": {"traceIpamData": "yes"}},
    "an unknown way of installing": {"settings": {"kubevipGuestInstall": "always"}},
    "a namespace that is none": {"settings": {"kubevipNamespace": "Kube_System"}},
    "no requests a second": {"settings": {"guestRequestsPerSecond": 0}},
    "a release name that is too long": {"settings": {"kubevipReleaseName": "x" * 54}},
    "a chart reference over HTTP": {"settings": {"kubevipChartRef": "https://charts.example.com/kube-vip"}},
    "a repository without a scheme": {"settings": {"kubevipChartRepoUrl": "charts.example.com"}},
    "a chart reference with a tag": {
        "settings": {"kubevipChartRef": "oci://registry.example.com/kube-vip:1.2.3"}
    },
    "a range of chart versions": {"settings": {"kubevipChartVersion": "1.x"}},
    "a repository with a password": {
        "settings": {"kubevipChartRepoUrl": "https://me:secret@charts.example.com"}
    },
    "a repository with a token in its query": {
        "settings": {"kubevipChartRepoUrl": "https://charts.example.com/stable?token=secret"}
    },
    "a repository with a query and no path": {
        "settings": {"kubevipChartRepoUrl": "https://charts.example.com?token=secret"}
    },
    "a repository with a fragment": {
        "settings": {"kubevipChartRepoUrl": "https://charts.example.com/stable#secret"}
    },
    "chart values that are a list": {"settings": {"kubevipChartValues": []}},
    "a repository at a port that is none": {
        "settings": {"kubevipChartRepoUrl": "https://charts.example.com:99999/stable"}
    },
    "a repository at no address": {"settings": {"kubevipChartRepoUrl": "https://[fd00:::5]/stable"}},
    "a repository for neither chart, and one reference": {
        "settings": {"kubevipChartRepoUrl": "", "kubevipChartRef": "oci://registry.example.com/kube-vip"}
    },
    "no namespace with secrets": {"secretNamespaces": []},
    "a wildcard for the namespaces with secrets": {"secretNamespaces": ["*"]},
    "a namespace with secrets twice": {"secretNamespaces": ["fleet-default", "fleet-default"]},
    "two operators without a lease": {"leaderElection": False, "replicas": 2, "strategy": "Recreate"},
    "a rolling update without a lease": {
        "leaderElection": False,
        "replicas": 1,
        "strategy": "RollingUpdate",
    },
    "a negative number of operators": {"replicas": -1},
    "a digest without its algorithm": {"image": {"digest": "0" * 64}},
    "no image": {"image": {"repository": ""}},
    "an unknown pull policy": {"image": {"pullPolicy": "Sometimes"}},
    "a service monitor that is neither on nor off": {"serviceMonitor": {"enabled": "yes"}},
    "an interval of scrapes without its unit": {"serviceMonitor": {"interval": "30"}},
    "an interval of scrapes in the wrong order": {"serviceMonitor": {"interval": "30s1m"}},
    "an image with a blank": {"image": {"repository": "fipop "}},
    "a Secret for images that is none": {"imagePullSecrets": [{"name": "My Secret"}]},
    "a priority class that is none": {"priorityClassName": "Very High"},
    "a label that the chart sets": {"podLabels": {"app.kubernetes.io/name": "other"}},
    "a label that is none": {"serviceMonitor": {"labels": {"release": "a b"}}},
    "an annotation that is none": {"service": {"annotations": {"a b": "c"}}},
    "a resource that is none": {"resources": {"limits": {"ram": "1Gi"}}},
    "an amount that is none": {"web": {"resources": {"limits": {"memory": "1 GB"}}}},
    "no port of the operator": {"service": {"targetPort": None}},
    "no section of the page": {"web": None},
    "no place of the runbooks": {"prometheusRule": {"runbookUrlBase": None}},
    "a place of the runbooks that is no address": {"prometheusRule": {"runbookUrlBase": "docs/runbooks"}},
    "an argument that the operator does not know": {"extraArgs": ["--loglevel=debug"]},
    "an argument that the chart sets": {"extraArgs": ["--namespace=other"]},
    "the port of the probes as the service's target": {"service": {"targetPort": 8081}},
    "a size without meaning": {"tmpSizeLimit": "big"},
    "a label that is no text": {"podLabels": {"a": 1}},
    "arguments as one text": {"extraArgs": "--resync-seconds=60"},
    "a variable that the chart sets": {"extraEnv": [{"name": "FIPOP_NAMESPACE", "value": "other"}]},
    "a variable without a name": {"extraEnv": [{"value": "other"}]},
    "a variable whose name is none": {"extraEnv": [{"name": "A B", "value": "other"}]},
    "a variable that is no text": {"extraEnv": [{"name": "NO_PROXY", "value": 1}]},
    "a variable with two values": {
        "extraEnv": [
            {"name": "NO_PROXY", "value": "a", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
        ]
    },
    "outgoing connections that are neither rules nor none": {"networkPolicy": {"egress": True}},
    "users of the host as text": {"hostUsers": "no"},
    "a spread without its topology": {
        "topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]
    },
    "another port for the probes": {"extraArgs": ["--health-port=9000"]},
}

TAKEN: dict[str, dict[str, Any]] = {
    "one operator without a lease": {"leaderElection": False, "replicas": 1, "strategy": "Recreate"},
    "five operators with a lease": {"replicas": 5},
    "charts from a registry only": {
        "settings": {
            "kubevipChartRepoUrl": "",
            "kubevipChartRef": "oci://registry.example.com/charts/kube-vip",
            "kubevipCloudProviderChartRef": "oci://registry.example.com/charts/kube-vip-cloud-provider",
        }
    },
    "a repository with any other character in its path": {
        "settings": {"kubevipChartRepoUrl": "https://charts.example.com:8443/a!\"$%&'()*+,-./:;<=>@[]^_`{|}~"}
    },
    "chart values as a text": {"settings": {"kubevipChartValues": "image:\n  tag: v1.2.4\n"}},
    "values of a parent chart": {"global": {"cattle": {"systemDefaultRegistry": ""}}},
    "no links to runbooks": {"prometheusRule": {"runbookUrlBase": ""}},
    "no operator for the time of a restore": {"replicas": 0},
    "a scrape a day": {"serviceMonitor": {"interval": "1d"}},
    "a repository at an IPv6 address": {
        "settings": {"kubevipChartRepoUrl": "https://[fd00::5]:65535/stable"}
    },
    "an amount that is a number": {"resources": {"limits": {"cpu": 2}}},
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_the_schema_refuses(values: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(merged(values))


@pytest.mark.parametrize("name", ["an unknown value", "no section of the page", "an amount that is none"])
def test_helm_refuses_what_the_schema_refuses(chart: Chart, name: str) -> None:
    with pytest.raises(HelmRefusedError, match="values don't meet the specifications of the schema"):
        chart.render(REFUSED[name])


@pytest.mark.parametrize("values", TAKEN.values(), ids=TAKEN)
def test_helm_takes(chart: Chart, values: dict[str, Any]) -> None:
    assert chart.render(values).only("Deployment")


def test_the_schema_knows_every_value_and_no_other() -> None:
    values = yaml.safe_load((ROOT / "values.yaml").read_text())
    assert set(SCHEMA["properties"]) == set(values)
    assert set(OPTIONS) == set(values["settings"])
    assert len(WITH_PATTERN) == 17


@pytest.mark.parametrize("option", WITH_PATTERN)
@given(data=st.data())
def test_what_the_schema_lets_through_the_operator_takes(option: str, data: st.DataObject) -> None:
    longest = WITH_PATTERN[option].get("maxLength", 100)
    text = data.draw(
        st.from_regex(WITH_PATTERN[option]["pattern"], fullmatch=True).filter(
            lambda each: len(each) <= longest
        )
    )
    # An empty repository is fine beside references, which the schema asks for.
    references = {"kubevipChartRef": "oci://r/c", "kubevipCloudProviderChartRef": "oci://r/c"}
    assert parse_settings({**references, option: text}, DEFAULTS)[1] == ()


# Of the CRD of ServiceMonitors.
DURATION = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"


@given(text=st.from_regex(SCHEMA["definitions"]["duration"]["pattern"], fullmatch=True))
def test_every_interval_of_scrapes_is_one_for_the_monitoring_operator(text: str) -> None:
    assert re.fullmatch(DURATION, text)


def test_every_argument_of_the_operator_is_set_by_the_chart_or_can_be_added(chart: Chart) -> None:
    alone = {"leaderElection": False, "replicas": 1, "strategy": "Recreate", "crds": {"update": False}}
    chart_sets = {each.partition("=")[0] for each in chart.render(alone).container["args"][1:]}
    pattern = SCHEMA["properties"]["extraArgs"]["items"]["pattern"]
    values = {
        "--resync-seconds": "=1",
        "--log-format": "=json",
        "--helm": "=/helm",
        "--kubeconfig": "=/config",
    }
    options = {name for each in operator.params for name in each.opts if name != "--help"}
    assert {name for name in options if re.fullmatch(pattern, name + values.get(name, ""))} == (
        options - chart_sets
    )


@pytest.mark.parametrize("text", ["[]", "just words", "a: b: c"])
def test_chart_values_that_are_no_mapping_are_refused(chart: Chart, text: str) -> None:
    with pytest.raises(HelmRefusedError, match=r"settings\.kubevipChartValues must be a YAML mapping"):
        chart.render({"settings": {"kubevipChartValues": text}})
