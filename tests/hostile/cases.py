"""What hostile guests do, and what must be told of each. One guest has one kind of malice."""

from __future__ import annotations

import asyncio
import base64
import copy
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.hostile.guest import Guest
from tests.hostile.server import Answering, Raw, Reply, Request, Writer, failure, reply

Json = dict[str, Any]
Twist = Callable[[Request], Reply | Raw | None]
Change = Callable[[Json], Json | bytes]

MIB = 1024 * 1024
IN_LINE_SECONDS = 400.0
"""Until helm told: slow guests may have both turns, for three minutes each, and others stand in the line before."""
MARK = "PWNED"
"""What a guest says so that it would be known again wherever it came out."""
HIDDEN = f"\x1b[31m\u202e{MARK}\x07"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of hostile guest.

    `says` must be found in a condition of its floating IP. `hangs`: it holds up whom it talks to, so such kinds run
    side by side. `opted_in`: helm works there. `settles_seconds`: until what must be told is told.
    """

    name: str
    says: str
    change: Change | None = None
    guest: Callable[[], Answering] = Guest
    opted_in: bool = False
    hangs: bool = False
    settles_seconds: float = 30.0


class Twisted(Guest):
    """A guest that answers some requests in its own way."""

    def __init__(self, *twists: Twist) -> None:
        super().__init__()
        self._twists = twists

    async def __call__(self, request: Request) -> Reply | Raw:
        """Answer the first twist's way, else as it should be."""
        for twist in self._twists:
            found = twist(request)
            if found is not None:
                return found
        return await super().__call__(request)


def always(answer: Reply | Raw) -> Callable[[], Answering]:
    """A guest that says one thing to everything."""
    return lambda: Twisted(lambda _: answer)


def twisted(matches: Callable[[Request], bool], answer: Reply | Raw) -> Callable[[], Answering]:
    """A guest that says one thing to some requests."""
    return lambda: Twisted(lambda request: answer if matches(request) else None)


def raw(*parts: bytes, seconds: float = 0.0, hold: bool = False) -> Raw:
    """Write these bytes, with a pause after each, then hold the connection or close it."""

    async def write(writer: Writer) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(seconds)
        if hold:
            await asyncio.sleep(60)

    return write


def endless(chunk: bytes, *, head: bytes = b"", seconds: float = 0.0) -> Raw:
    """Write a chunk over and over until the other side has enough."""

    async def write(writer: Writer) -> None:
        writer.write(head)
        while True:
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(seconds)

    return write


def listing(*items: Json, version: object = "7", **metadata: object) -> Reply:
    return reply(
        {
            "apiVersion": "v1",
            "kind": "List",
            "metadata": {"resourceVersion": version, **metadata},
            "items": items,
        }
    )


def config_map(**metadata: object) -> Json:
    found = {"name": "kubevip", "namespace": "kube-system", "resourceVersion": "1", "uid": "u", **metadata}
    return {"metadata": found, "data": {"cidr-global": "10.0.0.1/32"}}


def helm_posts(plural: str) -> Callable[[Request], bool]:
    return lambda request: (
        request.is_helms and request.method == "POST" and request.path.endswith(f"/{plural}")
    )


def helm_gets(path: str) -> Callable[[Request], bool]:
    return lambda request: request.is_helms and request.method == "GET" and request.path.startswith(path)


def lists(plural: str) -> Callable[[Request], bool]:
    return lambda request: (
        not request.is_helms and request.method == "GET" and request.path.endswith(f"/{plural}")
    )


# Kubeconfigs


def in_user(**fields: object) -> Change:
    return lambda config: _with(config, "users", "user", fields)


def in_cluster(**fields: object) -> Change:
    return lambda config: _with(config, "clusters", "cluster", fields)


def _with(config: Json, listing_name: str, field_name: str, fields: dict[str, object]) -> Json:
    changed = copy.deepcopy(config)
    changed[listing_name][0][field_name].update(fields)
    return changed


def server_like(build: Callable[[str], str]) -> Change:
    return lambda config: _with(
        config, "clusters", "cluster", {"server": build(config["clusters"][0]["cluster"]["server"])}
    )


