"""A management cluster and its guests as files, served by HTTP: what the commands that only read are tried on.

It is NOT a Kubernetes API server: it gets and lists the objects of a folder, selects by labels that are equal or not,
and answers access reviews. Its clock stands still (the Date header), so that ages are the same at each run.
"""

import base64
import json
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from localfleet.certificates import build_authority, build_server_tls
from tests.harness.objects import count_ranges

ROOT = Path(__file__).parents[2]
FLEETS = Path(__file__).parent / "fleet"
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
FULL, LIMITED = "reads-everything", "reads-little"
"""The tokens of two readers."""
_HIDDEN_FROM_LIMITED = ("secrets", "leases", "configmaps", "clusters", "deployments")
_GUESTS = "/k8s/clusters/"
_MANAGEMENT_ALONE = ("/apis/kubefip.k8s.binbash.org", "/apis/provisioning.cattle.io")
"""Kinds that guest clusters do not have."""

Json = dict[str, Any]


class Fleet:
    """One folder: the objects of the management cluster by their collection, and those of each guest."""

    def __init__(self, name: str, *, has_crds: bool) -> None:
        folder = FLEETS / name
        self.refused: frozenset[str] = frozenset()
        """Collections that no reader may read."""
        self.closed_namespaces = frozenset({"cattle-global-data"})
        """Those whose Secrets the operator may not get."""
        self.management = _load(sorted(folder.glob("*.yaml")))
        self.guests = {file.stem: _load([file]) for file in sorted(folder.glob("guests/*.yaml"))}
        self.kubeconfigs: list[dict[str, str]] = yaml.safe_load((folder / "kubeconfigs.yaml").read_text())
        if has_crds:
            for crd in _objects(sorted((ROOT / "crds").glob("*.yaml"))):
                crd["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
                _put(self.management, crd)
            ours = "/apis/kubefip.k8s.binbash.org/v1/floatingip"
            self.management[f"{ours}ranges"] = count_ranges(
                self.management[f"{ours}ranges"],
                self.management[f"{ours}s"],
                self.management[f"{ours}reservations"],
                self.management["/apis/management.cattle.io/v3/clusters"],
            )

    def add_kubeconfigs(self, server: str, authority: bytes) -> None:
        """Put the Secrets with kubeconfigs there, which name the server's address."""
        for each in self.kubeconfigs:
            text = build_kubeconfig(f"{server}{_GUESTS}{each['guest']}", authority, "of-the-guest")
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"namespace": "fleet-default", "name": f"{each['name']}-kubeconfig"},
                "data": {"value": base64.b64encode(text.encode()).decode()},
            }
            _put(self.management, secret)

    def read(self, path: str, selectors: Iterable[str] = (), *, is_limited: bool = False) -> tuple[int, Json]:
        """Answer a GET of a reader."""
        objects: dict[str, list[Json]] | None = self.management
        if path.startswith(_GUESTS):
            guest, _, rest = path.removeprefix(_GUESTS).partition("/")
            objects, path = self.guests.get(guest), f"/{rest}"
        if objects is None:
            return 503, _failure(503, "ServiceUnavailable", "the guest's agent is not connected")
        if objects is not self.management and path.startswith(_MANAGEMENT_ALONE):
            return 404, _failure(404, "NotFound", "the server could not find the requested resource")
        if path == "/version":
            return 200, {"major": "1", "minor": "34", "gitVersion": "v1.34.1"}
        parts, namespace = path.split("/"), ""
        if "namespaces" in parts[:-2]:
            at = parts.index("namespaces")
            namespace = parts[at + 1]
            del parts[at : at + 2]
        group = 4 if parts[1] == "apis" else 3
        collection, name = "/".join(parts[: group + 1]), "/".join(parts[group + 1 :])
        plural = parts[group] if len(parts) > group else ""
        if collection in self.refused or (is_limited and plural in _HIDDEN_FROM_LIMITED):
            return 403, _failure(403, "Forbidden", f"{plural} is forbidden")
        found = [
            each
            for each in objects.get(collection, ())
            if namespace in ("", each["metadata"].get("namespace", ""))
            and name in ("", each["metadata"]["name"])
        ]
        if name:
            missing = {**_failure(404, "NotFound", f"no {name}"), "details": {"name": name, "kind": plural}}
            return (200, found[0]) if found else (404, missing)
        found = [each for each in found if all(_matches(each, selector) for selector in selectors)]
        kind, version = f"{found[0]['kind']}List" if found else "List", "/".join(parts[2:group])
        metadata = {"resourceVersion": "1000"}
        return 200, {"apiVersion": version, "kind": kind, "metadata": metadata, "items": found}

    def review(self, body: Json) -> Json:
        """Answer an access review."""
        namespace = body.get("spec", {}).get("resourceAttributes", {}).get("namespace", "")
        return {**body, "status": {"allowed": namespace not in self.closed_namespaces}}


