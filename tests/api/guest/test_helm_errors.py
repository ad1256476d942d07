"""What fipop makes of the words of a real helm that fails: each cause by the text that this helm prints."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fipop.helm.command import Helm, empty_folder
from fipop.helm.errors import HelmError, HelmFailure
from fipop.helm.process import LocalHelm, find_helm
from fipop.helm.proxy import HelmTarget
from fipop.kube.guests import GuestAccess, GuestServers
from localfleet.client import ApiClient
from localfleet.controlplane import ControlPlane
from localfleet.errors import ApiError
from localfleet.proxy import GuestRoute, RancherProxy, upstream_of
from localfleet.routes import Fault, SeenRequest
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import TOKEN

pytestmark = pytest.mark.xdist_group("guest")

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made}\n"
DAEMON_SET = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: made}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: a, image: b, PLACE}]}
"""
SCHEMA = {"type": "object", "properties": {"image": {"type": "integer"}}}
VALUES = {"image": "text"}


def is_write_of_object(seen: SeenRequest) -> bool:
    return seen.is_write and "configmaps" in seen.path


@dataclass(slots=True, kw_only=True)
class Bench:
    """helm for a guest cluster, in a namespace of its own."""

    helm: Helm
    client: ApiClient
    route: GuestRoute
    access: GuestAccess
    namespace: str
    folder: Path

    def write_chart(self, template: str, schema: Any = None) -> Path:
        chart = self.folder / "made"
        (chart / "templates").mkdir(parents=True, exist_ok=True)
        (chart / "Chart.yaml").write_text("apiVersion: v2\nname: made\nversion: 1.0.0\n")
        (chart / "templates" / "made.yaml").write_text(template)
        (chart / "values.schema.json").write_text(json.dumps(schema or {}))
        return chart

    async def upgrade(self, chart: Path, *, release: str = "made", **place: str) -> None:
        """Install or upgrade a release. Raises HelmError."""
        where = {"namespace": self.namespace} | place
        with self.helm.for_guest(HelmTarget(access=self.access), "release", labels={"a": "b"}) as command:
            await command.install_or_upgrade(release, chart, VALUES, **where)

    async def fails(self, template: str = CONFIG_MAP, **how: Any) -> HelmError:
        chart = self.write_chart(template, how.pop("schema", None))
        with pytest.raises(HelmError) as caught:
            await self.upgrade(chart, **how)
        return caught.value

    async def quote(self) -> str:
        """Return what helm says about the chart without the guest cluster."""
        with self.helm.private_folder() as folder:
            command = self.helm.for_charts("release", folder)
            with pytest.raises(HelmError) as caught:
                await command.template("made", self.folder / "made", VALUES, namespace=self.namespace)
        assert caught.value.failure is HelmFailure.RENDERING
        return caught.value.quote


@pytest_asyncio.fixture
async def bench(
    plane: ControlPlane, proxy: RancherProxy, helm_program: Path, guest_id: str, tmp_path: Path
) -> AsyncIterator[Bench]:
    proxy.issue_token(TOKEN)
    proxy.bind_token(TOKEN, guest_id)
    guests, namespace = GuestServers(), guest_id
    await plane.create_namespace(namespace)
    helm = Helm(process=LocalHelm(find_helm(str(helm_program)), guests), folder=tmp_path / "helm")
    empty_folder(helm.folder)
    try:
        yield Bench(
            helm=helm,
            client=plane.client,
            route=proxy.add_guest(guest_id, upstream_of(plane)),
            access=GuestAccess(proxy.url_of(guest_id), TOKEN, proxy.ca_pem),
            namespace=namespace,
            folder=tmp_path,
        )
    finally:
        await guests.close()
        proxy.remove_guest(guest_id)
        await plane.client.delete(f"/api/v1/namespaces/{namespace}")