def text(content: bytes) -> Change:
    return lambda _config: content


KUBECONFIG = "[Tt]he kubeconfig"
KUBECONFIGS = [
    Case(name=f"kubeconfig-{name}", says=KUBECONFIG, change=change)
    for name, change in {
        "exec": in_user(
            token=None, exec={"command": "/bin/sh", "args": ["-c", f"echo {MARK} > /tmp/{MARK}"]}
        ),
        "auth-provider": in_user(
            token=None, **{"auth-provider": {"name": "gcp", "config": {"cmd-path": "/bin/sh"}}}
        ),
        "token-file": in_user(token=None, tokenFile="/var/run/secrets/kubernetes.io/serviceaccount/token"),
        "client-certificate-file": in_user(
            token=None, **{"client-certificate": "/etc/passwd", "client-key": "/etc/shadow"}
        ),
        "basic": in_user(token=None, username="admin", password="admin"),
        "plain-http": server_like(lambda url: url.replace("https", "http")),
        "another-guest": server_like(lambda url: url.rpartition("/")[0] + "/c-m-neighbor"),
        "climbing-path": server_like(lambda url: f"{url}/../c-m-neighbor"),
        "encoded-path": server_like(lambda url: url.replace("/c-m", "%2Fc-m")),
        "query": server_like(lambda url: f"{url}?watch=1"),
        "credential-in-url": server_like(lambda url: url.replace("https://", "https://a:b@")),
        "control-characters": server_like(lambda url: f"{url}\r\nX-Evil: {MARK}"),
        "no-user": lambda config: config | {"users": []},
        "no-context": lambda config: config | {"current-context": HIDDEN},
        "bad-authority": in_cluster(**{"certificate-authority-data": base64.b64encode(b"no pem").decode()}),
        "no-base64": in_cluster(**{"certificate-authority-data": "!" * 1000}),
        "token-list": in_user(token=["a", "b"]),
        "not-yaml": text(b"{[}"),
        "binary": text(bytes(range(256)) * 16),
        "empty": text(b""),
        "huge": text(b"a: " + b"x" * 200_000),
        "alias-bomb": text(
            b"a: &a [x,x,x,x]\n" + b"".join(b"b%d: &b%d [*a,*a,*a,*a]\n" % (n, n) for n in range(500))
        ),
        "deep": text(b"[" * 30_000),
        "python-tag": text(b"!!python/object/apply:os.system ['touch /tmp/PWNED']"),
        "digits": text(b"a: " + b"9" * 60_000),
    }.items()
]

# The way to the API


def http(head: str, body: bytes = b"") -> bytes:
    return head.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body


