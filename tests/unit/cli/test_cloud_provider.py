"""The flags and the environment of the cloud provider: those of the programs that it succeeds."""

from pathlib import Path
from typing import Any

import pytest

from fipop.api.service import DEFAULT_CLASS
from fipop.cli.cloud_provider import (
    KEEPALIVED_MODE,
    KUBEVIP_MODE,
    _configure,
    cloud_provider,
    read_options,
)
from fipop.cloudprovider.options import KeepalivedOptions, KubevipOptions
from fipop.errors import StartError
from localfleet.rancher_objects import build_kubeconfig


@pytest.fixture(autouse=True)
def _in_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in a pod: its ServiceAccount and its environment are there; a kubeconfig is in the usual place."""
    for name, text in (("TOKEN", "t"), ("CERT", "a certificate")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(
            f"kubernetes.aio.config.incluster_config.SERVICE_{name}_FILENAME", tmp_path / name
        )
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.43.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "kubeconfig").write_text(build_kubeconfig(server="https://usual", token="t"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))


def flags(arguments: tuple[str, ...]) -> dict[str, Any]:
    found = cloud_provider.make_context("cloud-provider", list(arguments), resilient_parsing=False).params
    return {name: value for name, value in found.items() if name != "mode"}


def read(mode: str = KUBEVIP_MODE, *arguments: str, **environment: str) -> Any:
    return read_options(mode, flags(arguments), environment)


async def connect(*arguments: str) -> str:
    """Return the URL to which requests go, after the credential of the first was read."""
    configuration = await _configure(flags(arguments))
    assert await configuration.get_api_key_with_prefix("BearerToken") in ("Bearer t", "bearer t")
    return str(configuration.host)


async def test_without_a_word_it_is_as_kube_vip_cloud_provider() -> None:
    found = read()
    assert isinstance(found.mode, KubevipOptions)
    assert (found.mode.namespace, found.mode.config_map, found.mode.classes) == (
        "kube-system",
        "kubevip",
        frozenset({""}),
    )
    assert [each.name for each in found.leases] == ["kube-vip-cloud-controller", "fipop-kubevip"]
    assert (found.lease.name, found.lease.namespace, found.port) == (
        "kube-vip-cloud-controller",
        "kube-system",
        10258,
    )
    assert await connect() == "https://10.43.0.1:443"


def test_keepaliveds_mode_has_its_own_lease_port_and_config_map() -> None:
    found = read(
        KEEPALIVED_MODE, KEEPALIVED_SERVICE_CIDR="10.1.0.0/24", KEEPALIVED_DEFAULT_FORWARD_METHOD="DR"
    )
    assert isinstance(found.mode, KeepalivedOptions)
    assert (found.mode.config_map, str(found.mode.default_method)) == ("vip-configmap", "DR")
    assert (found.lease.name, found.port) == ("keepalived-cloud-provider", 10252)


async def test_flags_are_taken_as_go_writes_them() -> None:
    found = read(KUBEVIP_MODE, "--leader-elect=false", "--secure-port=0", "--concurrent-service-syncs", "3")
    assert (found.lease, found.port, found.writes_at_once) == (None, 0, 3)
    assert await connect("--OutSideCluster") == "https://usual"
    assert await connect("--master", "https://other") == "https://other"


@pytest.mark.parametrize(
    ("environment", "classes"),
    [
        ({}, {""}),
        ({"KUBEVIP_ENABLE_LOADBALANCERCLASS": "true"}, {DEFAULT_CLASS}),
        ({"KUBEVIP_ENABLE_LOADBALANCERCLASS": "false", "KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME": "x"}, {""}),
        ({"KUBEVIP_ENABLE_LOADBALANCERCLASS": "1", "KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME": "x"}, {"x"}),
        (
            {"KUBEVIP_ENABLE_LOADBALANCERCLASS": "1", "KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME": "x, y,"},
            {"x", "y", ""},
        ),
    ],
)
def test_a_class_is_served_where_it_is_switched_on(environment: dict[str, str], classes: set[str]) -> None:
    assert read(**environment).mode.classes == classes


@pytest.mark.parametrize(
    ("mode", "environment", "what"),
    [
        (KUBEVIP_MODE, {"KUBEVIP_ENABLE_LOADBALANCERCLASS": "perhaps"}, "KUBEVIP_ENABLE_LOADBALANCERCLASS"),
        (KEEPALIVED_MODE, {"KEEPALIVED_SERVICE_CIDR": "10.1.0.0/99"}, "10.1.0.0/99"),
        (KEEPALIVED_MODE, {"KEEPALIVED_DEFAULT_FORWARD_METHOD": "SNAT"}, "SNAT"),
    ],
)
def test_what_cannot_be_read_ends_the_start_with_a_sentence(
    mode: str, environment: dict[str, str], what: str
) -> None:
    with pytest.raises(StartError, match=what):
        read(mode, **environment)


def test_times_of_the_lease_that_cannot_work_are_refused() -> None:
    with pytest.raises(StartError, match="--leader-elect"):
        read(KUBEVIP_MODE, "--leader-elect-lease-duration=2s", "--leader-elect-renew-deadline=10s")
