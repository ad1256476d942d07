"""Where helm may be sent."""

import pytest

from fipop.errors import KubeconfigError
from fipop.guest.releasekeeper import _refuse_local
from fipop.kube.connection import Connection


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:6443", "[::1]", "169.254.169.254"])
async def test_helm_is_not_sent_to_a_name_that_leads_to_this_machine_or_its_link(host: str) -> None:
    with pytest.raises(KubeconfigError, match="leads to this machine"):
        await _refuse_local(Connection(server=f"https://{host}/k8s/clusters/c-m-a", token="t"))


@pytest.mark.parametrize("host", ["no-such-host.invalid", f"{'a' * 64}.example"])
async def test_helm_is_not_sent_to_a_name_that_does_not_resolve(host: str) -> None:
    with pytest.raises(KubeconfigError, match="cannot be resolved"):
        await _refuse_local(Connection(server=f"https://{host}/k8s/clusters/c-m-a", token="t"))


async def test_helm_is_sent_to_any_other_address() -> None:
    await _refuse_local(Connection(server="https://10.43.17.20/k8s/clusters/c-m-a", token="t"))