CHUNKED = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked"
UNREACHABLE = "could not (list|get|create)"
TRANSPORT = [
    Case(name=f"transport-{name}", says=UNREACHABLE, guest=always(answer))
    for name, answer in {
        "closes": raw(b""),
        "redirect-302": Reply(status=302, headers={"Location": "{trap}"}),
        "redirect-307": Reply(status=307, headers={"Location": "{trap}"}),
        "ssh": raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
        "zeros": raw(b"\0" * 100_000),
        "short-body": raw(http("HTTP/1.1 200 OK\nContent-Length: 1000", b"{}")),
        "upgrade": raw(http("HTTP/1.1 101 Switching Protocols\nUpgrade: websocket\nConnection: Upgrade")),
        "gzip": Reply(body=gzip.compress(b" " * 50 * MIB), headers={"Content-Encoding": "gzip"}),
        "endless-body": endless(b" " * 65536, head=http("HTTP/1.1 200 OK\nContent-Length: 99999999999")),
        "chunks-of-a-byte": endless(b"1\r\n \r\n" * 4096, head=http(CHUNKED)),
        "chunk-extension-without-end": endless(b"x" * 65536, head=http(CHUNKED) + b"1;"),
        "interim-answers-without-end": endless(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 500),
        "headers-without-end": endless(b"X-Y: %b\r\n" % (b"z" * 1000) * 50, head=b"HTTP/1.1 200 OK\r\n"),
        "headers-of-a-mebibyte": raw(
            http("HTTP/1.1 200 OK\n" + "\n".join(f"X-{n}: {'z' * 1000}" for n in range(1000)))
        ),
        "unauthorized": failure(401, "Unauthorized", HIDDEN),
        "forbidden": failure(403, "Forbidden", HIDDEN * 1000),
        "not-found": failure(404, "NotFound", HIDDEN),
        "throttled-for-ever": Reply(status=429, headers={"Retry-After": "99999999"}),
        "server-error": Reply(status=500, body=HIDDEN.encode() * 10_000),
        "reason-of-a-megabyte": failure(409, HIDDEN + "x" * 900_000, HIDDEN),
        "gone": failure(410, "Expired", HIDDEN),
    }.items()
]
HANGING = [
    Case(name=f"slow-{name}", says=UNREACHABLE, guest=always(answer), hangs=True, settles_seconds=120)
    for name, answer in {
        "silent": raw(hold=True),
        "one-byte-a-second": endless(b" ", head=http("HTTP/1.1 200 OK\nContent-Length: 1000"), seconds=1.0),
        "headers-for-ever": endless(b"X: y\r\n", head=b"HTTP/1.1 200 OK\r\n", seconds=0.2),
        "body-that-stops": raw(http("HTTP/1.1 200 OK\nContent-Length: 900000", b" " * 800_000), hold=True),
        "status-line-that-stops": raw(b"HTTP/1.", hold=True),
        "chunk-a-second": endless(b"1\r\n \r\n", head=http(CHUNKED), seconds=1.0),
    }.items()
]

# What its API says

DEEP = b'{"metadata":{"resourceVersion":"7"},"items":' + b"[" * 200_000
ANSWERS = [
    Case(name=f"answer-{name}", says=UNREACHABLE, guest=always(answer))
    for name, answer in {
        "not-json": Reply(body=b"<html>"),
        "array": Reply(body=b"[]"),
        "number": Reply(body=b"7"),
        "deep": Reply(body=DEEP),
        "digits": Reply(body=b'{"metadata":{"resourceVersion":"7"},"items":[' + b"9" * 100_000 + b"]}"),
        "small-objects": Reply(
            body=b'{"metadata":{"resourceVersion":"7"},"items":[' + b"[]," * 330_000 + b"[]]}"
        ),
        "four-mebibytes": Reply(
            body=b'{"metadata":{"resourceVersion":"7"},"items":[' + b"{}," * 1_400_000 + b"{}]}"
        ),
        "no-items": reply({"metadata": {"resourceVersion": "7"}}),
        "no-metadata": listing({"data": {}}),
        "no-version": reply({"metadata": {}, "items": []}),
        "version-of-digits": listing(version="9" * 5000),
        "pages-without-end": listing(**{"continue": "again"}),
        "long-token": listing(**{"continue": "t" * 500_000}),
        "token-object": listing(**{"continue": {"a": "b"}}),
        "annotations-number": listing(config_map(annotations=7, resourceVersion=7)),
        "no-resource-version": listing(config_map(resourceVersion=None)),
        "foreign-namespace": listing(config_map(namespace="../../c-m-neighbor")),
        "namespace-number": listing(config_map(namespace=7)),
        "surrogates": Reply(body=b'{"metadata":{"resourceVersion":"\\ud800"},"items":[]}'),
        "object-of-two-mebibytes": listing(config_map() | {"data": {"x": "y" * 2 * MIB}}),
        "utf-16": Reply(body='{"metadata":{}}'.encode("utf-16")),
        "nan": Reply(body=b'{"metadata":{"resourceVersion":NaN},"items":[]}'),
    }.items()
]
MANY_SECRETS = [
    {"metadata": {"name": f"s{n}", "namespace": "a", "labels": {"owner": "helm", "name": "x" * 2000}}}
    for n in range(20)
]
SURVEYS = [
    Case(name=f"survey-{name}", says=says, guest=twisted(lists(plural), answer), opted_in=True)
    for name, plural, answer, says in (
        ("secrets-hang-up", "secrets", raw(b""), "could not list Secret"),
        (
            "secrets-without-end",
            "secrets",
            listing(*MANY_SECRETS, **{"continue": "more"}),
            "could not list Secret",
        ),
        ("secrets-forbidden", "secrets", failure(403, "Forbidden", HIDDEN), "could not list Secret"),
        ("daemon-sets-large", "daemonsets", Reply(body=b" " * 3 * MIB), "could not list DaemonSet"),
        (
            "daemon-sets-of-lists",
            "daemonsets",
            listing({"metadata": {}, "spec": []}, version=[]),
            "could not list DaemonSet",
        ),
        ("deployments-gone", "deployments", failure(404, "NotFound", HIDDEN), "could not list Deployment"),
        (
            "date-9999",
            "daemonsets",
            Reply(headers={"Date": "Fri, 31 Dec 9999 23:59:59 GMT"}),
            "could not list DaemonSet",
        ),
    )
]

