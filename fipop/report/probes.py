"""Checks that have to ask somebody: the operator's rights to Secrets, the sources of its charts, each guest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fipop.errors import ApiForbiddenError, ChartError
from fipop.guest.helm.chart_access import ChartAccessError
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.charts import wanted_releases
from fipop.guest.helm.runner import HelmRunner
from fipop.kube.client import KubeClient
from fipop.kube.resources import SUBJECT_ACCESS_REVIEWS
from fipop.operator.guests.chart_access import ChartAccessReader
from fipop.rancher.objects import CREDENTIAL_NAMESPACE
from fipop.report.checks import CHARTS, RANCHER, Check, check_guest, failed, ok, warning
from fipop.report.facts import Facts
from fipop.report.fleet import FloatingIPReport, report_floating_ips
from fipop.report.guest_words import read_all_guest_words
from fipop.report.picture import Picture

_OWN_CLUSTER = "local"
"""Rancher's own cluster, which is no guest."""


async def probe_secret_rights(client: KubeClient, facts: Facts) -> list[Check]:
    """Ask the API server whether the operator may get the Secrets of guests where their clusters are."""
    workload = facts.installation.workload
    if workload is None:
        return []
    account = f"system:serviceaccount:{facts.installation.namespace}:{workload.service_account}"
    checks = []
    guests = {each.namespace for each in facts.clusters if each.cluster_name != _OWN_CLUSTER}
    for namespace in sorted(guests | {CREDENTIAL_NAMESPACE}):
        name = f"the operator may get Secrets in {namespace}"
        try:
            allowed = await _may_get_secrets(client, account, namespace)
        except ApiForbiddenError:
            text = "missing right: create subjectaccessreviews.authorization.k8s.io"
            return [warning(RANCHER, "the operator may get the Secrets of guests", f"not known: {text}")]
        advice = "add it to the chart's secretNamespaces"
        checks.append(ok(RANCHER, name) if allowed else failed(RANCHER, name, "it may not", advice))
    return checks


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


async def probe_charts(facts: Facts, helm: str | None) -> list[Check]:
    """Fetch the charts of the options as the operator does, from here; `helm` is the program, None: there is none."""
    if facts.installation.has_settings is not True or facts.installation.settings.unknown_options:
        return []
    if helm is None:
        text = "not tried: there is no helm program here (--helm)"
        return [warning(CHARTS, "the charts can be fetched", text)]
    cache = ChartCache(HelmRunner(helm))
    checks = []
    try:
        for wanted in wanted_releases(facts.installation.settings):
            name = f"chart {wanted.source} can be fetched"
            try:
                chart = await cache.get(wanted.source)
            except ChartError as error:
                advice = "is the source right, and reachable from the operator's pods? docs/options.md"
                checks.append(failed(CHARTS, name, str(error), advice))
            else:
                checks.append(ok(CHARTS, name, f"{chart.identity.name} {chart.identity.version}"))
    finally:
        await cache.close()
    return checks


async def probe_credential(client: KubeClient, facts: Facts) -> list[Check]:
    """Compare the credential for charts with the sources of the options: one that it does not go to may stop."""
    reader = ChartAccessReader(client=client, namespace=facts.installation.namespace)
    name = "the credential for charts goes to their sources"
    sources = [each.source for each in wanted_releases(facts.installation.settings)]
    found = [each for each in sources if each.secret and each.url.host]
    try:
        problems = dict.fromkeys([(await reader.read(each)).problem_with(each.url) for each in found])
    except ChartAccessError as error:
        return [warning(CHARTS, name, f"not known: {error}")]
    told = "; ".join(filter(None, problems))
    return [warning(CHARTS, name, told, "docs/air-gap.md")] if told else [ok(CHARTS, name)] if found else []


async def probe_guests(
    client: KubeClient, picture: Picture, guests: Iterable[str], *, allow_loopback: bool
) -> list[Check]:
    """Ask guests, some at once; the checks come in the order of `guests`."""
    floating_ips: dict[str, list[FloatingIPReport]] = defaultdict(list)
    for each in report_floating_ips(picture):
        floating_ips[each.namespace].append(each)
    settings = picture.facts.installation.settings
    opted_in = {each.cluster_name for each in picture.facts.clusters if each.opted_in}
    return [
        check
        for words in await read_all_guest_words(client, picture, guests, allow_loopback=allow_loopback)
        for check in check_guest(
            picture.cluster_of(words.guest, words.guest),
            words,
            floating_ips[words.guest],
            installs=settings
            if settings.kubevip_guest_install.includes(opted_in=words.guest in opted_in)
            else None,
        )
    ]
