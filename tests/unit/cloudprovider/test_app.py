"""The cloud provider as one process: which mode it runs, by which Lease, and what it shows."""

import json
from random import SystemRandom
from typing import Any
from urllib.parse import parse_qsl

import pytest

from fipop.boundary import SystemClock
from fipop.cloudprovider.app import LIMITS, CloudProvider, build_lease, build_provider
from fipop.cloudprovider.keepalived import Method
from fipop.cloudprovider.keepalived_mode import KeepalivedMode
from fipop.cloudprovider.kubevip_mode import KubevipMode
from fipop.cloudprovider.options import KeepalivedOptions, KubevipOptions, LeaseOptions, ProviderOptions
from fipop.errors import ApiAnswerError, ApiUnreachableError
from fipop.kube.answers import Answer
from fipop.kube.calls import Call
from fipop.kube.client import KubeClient
from fipop.kube.connection import Connection
from fipop.kube.connector import TOO_LARGE
from fipop.kube.http_server import HttpServer
from fipop.kube.limits import MIB
from fipop.kube.listing import PageReader
from fipop.runtime.leader_election import LeaseTimes

CONNECTION = Connection(server="https://127.0.0.1:1", token="t")
KUBEVIP = KubevipOptions(namespace="kube-system", config_map="kubevip", class_name=None)
KEEPALIVED = KeepalivedOptions(
    namespace="kube-system", config_map="vip-configmap", network=None, default_method=Method.NAT
)


def options(mode: Any = KUBEVIP, **changes: Any) -> ProviderOptions:
    fields: dict[str, Any] = {
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


def build(options: ProviderOptions) -> CloudProvider:
    return build_provider(
        options, api=lambda: HttpServer(CONNECTION), clock=SystemClock(), random=SystemRandom()
    )


@pytest.mark.parametrize(("mode", "kind"), [(KUBEVIP, KubevipMode), (KEEPALIVED, KeepalivedMode)])
async def test_the_options_choose_the_mode(mode: Any, kind: type[object]) -> None:
    assert isinstance(build(options(mode))._mode, kind)


async def test_without_election_there_is_no_lease() -> None:
    client = KubeClient(CONNECTION)
    assert build_lease(options(), client, SystemClock()) is None
    lease = LeaseOptions(name="kube-vip-cloud-controller", namespace="kube-system", times=LeaseTimes())
    assert build_lease(options(lease=lease), client, SystemClock()) is not None


async def test_before_it_leads_it_shows_that_it_does_not_and_is_not_loaded() -> None:
    provider = build(options())
    assert not provider._snapshot().leading
    facts = provider._health()
    assert not facts.ledger_loaded
    assert "services" in facts.silences


async def test_a_list_of_large_services_comes_in_pages_of_eight_mebibytes_and_as_long_as_it_is() -> None:
    """65 services of a mebibyte each: a page that is too large is asked for again, smaller."""
    text = "x" * MIB
    services = [
        {"metadata": {"name": f"s{number}", "resourceVersion": "7"}, "x": text} for number in range(65)
    ]
    sizes: list[int] = []

    async def receive(call: Call, most_bytes: int) -> Answer:
        query = dict(parse_qsl(call.query))
        limit, start = int(query["limit"]), int(query.get("continue", 0))
        more = str(start + limit) if start + limit < len(services) else ""
        body = {
            "kind": "List",
            "metadata": {"resourceVersion": "7", "continue": more},
            "items": services[start : start + limit],
        }
        if min(limit, len(services) - start) * MIB > min(most_bytes, LIMITS.answer_bytes):
            raise ApiAnswerError(verb="list", kind="Service", reason=TOO_LARGE)
        answer = Answer(status=200, body=json.dumps(body).encode())
        sizes.append(len(answer.body))
        return answer

    reader = PageReader(limits=LIMITS, receive=receive, most=lambda left: min(left, LIMITS.answer_bytes))
    call = Call(verb="list", kind="Service", method="GET", path="/api/v1/services")
    names = (await reader.read(call, {}, lambda obj: obj["metadata"]["name"])).items
    assert len(set(names)) == 65
    assert max(sizes) <= 8 * MIB
    assert LIMITS.answer_bytes == 8 * MIB


async def test_a_start_waits_for_its_api_server_and_says_so_to_the_probes() -> None:
    provider = build(options())
    async with provider._client:
        with pytest.raises(ApiUnreachableError):
            await provider._mode.load()
