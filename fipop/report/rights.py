"""Findings about rights: what the reader may read, and which Secrets the operator may read."""

from __future__ import annotations

from fipop.errors import ForbiddenError
from fipop.kube.client import KubeClient
from fipop.kube.resources import SUBJECT_ACCESS_REVIEWS
from fipop.rancher.objects import CREDENTIAL_NAMESPACE
from fipop.report.findings import BIND_VIEWER, Finding, Section, Severity, Subject, point
from fipop.report.snapshot import Snapshot

_OWN_CLUSTER = "local"
"""Rancher's own cluster, which is not a guest cluster."""


def judge_rights(snapshot: Snapshot) -> list[Finding]:
    """Judge whether the reader may read what findings need."""
    found, retry = [], "Run the command again when fipop is installed and the API answers"
    for each in snapshot.unread:
        subject = Subject(section=Section.API, kind="Right", name=each.what)
        advice = BIND_VIEWER if each.forbidden else retry
        found.append(point(subject, Severity.WARNING, "Unread", each.problem, advice))
    subject = Subject(section=Section.API, kind="Right", name="")
    return found or [point(subject, Severity.OK, "Readable", "all objects could be read")]


async def probe_secret_rights(client: KubeClient, snapshot: Snapshot) -> list[Finding]:
    """Ask the API server whether the operator may get the Secrets in the namespaces of clusters."""
    workload = snapshot.installation.workload
    if workload is None:
        return []
    account = f"system:serviceaccount:{snapshot.installation.namespace}:{workload.service_account}"
    found = []
    guests = {
        each.namespace for each in snapshot.inventory.clusters.all() if each.cluster_name != _OWN_CLUSTER
    }
    for namespace in sorted(guests | {CREDENTIAL_NAMESPACE}):
        wanted = {"namespace": namespace, "verb": "get", "resource": "secrets"}
        review = {"metadata": {}, "spec": {"user": account, "resourceAttributes": wanted}}
        try:
            answer = await client.create(SUBJECT_ACCESS_REVIEWS, review)
        except ForbiddenError:
            message = (
                "the rights are not known: missing right: create subjectaccessreviews.authorization.k8s.io"
            )
            subject = Subject(section=Section.RANCHER, kind="Secrets", name="")
            return [point(subject, Severity.WARNING, "Unread", message, BIND_VIEWER)]
        allowed = (answer.get("status") or {}).get("allowed") is True
        subject = Subject(section=Section.RANCHER, kind="Secrets", name=namespace)
        message = f"the operator {'can' if allowed else 'cannot'} get Secrets in namespace {namespace}"
        severity, reason = (Severity.OK, "Allowed") if allowed else (Severity.CRITICAL, "Forbidden")
        advice = "Add the namespace to secretNamespaces of the chart"
        found.append(point(subject, severity, reason, message, advice))
    return found