# Releases, which helm looks into


def release_secret(content: bytes, **labels: str) -> Json:
    packed = base64.b64encode(base64.b64encode(content)).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {
            "name": "sh.helm.release.v1.kube-vip.v1",
            "namespace": "kube-system",
            "labels": {"owner": "helm", "name": "kube-vip", "version": "1", "status": "deployed", **labels},
        },
        "data": {"release": packed},
    }


def release(chart: str = "kube-vip", **more: object) -> bytes:
    metadata = {"name": chart, "version": "0.9.9", "apiVersion": "v2"}
    body = {
        "name": "kube-vip",
        "namespace": "kube-system",
        "version": 1,
        "info": {"status": "deployed", "first_deployed": "2026-01-01T00:00:00Z"},
        "chart": {"metadata": metadata, "templates": [], "values": {}},
        "manifest": "",
        **more,
    }
    return gzip.compress(json.dumps(body).encode())


def with_release(content: bytes | Callable[[], bytes], **labels: str) -> Callable[[], Answering]:
    def build() -> Guest:
        guest = Guest()
        guest.put("secrets", release_secret(content() if callable(content) else content, **labels))
        return guest

    return build


# Packing these takes a second, which only a run that has such a guest spends.
def small_objects() -> bytes:
    return gzip.compress(b'{"config":{"a":[' + b"{}," * 5_500_000 + b"{}]}}", 9)


def blanks() -> bytes:
    return gzip.compress(b" " * 400 * MIB, 9)


HELM_SAYS = "helm reported"
RELEASES = [
    Case(
        name=f"release-{name}",
        says=says,
        guest=with_release(content, **labels),
        opted_in=True,
        settles_seconds=IN_LINE_SECONDS,
    )
    for name, content, labels, says in (
        ("bomb-of-small-objects", small_objects, {}, HELM_SAYS),
        ("bomb-of-blanks", blanks, {}, HELM_SAYS),
        ("garbage", b"\x1f\x8b\x08garbage", {}, HELM_SAYS),
        ("no-release", gzip.compress(b"[]"), {}, HELM_SAYS),
        ("large-values", release(config={"a": "x" * 600_000}), {}, HELM_SAYS),
        ("deep-values", release(config=json.loads("[" * 900 + "]" * 900)), {}, HELM_SAYS),
        ("foreign-chart", release(HIDDEN), {}, "not the kube-vip of fipop"),
        (
            "pending",
            release(),
            {"status": "pending-install"},
            "(pending-install|helm|not the kube-vip of fipop)",
        ),
    )
]


def denied(message: str) -> Reply:
    return failure(403, "Forbidden", f'admission webhook "deny.example" denied the request: {message}')


