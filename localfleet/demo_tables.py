"""The end of the demo as tables: what kubectl, helm and a scrape of the metrics show."""

from localfleet.controlplane import ControlPlane
from localfleet.demo_stage import OPTED_IN, Stage

_MANAGEMENT = ("get fiprange -o wide", "get fip -A -o wide", "get fipres -o wide")
_GUEST = ("get pods -A", "get configmap kubevip -n kube-system -o jsonpath={.data}")
_SERVICES = (
    "get services -A --field-selector spec.type=LoadBalancer -o custom-columns=NAMESPACE:.metadata.namespace,"
    r"NAME:.metadata.name,PORT:.spec.ports[*].port,ADDRESSES:.metadata.annotations.kube-vip\.io/loadbalancerIPs"
)
_METRICS = ("kubefipoperator_fipranges_", "kubefipoperator_guestcluster_")
"""How the metrics begin that dashboards of kube-fip-operator use."""


async def show(stage: Stage) -> None:
    """Write all tables, each below the command that prints it."""
    for command in _MANAGEMENT:
        await _show_kubectl(stage, stage.management, command)
    for name in OPTED_IN:
        plane = stage.guests[name]
        releases = await stage.helm.run("list", "-A", "--kubeconfig", plane.admin_kubeconfig)
        stage.report.output(f"helm list -A   # {name}", releases)
        for command in _GUEST:
            await _show_kubectl(stage, plane, command)
    await _show_kubectl(stage, stage.guests["demo"], _SERVICES)
    metrics = await stage.operator.metrics()
    samples = (line for line in metrics.splitlines() if line.startswith(_METRICS))
    stage.report.output(f"curl {stage.operator.metrics_url}", "\n".join(samples))


async def _show_kubectl(stage: Stage, plane: ControlPlane, command: str) -> None:
    stage.report.output(f"kubectl {command}   # {plane.name}", await plane.kubectl(*command.split()))