RENDERING: dict[str, tuple[str, str]] = {
    "fail": ('data: {a: {{ fail "no way" }}}\n', "no way"),
    "required": ('data: {a: {{ required "a is needed" .Values.a }}}\n', "a is needed"),
    "nothing there": ("data: {a: {{ .Values.b.c }}}\n", "nil pointer evaluating"),
    "a text and no mapping": ("data: {a: {{ .Values.image.tag }}}\n", "can't evaluate field tag"),
    "no such template": ('data: {a: {{ include "none" . }}}\n', 'no template "none"'),
    "a broken template": ("data: {{ if }}\n", "missing value for if"),
    "broken YAML": ("data: [\n", "did not find expected node content"),
    "YAML of another shape": ("data:\n  a: b\n c: d\n", "did not find expected key"),
}
"""What is wrong below the ConfigMap of a chart, and what helm says about it."""


@pytest.mark.parametrize("case", RENDERING)
async def test_a_chart_that_cannot_be_rendered_is_known_and_quoted_with_its_cause(
    bench: Bench, case: str
) -> None:
    template, cause = RENDERING[case]
    assert (await bench.fails(CONFIG_MAP + template)).failure is HelmFailure.RENDERING
    quote = await bench.quote()
    assert cause in quote
    assert "made/templates/made.yaml" in quote


async def test_values_that_the_schema_of_a_chart_refuses_are_known_and_quoted(bench: Bench) -> None:
    assert (await bench.fails(schema=SCHEMA)).failure is HelmFailure.RENDERING
    assert "/image" in await bench.quote() or "image" in await bench.quote()


INVALID: dict[str, tuple[str, str]] = {
    "no such kind": (CONFIG_MAP.replace("ConfigMap", "Nothing"), ""),
    "no such group": (CONFIG_MAP.replace("v1", "example.org/v1"), ""),
    "another type": (DAEMON_SET.replace("PLACE", "env: [{name: a, value: true}]"), "DaemonSet, "),
    "another value": (
        DAEMON_SET.replace("PLACE", "imagePullPolicy: Sometimes"),
        "DaemonSet made, spec.template.spec.containers[0].imagePullPolicy",
    ),
    "a name that is none": (CONFIG_MAP.replace("name: made", "name: A_B"), "metadata.name"),
}
"""What a cluster refuses, and what the condition names of it."""


@pytest.mark.parametrize("case", INVALID)
async def test_an_object_that_the_cluster_refuses_is_known(bench: Bench, case: str) -> None:
    template, cause = INVALID[case]
    error = await bench.fails(template)
    assert error.failure is HelmFailure.INVALID
    assert cause in error.cause


@pytest.mark.parametrize("owner", ["", "theirs"])
async def test_an_object_of_somebody_else_is_known_and_named_and_leaves_no_release(
    bench: Bench, owner: str
) -> None:
    place = f"/api/v1/namespaces/{bench.namespace}"
    marks = {"meta.helm.sh/release-name": owner, "meta.helm.sh/release-namespace": bench.namespace}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    metadata = {"name": "made", **({"annotations": marks, "labels": labels} if owner else {})}
    await bench.client.create(f"{place}/configmaps", {"metadata": metadata})
    error = await bench.fails()
    assert error.failure is HelmFailure.NAME_TAKEN
    release = f"release {owner}" if owner else "no release"
    assert error.cause == f"ConfigMap {bench.namespace}/made, which is of {release}"
    found = await bench.client.items(f"{place}/secrets")
    assert not [each for each in found if each["type"] == "helm.sh/release.v1"], (
        "another name can be tried at once"
    )


async def test_a_webhook_of_rancher_that_does_not_answer_is_named(bench: Bench) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    webhook = {
        "name": "rancher.cattle.io.configmaps.create",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }
    await bench.client.create(path, {"metadata": {"name": bench.namespace}, "webhooks": [webhook]})

    async def is_known() -> bool:
        found = await bench.fails()
        return found.failure is HelmFailure.RANCHER_WEBHOOK and found.cause == webhook["name"]

    try:
        await eventually(is_known, seconds=30, what="the webhook to be in force")
    finally:
        await bench.client.delete(f"{path}/{bench.namespace}")


async def test_pods_that_pod_security_refuses_are_known(bench: Bench) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await bench.client.patch(f"/api/v1/namespaces/{bench.namespace}", {"metadata": {"labels": labels}})
    spec = "spec: {hostNetwork: true, containers: [{name: a, image: b}]}"
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: made}}\n{spec}\n"
    assert (await bench.fails(pod)).failure is HelmFailure.POD_SECURITY