def _objects(files: list[Path]) -> Iterator[Json]:
    for file in files:
        yield from (each for each in yaml.safe_load_all(file.read_text()) if isinstance(each, dict))


def _load(files: list[Path]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for each in _objects(files):
        _put(found, each)
    return found


def _put(objects: dict[str, list[Json]], obj: Json) -> None:
    version = obj["apiVersion"]
    collection = f"/{'apis' if '/' in version else 'api'}/{version}/{obj['kind'].lower()}s"
    metadata = obj["metadata"]
    place = "-".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
    number = sum(len(each) for each in objects.values()) + 1
    metadata.setdefault("uid", f"uid-{obj['kind'].lower()}s-{place}")
    metadata.setdefault("resourceVersion", str(number))
    metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
    objects.setdefault(collection, []).append(obj)


def build_kubeconfig(server: str, authority: bytes, token: str) -> str:
    """Return the text of a kubeconfig."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fleet",
        "contexts": [{"name": "fleet", "context": {"cluster": "fleet", "user": "reader"}}],
        "clusters": [{"name": "fleet", "cluster": cluster}],
        "users": [{"name": "reader", "user": {"token": token}}],
    }
    return json.dumps(config)


class _Handler(BaseHTTPRequestHandler):
    """Answers for the fleet of its server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """A body is sent after its headers: else it waits 40 ms for the reader's delayed acknowledgement."""
    timeout = 20

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        is_limited = self.headers.get("Authorization") == f"Bearer {LIMITED}"
        selectors = parse_qs(url.query).get("labelSelector", ())
        self._answer(*self._fleet().read(url.path, selectors, is_limited=is_limited))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(201, self._fleet().review(body))

    def _fleet(self) -> Fleet:
        assert isinstance(self.server, _Server)
        return self.server.fleet

    def _answer(self, status: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def date_time_string(self, timestamp: float | None = None) -> str:  # noqa: ARG002 - the clock stands still
        return format_datetime(NOW, usegmt=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, ARG002 - the base class's
        return


def _matches(obj: Json, selector: str) -> bool:
    labels = obj["metadata"].get("labels") or {}
    for term in selector.split(","):
        if "!=" in term:
            key, _, value = term.partition("!=")
            if labels.get(key) == value:
                return False
        elif "=" in term:
            key, _, value = term.replace("==", "=").partition("=")
            if labels.get(key) != value:
                return False
        elif term not in labels:
            return False
    return True


def _failure(code: int, reason: str, message: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, fleet: Fleet, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fleet = fleet
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that hangs up."""


@cache
def _certificate() -> tuple[bytes, ssl.SSLContext]:
    authority = build_authority("golden", datetime.now(tz=UTC))
    return authority.pem, build_server_tls(authority.issue_server(["127.0.0.1"]))


@contextmanager
def serve(name: str, folder: Path, *, has_crds: bool = True) -> Iterator[dict[str, Path]]:
    """Serve a fleet; the kubeconfigs of its readers, by their token."""
    with serve_fleet(Fleet(name, has_crds=has_crds), folder) as kubeconfigs:
        yield kubeconfigs


@contextmanager
def serve_fleet(fleet: Fleet, folder: Path) -> Iterator[dict[str, Path]]:
    """Serve a fleet that a test may change meanwhile; the kubeconfigs of its readers, by their token."""
    authority, tls = _certificate()
    server = _Server(fleet, tls)
    url = f"https://127.0.0.1:{server.server_address[1]}"
    fleet.add_kubeconfigs(url, authority)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    kubeconfigs = {}
    for token in (FULL, LIMITED):
        kubeconfigs[token] = folder / f"{token}.yaml"
        kubeconfigs[token].write_text(build_kubeconfig(url, authority, token))
    try:
        yield kubeconfigs
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
