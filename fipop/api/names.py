"""Names of fipop's public contract: API group, annotations, labels, fixed objects.

Names that kube-fip-operator had are the same, so that existing objects and runbooks keep working.
"""

from __future__ import annotations

from fipop.texts import is_namespace

GROUP = "kubefip.k8s.binbash.org"
VERSION = "v1"

ANNOTATION_HARVESTER_CLUSTER = "harvesterClusterName"
ANNOTATION_HARVESTER_NETWORK = "harvesterNetworkName"
ANNOTATION_CLUSTER = "clustername"
ANNOTATION_RANGE = "fiprange"
ANNOTATION_UPDATE_CONFIG_MAP = "updateConfigMap"

ANNOTATION_PAUSED = f"{GROUP}/paused"
ANNOTATION_FLOATING_IP = f"{GROUP}/floating-ip"
ANNOTATION_IGNORE_CLAIM = f"{GROUP}/ignore-claim"
"""On a floating IP: the ids of guest clusters whose reports of its addresses an administrator found to be wrong."""
ANNOTATION_APPLIED = f"{GROUP}/applied"
"""On a guest's ConfigMap: the keys and values that fipop wrote last, as JSON."""

ANNOTATION_MADE = f"{GROUP}/made"
"""On a floating IP that fipop made for Services: the digest of the spec that fipop wrote."""

ANNOTATION_WAITS = f"{GROUP}/waits"
"""On the Lease: which guest clusters all new addresses wait for. One sentence a line."""

ANNOTATION_HANDOVER = f"{GROUP}/handover"
"""On the Lease: until when all that the leader knew of addresses in use stands in the statuses of ranges, as JSON."""

ANNOTATION_GUEST_PROBLEMS = f"{GROUP}/guest-problems"
"""On the Lease: what is wrong with the links of guest clusters, as JSON (`fipop.api.guest_problems`)."""

ANNOTATION_LEADER_NAMESPACE = f"{GROUP}/leader-namespace"
"""On the CRD of FloatingIPReservation: the namespace of the installation that leads this management cluster."""

LABEL_OPT_IN = "kube-vip"
"""On the provisioning Cluster: a Go boolean that opts the guest in for installation."""

LABEL_REMOVE = f"{GROUP}/remove"
"""On the provisioning Cluster: "true", together with `kube-vip: "false"`, has fipop uninstall what it installed."""

LABEL_ROLE = f"{GROUP}/role"
LABEL_DIGEST = f"{GROUP}/digest"

LABEL_CANARY = f"{GROUP}/canary"
"""On the provisioning Cluster: "true" has the guest be among the first of each rollout."""
ANNOTATION_ROLLOUT = f"{GROUP}/rollout"
"""On kube-fip-config: `retry/<target>`, which acts once."""

DEFAULT_ADDRESS_SPACE = "default"
DEFAULT_QUARANTINE_SECONDS = 600

OPERATOR_NAMESPACE = "kube-fip"
SETTINGS_CONFIG_MAP = "kube-fip-config"
ROLLOUT_CONFIG_MAP = "fipop-rollout"
PREDECESSOR_DEPLOYMENT = "kube-fip-operator"
LEASE_NAME = "fipop-operator"

GUEST_CONFIG_MAP = "kubevip"
KUBECONFIG_SECRET_SUFFIX = "-kubeconfig"  # noqa: S105 - the name of an object, not a secret
FLOATING_IP_SUFFIX = "-kubevip"
"""A floating IP that fipop makes for a new guest is named `<cluster><suffix>`."""
ALLOW_POOL_PREFIX = "allow-pool-"
"""Of keys of ConfigMap kubevip: `allow-pool-<pool>` has the namespaces whose Services may choose the pool."""
EVERY_NAMESPACE = "*"
"""In a key `allow-pool-…`: the Services of all namespaces may choose the pool."""

_GO_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_GO_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
GO_BOOLS = _GO_TRUE | _GO_FALSE


def split_names(text: str) -> list[str]:
    """Return the names in a key of ConfigMap kubevip, which commas or spaces separate."""
    return text.replace(",", " ").split()


def is_consent(name: str) -> bool:
    """Return whether a key `allow-pool-…` can have a name: that of a namespace, or the one for all of them."""
    return name == EVERY_NAMESPACE or is_namespace(name)


def parse_go_bool(text: str | None) -> bool | None:
    """Read a boolean as Go's strconv.ParseBool does; None if it is absent or not a boolean."""
    if text in _GO_TRUE:
        return True
    if text in _GO_FALSE:
        return False
    return None
