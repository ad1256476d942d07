"""Findings that take a request: the operator's rights to Secrets, and the sources of its charts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fipop.errors import ApiError, ForbiddenError
from fipop.guest.errors import ChartError
from fipop.guest.helm.chart_store import Access, ChartAccessError, ChartStore
from fipop.guest.helm.charts import wanted_charts
from fipop.guest.helm.command import Helm
from fipop.guest.helm.process import LocalHelm
from fipop.kube.client import KubeClient
from fipop.kube.guests import GuestServers
from fipop.kube.resources import SUBJECT_ACCESS_REVIEWS
from fipop.rancher.objects import CREDENTIAL_NAMESPACE
from fipop.report.findings import BIND_VIEWER, Finding, Section, Severity, Subject, point
from fipop.report.snapshot import ClusterSnapshot

_OWN_CLUSTER = "local"
"""Rancher's own cluster, which is not a guest."""


def judge_rights(snapshot: ClusterSnapshot) -> list[Finding]:
    """Judge whether the reader may read what findings need."""
    if not snapshot.unread:
        subject = Subject(section=Section.API, kind="Right", name="")
        return [point(subject, Severity.OK, "Readable", "all objects could be read")]
    return [
        point(
            Subject(section=Section.API, kind="Right", name=each.what),
            Severity.WARNING,
            "Unread",
            each.problem,
            BIND_VIEWER,
        )
        for each in snapshot.unread
    ]


async def probe_secret_rights(client: KubeClient, snapshot: ClusterSnapshot) -> list[Finding]:
    """Ask the API server whether the operator may get the Secrets of guests where their clusters are."""
    workload = snapshot.installation.workload
    if workload is None:
        return []
    account = f"system:serviceaccount:{snapshot.installation.namespace}:{workload.service_account}"
    found = []
    guests = {each.namespace for each in snapshot.cache.clusters.all() if each.cluster_name != _OWN_CLUSTER}
    for namespace in sorted(guests | {CREDENTIAL_NAMESPACE}):
        try:
            allowed = await _may_get_secrets(client, account, namespace)
        except ForbiddenError:
            message = (
                "the rights are not known: missing right: create subjectaccessreviews.authorization.k8s.io"
            )
            subject = Subject(section=Section.RANCHER, kind="Secrets", name="")
            return [point(subject, Severity.WARNING, "Unread", message, "docs/concepts/security-model.md")]
        subject = Subject(section=Section.RANCHER, kind="Secrets", name=namespace)
        message = f"the operator {'can' if allowed else 'cannot'} get Secrets in namespace {namespace}"
        severity, reason = (Severity.OK, "Allowed") if allowed else (Severity.CRITICAL, "Forbidden")
        advice = "Add the namespace to secretNamespaces of the chart"
        found.append(point(subject, severity, reason, message, advice))
    return found


async def _may_get_secrets(client: KubeClient, account: str, namespace: str) -> bool:
    wanted = {"namespace": namespace, "verb": "get", "resource": "secrets"}
    body = {
        "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": SUBJECT_ACCESS_REVIEWS.kind,
        "metadata": {},
        "spec": {"user": account, "resourceAttributes": wanted},
    }
    answer = await client.create(SUBJECT_ACCESS_REVIEWS, body)
    return (answer.get("status") or {}).get("allowed") is True


async def probe_charts(client: KubeClient, snapshot: ClusterSnapshot, helm: str | None) -> list[Finding]:
    """Fetch the charts of the options as the operator does, from here; `helm` is the program, None: there is none."""
    installation = snapshot.installation
    if installation.has_settings is not True or installation.settings.unknown_release_options:
        return []
    if helm is None:
        subject = Subject(section=Section.CHARTS, kind="Chart", name="")
        message = "the charts were not fetched: no helm program is on PATH"
        return [point(subject, Severity.WARNING, "NotTried", message, "Name one with --helm PROGRAM")]
    found, access = [], Access.of(installation.settings)
    with tempfile.TemporaryDirectory() as folder:
        lent = Helm(process=LocalHelm(helm, GuestServers()), folder=Path(folder))
        store = ChartStore(helm=lent, client=client, namespace=installation.namespace)
        for order in wanted_charts(installation.settings).values():
            subject = Subject(section=Section.CHARTS, kind="Chart", name=str(order))
            try:
                chart = await store.resolve(order, access)
            except ChartError as error:
                advice = "docs/how-to/air-gap.md"
                found.append(point(subject, Severity.CRITICAL, error.condition, str(error), advice))
            else:
                message = f"fetched {chart.role.value} {chart.version}"
                found.append(point(subject, Severity.OK, "Fetched", message))
    return found


async def probe_credential(client: KubeClient, snapshot: ClusterSnapshot) -> list[Finding]:
    """Compare the credential for charts with the sources of the options: one that it does not go to may stop."""
    installation = snapshot.installation
    access = Access.of(installation.settings)
    orders = [each for each in wanted_charts(installation.settings).values() if not each.is_file]
    if not (orders and access.secret):
        return []
    lent = Helm(process=LocalHelm("", GuestServers()), folder=Path())
    store = ChartStore(helm=lent, client=client, namespace=installation.namespace)
    severity, reason = Severity.OK, "CredentialUsed"
    message = "the credential for charts is used for their sources"
    unused = [str(each) for each in orders if not access.has_login_for(each)]
    if unused:
        severity, reason = Severity.WARNING, "CredentialUnused"
        message = f"the credential is for {access.host} over https, not for {', '.join(unused)}"
    try:
        for each in orders:
            await store.read_login(each, access)
    except (ChartAccessError, ApiError) as error:
        severity, reason, message = Severity.WARNING, "Unread", f"could not read the credential: {error}"
    subject = Subject(section=Section.CHARTS, kind="Credential", name=access.secret)
    return [point(subject, severity, reason, message, "docs/how-to/air-gap.md")]
