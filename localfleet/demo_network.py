"""The end of the full demo: a real kube-vip announces an address of fipop on two nodes, and `curl` reaches it.

The nodes are network namespaces. Without root or what that needs, one line says what is missing.
"""

import shutil

from localfleet.client import Json
from localfleet.demo_story import Story, address_of
from localfleet.errors import DeadlineError, LocalFleetError
from localfleet.stack import condition
from localfleet.waiting import eventually
from localfleet.wire import NODE_ADDRESSES, NODES, Wire, find_obstacle, open_wire

_SERVICE, _FLOATING_IP = "web", "demo-kubevip"
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
_PATIENCE_SECONDS = 120.0


def find_problem() -> str:
    """Return why this machine cannot play this chapter, as a sentence; "" if it can."""
    return find_obstacle() or ("" if shutil.which("curl") else "The program curl is not installed.")


async def reach_an_address(story: Story) -> None:
    """Play the chapter if kube-vip is among the programs, else show why it is not."""
    stage = story.stage
    stage.report.chapter("A real kube-vip announces the address of the Service web in demo")
    if "kube-vip" not in stage.fleet.programs:
        stage.report.step(f"not shown on this machine: {find_problem()}")
        return
    plane, folder = stage.running()["demo"], stage.fleet.folder / "nodes"
    folder.mkdir()
    wire = await stage.exits.enter_async_context(open_wire(plane, folder, stage.fleet.programs["kube-vip"]))
    stage.report.step(f"{' and '.join(NODES)} are nodes of demo: network namespaces on a bridge")
    for node in NODES:
        await stage.exits.enter_async_context(
            wire.serve_http(node, f"Service web, answered by node {node}\n")
        )
    await plane.client.create(_SLICES, _build_slice())
    stage.report.step("a web server runs on both, in place of kube-proxy and pods: web has endpoints")
    for node in NODES:
        await wire.start(node)
    stage.report.step(f"kube-vip starts on both, as a process: {stage.fleet.programs['kube-vip']}")
    address = address_of(await story.observe(), _FLOATING_IP)
    await _take(story, wire, address)
    await story.expect(
        f"fipop shows that {_FLOATING_IP} is announced",
        lambda view: condition(view.floating_ips[_FLOATING_IP], "Announced").get("status") == "True",
    )
    try:
        answer = await wire.curl(address)
    except (LocalFleetError, TimeoutError) as error:
        answer = str(error)
    stage.report.output(f"curl http://{address}/", answer)
    stage.report.check("curl prints the answer of the Service web", holds=answer.startswith("Service web,"))


async def _take(story: Story, wire: Wire, address: str) -> None:
    """Wait until kube-vip has taken an address on a node."""

    async def is_there() -> bool:
        return len(wire.nodes_of(address)) == 1

    fact = f"one node has taken {address}"
    try:
        async with story.stage.report.wait(fact):
            holds = await eventually(is_there, seconds=_PATIENCE_SECONDS, what=fact)
    except DeadlineError:
        holds = False
        story.stage.report.line(wire.logs())
    story.stage.report.check(fact, holds=holds)


def _build_slice() -> Json:
    """Return the EndpointSlice of the Service: there is no controller here that makes them."""
    endpoints = [
        {
            "addresses": [NODE_ADDRESSES[node]],
            "nodeName": node,
            "conditions": {"ready": True, "serving": True},
        }
        for node in NODES
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{_SERVICE}-nodes", "labels": {"kubernetes.io/service-name": _SERVICE}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
        "endpoints": endpoints,
    }
