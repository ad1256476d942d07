"""Kubeconfigs as values."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from localfleet.certificates import KeyPair


def build_kubeconfig(
    cluster: str, server: str, authority: bytes, user: str, credential: Mapping[str, str]
) -> dict[str, Any]:
    """A kubeconfig with one cluster, one user and one context, all data inside.

    `authority` is a CA as PEM.
    """
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": {"server": server, "certificate-authority-data": _base64(authority)}}
        ],
        "users": [{"name": user, "user": dict(credential)}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }


def token_credential(token: str) -> Mapping[str, str]:
    return {"token": token}


def certificate_credential(pair: KeyPair) -> Mapping[str, str]:
    return {
        "client-certificate-data": _base64(pair.certificate),
        "client-key-data": _base64(pair.key),
    }


def write_kubeconfig(path: Path, kubeconfig: Mapping[str, Any]) -> Path:
    """Write it where only we may read it."""
    write_private(path, yaml.safe_dump(dict(kubeconfig)).encode())
    return path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that no one else could ever read, not even between its creation and a chmod."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
