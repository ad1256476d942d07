"""The command lines of a control plane's programs, and the files they read."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localfleet.certificates import CertificateAuthority, KeyPair, build_authority, build_signing_key
from localfleet.kubeconfigs import build_kubeconfig, certificate_credential, write_kubeconfig, write_private

STAGES = Path(__file__).parent / "stages.yaml"

NAMESPACE_CONTROLLERS = (
    "namespace-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
)
"""Without these a deleted namespace stays for ever, what owned objects leave behind too, and there is no
ServiceAccount `default`."""

WORKLOAD_CONTROLLERS = ("deployment-controller", "replicaset-controller", "daemonset-controller")
"""With these, the scheduler and nodes, workloads become ready."""

SERVICE_RANGES = "10.96.0.0/16,fd00:96::/112"
_SERVICE_ADDRESSES = ("10.96.0.1", "fd00:96::1")
# The API server insists on an address that is no loopback; nobody is told of it (no endpoint reconciler).
_ADVERTISED = "192.0.2.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The keys of one control plane: its CA, what signs ServiceAccount tokens, and the built-in users."""

    authority: CertificateAuthority
    server: KeyPair
    token_key: bytes
    token_public_key: bytes
    users: Mapping[str, KeyPair]


def build_credentials(name: str, now: dt.datetime) -> Credentials:
    """New keys for the control plane `name`. The users are `admin`, `controller-manager` and `scheduler`."""
    authority = build_authority(name, now)
    token_key, token_public_key = build_signing_key()
    names = ("127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    return Credentials(
        authority=authority,
        server=authority.issue_server((*names, *_SERVICE_ADDRESSES)),
        token_key=token_key,
        token_public_key=token_public_key,
        users={
            "admin": authority.issue_client("admin", ["system:masters"]),
            "controller-manager": authority.issue_client("system:kube-controller-manager"),
            "scheduler": authority.issue_client("system:kube-scheduler"),
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Where one control plane's files lie, below `folder`."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def token_key(self) -> Path:
        return self.folder / "token.key"

    @property
    def token_public_key(self) -> Path:
        return self.folder / "token.pub"

    def certificate(self, user: str) -> Path:
        return self.folder / f"{user}.crt"

    def key(self, user: str) -> Path:
        return self.folder / f"{user}.key"

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user}.kubeconfig"

    def log(self, program: str) -> Path:
        return self.folder / f"{program}.log"

    def write(self, credentials: Credentials) -> None:
        """Write all that does not depend on the API server's port."""
        self.folder.mkdir(mode=0o700)
        write_private(self.authority, credentials.authority.pem)
        write_private(self.token_key, credentials.token_key)
        write_private(self.token_public_key, credentials.token_public_key)
        for user, pair in (("server", credentials.server), *credentials.users.items()):
            write_private(self.certificate(user), pair.certificate)
            write_private(self.key(user), pair.key)

    def write_kubeconfigs(self, name: str, url: str, credentials: Credentials) -> None:
        for user, pair in credentials.users.items():
            kubeconfig: Mapping[str, Any] = build_kubeconfig(
                name, url, credentials.authority.pem, user, certificate_credential(pair)
            )
            write_kubeconfig(self.kubeconfig(user), kubeconfig)


def build_api_server(
    program: Path, files: Files, *, etcd_url: str, etcd_prefix: str, port: int
) -> Sequence[str]:
    return (
        str(program),
        f"--etcd-servers={etcd_url}",
        f"--etcd-prefix={etcd_prefix}",
        # Tests replay a store's whole history.
        "--etcd-compaction-interval=0",
        # Nobody reads these metrics; to keep them up to date is a quarter of what an idle API server does.
        "--etcd-count-metric-poll-period=0",
        "--etcd-db-metric-poll-interval=0",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--advertise-address={_ADVERTISED}",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGES}",
        "--authorization-mode=RBAC",
        f"--client-ca-file={files.authority}",
        f"--tls-cert-file={files.certificate('server')}",
        f"--tls-private-key-file={files.key('server')}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={files.token_public_key}",
        f"--service-account-signing-key-file={files.token_key}",
        # It taints new nodes until a controller that does not run here has seen them ready.
        "--disable-admission-plugins=TaintNodesByCondition",
        "--allow-privileged=true",
        "--profiling=false",
    )


def build_controller_manager(program: Path, files: Files, controllers: Iterable[str]) -> Sequence[str]:
    return (
        str(program),
        f"--kubeconfig={files.kubeconfig('controller-manager')}",
        f"--controllers={','.join(controllers)}",
        f"--service-account-private-key-file={files.token_key}",
        f"--root-ca-file={files.authority}",
        # Each controller then acts as its own ServiceAccount, with the rights it has in a real cluster.
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    )


def build_scheduler(program: Path, files: Files) -> Sequence[str]:
    return (
        str(program),
        f"--kubeconfig={files.kubeconfig('scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    )


def build_kwok(program: Path, files: Files) -> Sequence[str]:
    return (
        str(program),
        f"--kubeconfig={files.kubeconfig('admin')}",
        f"--config={STAGES}",
        "--manage-all-nodes=true",
        "--node-ip=192.0.2.10",
    )


def build_node(
    name: str, labels: Mapping[str, str] | None = None, taints: Iterable[Any] = ()
) -> dict[str, Any]:
    """A node as RKE2 makes the servers of a small cluster: all roles in one."""
    roles = ("control-plane", "etcd", "master", "worker")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **{f"node-role.kubernetes.io/{role}": "true" for role in roles},
                **(labels or {}),
            },
        },
        "spec": {"taints": list(taints)},
    }
