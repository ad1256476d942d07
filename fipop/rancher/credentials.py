"""Which Harvester cluster a cloud credential of Rancher's is for."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import urlsplit

from fipop.jsons import JsonView, as_mapping, as_text
from fipop.settings.yaml import RefusedError, parse_yaml
from fipop.texts import is_object_name

MAX_KUBECONFIG_BYTES = 64 * 1024
_CREDENTIAL_ID = "harvestercredentialConfig-clusterId"
_CREDENTIAL_KUBECONFIG = "harvestercredentialConfig-kubeconfigContent"
_CLUSTER_PATH = re.compile(r"/k8s/clusters/([^/]+)/*")


def parse_credential(secret: JsonView) -> str | None:
    """Return the id of the Harvester cluster of a cloud credential; None if it names none.

    The id is optional there; without it, the server of the kubeconfig's current context names the cluster.
    """
    data = as_mapping(secret.get("data"))
    cluster_id = (_decode(data.get(_CREDENTIAL_ID)) or "").strip()
    if not cluster_id:
        cluster_id = _cluster_of_kubeconfig(_decode(data.get(_CREDENTIAL_KUBECONFIG)) or "")
    return cluster_id if is_object_name(cluster_id) else None


def _cluster_of_kubeconfig(text: str) -> str:
    try:
        kubeconfig = as_mapping(parse_yaml(text, max_bytes=MAX_KUBECONFIG_BYTES))
    except RefusedError:
        return ""
    context = _named(kubeconfig.get("contexts"), kubeconfig.get("current-context"))
    cluster = _named(kubeconfig.get("clusters"), as_mapping(context.get("context")).get("cluster"))
    try:
        path = urlsplit(as_text(as_mapping(cluster.get("cluster")).get("server")).strip()).path
    except ValueError:
        return ""
    match = _CLUSTER_PATH.fullmatch(path)
    return match.group(1) if match else ""


def _named(items: object, name: object) -> JsonView:
    entries = (as_mapping(item) for item in items) if isinstance(items, list) else ()
    return next((entry for entry in entries if name and entry.get("name") == name), {})


def _decode(value: object) -> str | None:
    # Four characters of base64 are three bytes: refuse before decoding what we would refuse to read.
    if not isinstance(value, str) or len(value) > MAX_KUBECONFIG_BYTES * 4 // 3 + 4:
        return None
    try:
        return base64.b64decode(value, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