async def test_a_registry_that_speaks_http_is_known(bench: Bench) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.2", 0)
    port = server.sockets[0].getsockname()[1]
    with bench.helm.private_folder() as folder, pytest.raises(HelmError) as caught:
        await bench.helm.for_charts("chart", folder).run(["pull", f"oci://127.0.0.2:{port}/kube-vip"])
    server.close()
    assert caught.value.failure is HelmFailure.NO_TLS


async def test_another_helm_at_work_and_what_it_leaves_when_it_is_killed_are_known(bench: Bench) -> None:
    reached = asyncio.Event()

    def hangs(seen: SeenRequest) -> bool:
        if is_write_of_object(seen):
            reached.set()
        return reached.is_set()

    bench.route.fault = Fault(hang=True, only=hangs)
    other = asyncio.create_task(bench.upgrade(bench.write_chart(CONFIG_MAP)))
    await reached.wait()
    bench.route.fault = None
    assert (await bench.fails()).failure is HelmFailure.IN_PROGRESS
    bench.route.fault = Fault(hang=True)
    other.cancel()
    await asyncio.wait({other})
    bench.route.fault = None
    assert (await bench.fails()).failure is HelmFailure.IN_PROGRESS


async def test_a_namespace_that_is_being_deleted_is_known(bench: Bench) -> None:
    place = f"/api/v1/namespaces/{bench.namespace}"
    held = {"metadata": {"name": "held", "finalizers": ["example.org/held"]}}
    await bench.client.create(f"{place}/configmaps", held)
    await bench.client.delete(place)

    async def is_terminating() -> bool:
        return bool((await bench.client.get(place))["metadata"].get("deletionTimestamp"))

    try:
        await eventually(is_terminating, seconds=30, what="the namespace to be deleted")
        assert (await bench.fails()).failure is HelmFailure.DENIED
    finally:
        with suppress(Exception):
            await bench.client.patch(f"{place}/configmaps/held", {"metadata": {"finalizers": None}})


async def test_a_policy_of_the_cluster_is_known(bench: Bench) -> None:
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    bindings = policies.replace("policies", "policybindings")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}},
        },
        "validations": [{"expression": "false", "message": "not wanted"}],
    }
    name = {"metadata": {"name": bench.namespace}}
    await bench.client.create(policies, {**name, "spec": spec})
    binding = {"policyName": bench.namespace, "validationActions": ["Deny"]}
    await bench.client.create(bindings, {**name, "spec": binding})
    try:

        async def is_in_force() -> bool:
            with suppress(ApiError):
                await bench.client.create(
                    f"/api/v1/namespaces/{bench.namespace}/configmaps", {"metadata": {"generateName": "a"}}
                )
                return False
            return True

        await eventually(is_in_force, seconds=30, what="the policy to be in force")
        assert (await bench.fails()).failure is HelmFailure.DENIED
    finally:
        await bench.client.delete(f"{policies}/{bench.namespace}")
        await bench.client.delete(f"{bindings}/{bench.namespace}")


ANSWERS: dict[str, tuple[Fault, HelmFailure]] = {
    "500": (Fault(status=500), HelmFailure.UNREACHABLE),
    "502": (Fault(status=502), HelmFailure.UNREACHABLE),
    "503": (Fault(status=503), HelmFailure.UNREACHABLE),
    "a cut": (Fault(refuse=True), HelmFailure.CUT),
    "a cut at a write": (Fault(lose_answer=True, only=is_write_of_object), HelmFailure.CUT),
}
"""What a guest cluster answers."""


@pytest.mark.parametrize("case", ANSWERS)
async def test_a_guest_cluster_that_does_not_serve_is_known(bench: Bench, case: str) -> None:
    fault, failure = ANSWERS[case]
    bench.route.fault = fault
    assert (await bench.fails()).failure is failure


async def test_a_token_that_is_not_accepted_is_known(bench: Bench) -> None:
    bench.access = replace(bench.access, token="kubeconfig-u-another:secret")
    assert (await bench.fails()).failure is HelmFailure.UNAUTHORIZED