WEBHOOK = "(admission webhook|does not have the right|no known cause)"
HELM = [
    Case(
        name=f"helm-{name}",
        says=says,
        guest=twisted(matches, answer),
        opted_in=True,
        settles_seconds=IN_LINE_SECONDS,
    )
    for name, matches, answer, says in (
        ("denial-of-192-kb", helm_posts("daemonsets"), denied("chart " * 32_000), WEBHOOK),
        ("denial-of-quotes", helm_posts("daemonsets"), denied('chart "' * 30_000), WEBHOOK),
        ("denial-with-escapes", helm_posts("daemonsets"), denied(HIDDEN * 200), WEBHOOK),
        (
            "denial-that-lies",
            helm_posts("daemonsets"),
            denied("no space left on device, unauthorized"),
            "helm upgrade",
        ),
        ("denial-of-three-mebibytes", helm_posts("daemonsets"), denied("x" * 3 * MIB), "helm upgrade"),
        (
            "redirect-302",
            helm_posts("secrets"),
            Reply(status=302, headers={"Location": "{trap}"}),
            "redirect",
        ),
        (
            "redirect-307",
            helm_posts("secrets"),
            Reply(status=307, headers={"Location": "{trap}"}),
            "redirect",
        ),
        (
            "redirect-of-discovery",
            helm_gets("/api"),
            Reply(status=301, headers={"Location": "{trap}"}),
            "redirect",
        ),
        ("gzip", helm_gets("/apis"), Reply(headers={"Content-Encoding": "gzip"}), "compressed"),
        (
            "upgrade",
            helm_gets("/api"),
            raw(http("HTTP/1.1 101 Go\nUpgrade: spdy/3.1\nConnection: Upgrade")),
            "helm",
        ),
        ("flood", helm_gets("/openapi"), endless(b" " * 65536, head=http("HTTP/1.1 200 OK")), "helm upgrade"),
        (
            "throttled",
            helm_posts("secrets"),
            Reply(status=429, headers={"Retry-After": "3600"}),
            "helm upgrade",
        ),
        (
            "unavailable",
            helm_posts("secrets"),
            Reply(status=503, headers={"Retry-After": "3600"}),
            "helm upgrade",
        ),
        (
            "warnings",
            helm_posts("serviceaccounts"),
            Reply(status=500, headers={"Warning": '299 - "PWNED"'}),
            "helm",
        ),
        ("hang-up", helm_posts("daemonsets"), raw(b""), "helm upgrade"),
        ("conflict", helm_posts("daemonsets"), failure(409, "Conflict", HIDDEN), "helm upgrade"),
        ("server-error", helm_posts("secrets"), failure(500, "InternalError", HIDDEN), "helm upgrade"),
        ("garbage", helm_posts("daemonsets"), Reply(status=201, body=b"\0" * 1000), "helm upgrade"),
        (
            "terminating",
            helm_posts("secrets"),
            failure(403, "Forbidden", "x because it is being terminated"),
            "being deleted",
        ),
        (
            "climbing-discovery",
            helm_gets("/apis/apps/v1"),
            reply({"kind": "APIResourceList", "groupVersion": "../../../c-m-neighbor", "resources": []}),
            "helm upgrade",
        ),
        (
            "discovery-of-junk",
            helm_gets("/apis/apps/v1"),
            Reply(body=b'{"kind":"APIResourceList","resources":[' + b"{}," * 900_000 + b"{}]}"),
            "helm upgrade",
        ),
        ("no-version", helm_gets("/version"), Reply(status=404), "helm upgrade"),
    )
]
SLOW_HELM = [
    Case(
        name=f"slow-helm-{name}",
        says="helm upgrade",
        guest=twisted(matches, answer),
        opted_in=True,
        hangs=True,
        settles_seconds=400,
    )
    for name, matches, answer in (
        ("webhook", helm_posts("daemonsets"), raw(hold=True)),
        (
            "one-byte-a-second",
            helm_gets("/openapi"),
            endless(b" ", head=http("HTTP/1.1 200 OK\nContent-Length: 99999"), seconds=1.0),
        ),
    )
]

CASES: list[Case] = [
    *(*KUBECONFIGS, *TRANSPORT, *ANSWERS, *SURVEYS, *RELEASES, *HELM),
    *(*HANGING, *SLOW_HELM),
]


def aim(answering: Answering, trap_port: int) -> Answering:
    """Have a guest's redirects lead to the trap."""

    async def answer(request: Request) -> Reply | Raw:
        found: Reply | Raw = await answering(request)
        if isinstance(found, Reply) and found.headers.get("Location") == "{trap}":
            url = f"http://127.0.0.1:{trap_port}/steal"
            return Reply(status=found.status, body=found.body, headers=found.headers | {"Location": url})
        return found

    return answer
