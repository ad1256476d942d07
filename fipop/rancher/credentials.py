"""Which Harvester cluster a cloud credential of Rancher's is for."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from fipop.jsons import JsonView, as_mapping, as_text
from fipop.kube.kubeconfig import find_current_context
from fipop.settings.yaml import RefusedError, parse_yaml
from fipop.texts import is_object_name

MAX_KUBECONFIG_BYTES = 64 * 1024
_CREDENTIAL_ID = "harvestercredentialConfig-clusterId"
_CREDENTIAL_KUBECONFIG = "harvestercredentialConfig-kubeconfigContent"
_CLUSTER_PATH = re.compile(r"/k8s/clusters/([^/]+)/*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Which Harvester cluster a cloud credential is for. Its two fields are written apart, and can contradict."""

    cluster_id: str | None
    """The id that it names; optional there."""
    server_id: str | None
    """The cluster of Rancher to which its kubeconfig leads, and so where machines are; None if that is another."""
    has_server: bool
    """Whether its kubeconfig names a server."""


def parse_credential(secret: JsonView) -> Credential:
    """Read a cloud credential of Harvester."""
    data = as_mapping(secret.get("data"))
    cluster_id = (_decode(data.get(_CREDENTIAL_ID)) or "").strip()
    server = _find_server(_decode(data.get(_CREDENTIAL_KUBECONFIG)) or "")
    server_id = _find_cluster(server)
    return Credential(
        cluster_id=cluster_id if is_object_name(cluster_id) else None,
        server_id=server_id if is_object_name(server_id) else None,
        has_server=bool(server),
    )


def _find_server(text: str) -> str:
    """Return the server of the current context of a kubeconfig; "" if it has none."""
    try:
        kubeconfig = as_mapping(parse_yaml(text, max_bytes=MAX_KUBECONFIG_BYTES))
    except RefusedError:
        return ""
    cluster, _ = find_current_context(kubeconfig) or ({}, {})
    return as_text(cluster.get("server")).strip()


def _find_cluster(server: str) -> str:
    """Return the id of the cluster that Rancher serves under an URL; "" for any other server."""
    try:
        path = urlsplit(server).path
    except ValueError:
        return ""
    match = _CLUSTER_PATH.fullmatch(path)
    return match.group(1) if match else ""


def _decode(value: object) -> str | None:
    # Four characters of base64 are three bytes: refuse before decoding what we would refuse to read.
    if not isinstance(value, str) or len(value) > MAX_KUBECONFIG_BYTES * 4 // 3 + 4:
        return None
    try:
        return base64.b64decode(value, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
