"""What a guest on Harvester brings along: Harvester's own kube-vip, which is in the way of ours."""

from pathlib import Path

import yaml

from localfleet.client import ApiClient
from localfleet.rancher_steps import ensure

MANIFESTS = Path(__file__).parent / "harvester-guest.yaml"
DAEMON_SET = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-vip"
_COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "DaemonSet": "/apis/apps/v1/namespaces/kube-system/daemonsets",
}


async def install_harvester_kube_vip(guest: ApiClient) -> None:
    """Put the DaemonSet `kube-system/kube-vip` into a guest, with the objects of its name that helm stumbles over."""
    for manifest in yaml.safe_load_all(MANIFESTS.read_text()):
        await ensure(guest, _COLLECTIONS[manifest["kind"]], manifest)
