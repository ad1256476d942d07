"""The examples of docs/how-to/dns.md: a real external-dns, with their arguments and rights, and a real DNS server."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from localfleet.assets import ensure_all
from localfleet.controlplane import ControlPlane
from localfleet.dnsserver import DnsServer
from localfleet.kubeconfigs import write_kubeconfig
from localfleet.ports import Ports
from localfleet.processes import Process
from localfleet.stack import RANGES, build_range
from localfleet.waiting import eventually
from tests.api.cli.conftest import Seen
from tests.api.served_guest import remove_range
from tests.harness.documentation import DOCS, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("installs"), pytest.mark.timeout(1800)]
PAGE = (DOCS / "how-to" / "dns.md").read_text()
NAMESPACE, ZONE = "external-dns", "example.com"
SERVICE = "/api/v1/namespaces/default/services/web"
PATIENCE_SECONDS = 60.0
"""A change acts within seconds, at the latest at the next interval of a minute."""


@pytest_asyncio.fixture(scope="module")
async def programs() -> dict[str, Path]:
    return await asyncio.to_thread(ensure_all, "external-dns", "knot", "knot-dnsutils")


@pytest_asyncio.fixture
async def dns(seen: Seen, programs: dict[str, Path], tmp_path: Path) -> AsyncIterator[DnsServer]:
    knot, kdig, ports = programs["knot"], programs["knot-dnsutils"], seen.stack.fleet.ports
    async with DnsServer(knot=knot, kdig=kdig, folder=tmp_path / "dns", ports=ports, zone=ZONE) as server:
        yield server


@asynccontextmanager
async def external_dns(
    plane: ControlPlane, example: str, program: Path, dns: DnsServer, ports: Ports, folder: Path
) -> AsyncIterator[Process]:
    """Follow the page, and run what is in the Deployment as its ServiceAccount: there is no kubelet."""
    assert f"examples/{example}" in PAGE
    await plane.kubectl("create", "namespace", NAMESPACE)
    secret = f"--from-literal=tsig-secret={dns.secret}"
    await plane.kubectl("-n", NAMESPACE, "create", "secret", "generic", "external-dns", secret)
    manifest = str(ROOT / "examples" / example)
    await plane.kubectl("apply", "-f", manifest)
    found = await plane.client.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/external-dns")
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    token = await plane.token_for(NAMESPACE, pod["serviceAccountName"])
    kubeconfig = write_kubeconfig(folder / "external-dns.kubeconfig", plane.kubeconfig_for_token(token))
    edited = {"--rfc2136-host": "127.0.0.1", "--rfc2136-port": dns.port}
    arguments = [each for each in container["args"] if each.partition("=")[0] not in edited]
    assert len(arguments) == len(container["args"]) - len(edited)
    port = ports.reserve()
    process = Process(
        "external-dns",
        [
            program,
            *arguments,
            *(f"{name}={value}" for name, value in edited.items()),
            f"--kubeconfig={kubeconfig}",
            f"--metrics-address=127.0.0.1:{port}",
        ],
        log=folder / "external-dns.log",
        environment={"PATH": os.environ["PATH"], "HOME": str(folder), **await environment(plane, container)},
    )
    await process.start()
    try:
        yield process
        assert process.is_running, process.read_log()
    finally:
        await process.stop()
        ports.release(port)
        await plane.kubectl("delete", "-f", manifest)


async def environment(plane: ControlPlane, container: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a container, each from its Secret."""
    values = {}
    for each in container["env"]:
        place = each["valueFrom"]["secretKeyRef"]
        found = await plane.client.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{place['name']}")
        values[each["name"]] = base64.b64decode(found["data"][place["key"]]).decode()
    return values


async def resolves(dns: DnsServer, process: Process, name: str, *expected: str, kind: str = "A") -> None:
    """Wait until a name has these addresses and no others."""

    async def is_so() -> bool:
        found = await dns.resolve(name, kind)
        assert found == sorted(expected), found
        return True

    try:
        await eventually(is_so, seconds=PATIENCE_SECONDS, what=f"{kind} of {name} to be {expected}")
    except Exception as error:
        raise AssertionError(f"{error}\n{process.read_log()}") from error


async def test_a_floating_ip_has_records_as_long_as_it_has_addresses(
    seen: Seen, dns: DnsServer, programs: dict[str, Path], tmp_path: Path
) -> None:
    stack = seen.stack
    pool = "10.91.0.0/28,2001:db8:91::/124"
    body = build_range("dns", pool, harvester="harvester-cluster1", network="vlan10")
    await stack.client.create(RANGES, body)
    program, example = programs["external-dns"], "external-dns-floating-ips.yaml"
    async with external_dns(stack.plane, example, program, dns, stack.fleet.ports, tmp_path) as process:
        await resolves(dns, process, "demo-kubevip.demo.fip.example.com", seen.address)
        await seen.guest.ask("both", "dns", ipFamilyPolicy="RequireDualStack")
        await seen.guest.has_condition("Allocated", name="both")
        v4, v6 = (await seen.guest.floating_ip("both"))["status"]["addresses"]
        both = "both.demo.fip.example.com"
        await resolves(dns, process, both, v4)
        await resolves(dns, process, both, v6, kind="AAAA")
        await stack.client.patch(seen.guest.path("both"), {"spec": {"ipaddress": f"10.91.0.12,{v6}"}})
        await resolves(dns, process, both, "10.91.0.12")
        await stack.client.delete(seen.guest.path("both"))
        await resolves(dns, process, both)
        await resolves(dns, process, both, kind="AAAA")
        assert await dns.resolve("demo-kubevip.demo.fip.example.com") == [seen.address]
        assert await dns.resolve("ns.example.com") == ["127.0.0.1"], "a record of somebody else"
    await remove_range(stack, "dns")


async def test_a_service_has_a_record_as_long_as_it_has_an_address(
    seen: Seen, dns: DnsServer, programs: dict[str, Path], tmp_path: Path
) -> None:
    plane, client = seen.guest.plane, seen.guest.client
    assert plane is not None
    metadata = {"name": "web", "annotations": {"external-dns.kubernetes.io/hostname": "web.example.com"}}
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    await client.create("/api/v1/namespaces/default/services", {"metadata": metadata, "spec": spec})

    async def announce(address: str) -> None:
        """Write the status, as kube-vip does."""
        status = {"loadBalancer": {"ingress": [{"ip": address}]}}
        await client.patch(f"{SERVICE}/status", {"status": status})

    program, example = programs["external-dns"], "external-dns-services.yaml"
    async with external_dns(plane, example, program, dns, seen.stack.fleet.ports, tmp_path) as process:
        await announce(seen.address)
        await resolves(dns, process, "web.example.com", seen.address)
        await announce("10.90.0.99")
        await resolves(dns, process, "web.example.com", "10.90.0.99")
        await client.patch(SERVICE, {"spec": {"type": "ClusterIP"}})
        await resolves(dns, process, "web.example.com")
        await client.patch(SERVICE, {"spec": {"type": "LoadBalancer"}})
        await announce(seen.address)
        await resolves(dns, process, "web.example.com", seen.address)
        await client.delete(SERVICE)
        await resolves(dns, process, "web.example.com")
