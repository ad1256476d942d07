"""The cloud provider as one process: which mode it runs, by which Lease, and what it shows."""

from typing import Any

import pytest

from fipop.cloudprovider.app import CloudProvider, build_lease
from fipop.cloudprovider.keepalived import Method
from fipop.cloudprovider.keepalived_mode import KeepalivedMode
from fipop.cloudprovider.kubevip_mode import KubevipMode
from fipop.cloudprovider.options import KeepalivedOptions, KubevipOptions, LeaseOptions, ProviderOptions
from fipop.control.leadership import LeaseTimes
from fipop.errors import ApiUnreachableError
from fipop.kube.client import KubeClient
from fipop.kube.connection import Connection

CONNECTION = Connection(server="https://127.0.0.1:1", token="t")
KUBEVIP = KubevipOptions(namespace="kube-system", config_map="kubevip", class_name=None)
KEEPALIVED = KeepalivedOptions(
    namespace="kube-system", config_map="vip-configmap", network=None, default_method=Method.NAT
)


def options(mode: Any = KUBEVIP, **changes: Any) -> ProviderOptions:
    fields: dict[str, Any] = {
        "connection": CONNECTION,
        "identity": "me",
        "version": "0",
        "lease": None,
        "mode": mode,
        "host": "127.0.0.1",
        "port": 0,
        "writes_at_once": 4,
        "delete_stale_leases": False,
    }
    return ProviderOptions(**(fields | changes))


@pytest.mark.parametrize(("mode", "kind"), [(KUBEVIP, KubevipMode), (KEEPALIVED, KeepalivedMode)])
def test_the_options_choose_the_mode(mode: Any, kind: type[object]) -> None:
    assert isinstance(CloudProvider(options(mode))._mode, kind)


def test_without_election_there_is_no_lease() -> None:
    client = KubeClient(CONNECTION)
    assert build_lease(options(), client) is None
    lease = LeaseOptions(name="kube-vip-cloud-controller", namespace="kube-system", times=LeaseTimes())
    assert build_lease(options(lease=lease), client) is not None


def test_before_it_leads_it_shows_that_it_does_not_and_is_not_loaded() -> None:
    provider = CloudProvider(options())
    assert not provider._snapshot().leading
    facts = provider._health()
    assert not facts.ledger_loaded
    assert "services" in facts.silences


async def test_a_start_waits_for_its_api_server_and_says_so_to_the_probes() -> None:
    provider = CloudProvider(options())
    async with provider._client:
        with pytest.raises(ApiUnreachableError):
            await provider._mode.load()
