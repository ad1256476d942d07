"""values.schema.json: what helm refuses before anything is installed."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fipop.settings.options import DEFAULTS, parse_settings
from tests.chart.rendering import ROOT, Chart, HelmRefusedError

SCHEMA = yaml.safe_load((ROOT / "values.schema.json").read_text())
OPTIONS = {
    name: SCHEMA["definitions"][found["$ref"].rpartition("/")[2]] if "$ref" in found else found
    for name, found in SCHEMA["properties"]["settings"]["properties"].items()
}
WITH_PATTERN = {
    name: form for name, form in OPTIONS.items() if "pattern" in form and name != "kubevipChartRepoUrl"
}
"""The options whose form the schema knows whole; of a URL it leaves the port to the operator."""

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
    "a list of namespaces with blanks alone between them": {"settings": {"kubevipReleaseNamespaces": "a b"}},
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
    "the port of the probes as the service's target": {"service": {"targetPort": 8081}},
    "a size without meaning": {"tmpSizeLimit": "big"},
    "a label that is no text": {"podLabels": {"a": 1}},
    "arguments as one text": {"extraArgs": "--allow-loopback-guests"},
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
    "no operator for the time of a restore": {"replicas": 0},
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_helm_refuses(chart: Chart, values: dict[str, Any]) -> None:
    with pytest.raises(HelmRefusedError, match="values don't meet the specifications of the schema"):
        chart.render(values)


@pytest.mark.parametrize("values", TAKEN.values(), ids=TAKEN)
def test_helm_takes(chart: Chart, values: dict[str, Any]) -> None:
    assert chart.render(values).only("Deployment")


def test_the_schema_knows_every_value_and_no_other() -> None:
    values = yaml.safe_load((ROOT / "values.yaml").read_text())
    assert set(SCHEMA["properties"]) == set(values)
    assert set(OPTIONS) == set(values["settings"])
    assert len(WITH_PATTERN) == 16


@pytest.mark.parametrize("option", WITH_PATTERN)
@given(data=st.data())
def test_what_the_schema_lets_through_the_operator_takes(option: str, data: st.DataObject) -> None:
    longest = WITH_PATTERN[option].get("maxLength", 100)
    text = data.draw(st.from_regex(WITH_PATTERN[option]["pattern"]).filter(lambda each: len(each) <= longest))
    assert parse_settings({option: text}, DEFAULTS)[1] == ()
