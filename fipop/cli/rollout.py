"""`fipop rollout`: see, pause, resume and retry the rollout of kube-vip, with the rights of the user."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import click

from fipop.api import names
from fipop.cli.reading import (
    EXIT_CODES,
    ReadingOptions,
    access_options,
    end,
    fail,
    read_once,
    reading_options,
    run_reading,
    wait_until,
)
from fipop.cli.status import describe_rollout
from fipop.errors import FipopError, ForbiddenError, NotFoundError
from fipop.jsons import Json, as_mapping
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS
from fipop.report.findings import STOP_ADVICE
from fipop.report.reading import SnapshotReader
from fipop.report.rendering import count_of
from fipop.report.snapshot import Snapshot
from fipop.rollout.plan import Phase, Rollout

_RETRY_SECONDS = 30.0
"""How long the operator may take to notice that the annotation of an earlier retry is gone."""
_PAUSED = "kubevipRolloutPaused"
_GITOPS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "objectset.rio.cattle.io/id": "Fleet",
    "meta.helm.sh/release-name": "helm",
}
"""Labels and annotations by which these tools mark what they apply."""


@click.group(short_help="Status, pause, resume and retry of the rollout of kube-vip.")
def rollout() -> None:
    """Show or control the rollout of kube-vip and its cloud provider over the guest clusters."""


@rollout.command(short_help="Charts, phase, counts and failures of the rollout.", epilog=EXIT_CODES)
@reading_options
def status(*, reading: ReadingOptions) -> None:
    """Show which charts are rolled out, how many guest clusters have them, and which ones failed."""
    snapshot = run_reading(lambda: read_once(reading))
    unread, state = snapshot.unread, snapshot.installation.rollout
    counts = [(each, str(number)) for each, number in snapshot.installation.rollout_guests.items()]
    fields = {
        **(snapshot.installation.render_rollout() or {}),
        "failed": sorted(state.failed if state is not None else ()),
        "unread": unread,
    }
    reading.show(fields, ("GUEST CLUSTERS", "COUNT"), counts, _lines(snapshot))
    end(unread, is_wrong=state is not None and state.phase is Phase.STOPPED)


def _lines(snapshot: Snapshot) -> Iterator[str]:
    state = snapshot.installation.rollout
    if state is None:
        yield "There is no rollout: no guest cluster is opted in, or kubevipGuestInstall is off."
        return
    yield describe_rollout(snapshot.installation)
    if state.failed:
        failed = (f"{snapshot.show_guest(each)} ({each})" for each in sorted(state.failed))
        yield f"Failed in {', '.join(failed)}"
    if state.reason:
        yield f"Stopped: {state.reason}. {STOP_ADVICE}."


@rollout.command(short_help="Admit no further guest cluster.", epilog=EXIT_CODES)
@access_options
def pause(*, reading: ReadingOptions) -> None:
    """Set the option kubevipRolloutPaused: nothing is admitted, and nothing goes back."""
    _set_paused(reading, "true")


@rollout.command(short_help="Continue a rollout that is paused.", epilog=EXIT_CODES)
@access_options
def resume(*, reading: ReadingOptions) -> None:
    """Reset the option kubevipRolloutPaused."""
    _set_paused(reading, "false")


@rollout.command(short_help="Admit the guest clusters that failed once more.", epilog=EXIT_CODES)
@access_options
def retry(*, reading: ReadingOptions) -> None:
    """Continue a rollout that stopped: the guest clusters in which it failed take part again."""

    async def run() -> str:
        async with reading.connect() as client:
            state = await _read_rollout(client, reading)
            if not state.failed and state.phase is not Phase.STOPPED:
                fail("no guest cluster failed in the current rollout: there is nothing to retry")
            wanted = f"retry/{state.target.name}"
            if state.retried == wanted:  # It acts once: the operator has to see it go first.
                await _patch(client, reading, {"metadata": {"annotations": {names.ANNOTATION_ROLLOUT: None}}})
                read = partial(_read_rollout, client, reading)
                if (await wait_until(read, _describe_retry, _RETRY_SECONDS)).retried:
                    fail("the operator did not notice the end of the earlier retry. Run fipop check")
            await _patch(client, reading, {"metadata": {"annotations": {names.ANNOTATION_ROLLOUT: wanted}}})
        return f"{count_of(len(state.failed), 'guest cluster')} in which it failed can take part again."

    click.echo(run_reading(run))


def _describe_retry(found: Rollout) -> str:
    return "the operator to notice the end of the earlier retry" if found.retried else ""


def _set_paused(reading: ReadingOptions, value: str) -> None:
    async def run() -> Json:
        async with reading.connect() as client:
            return await _patch(client, reading, {"data": {_PAUSED: value}})

    metadata = as_mapping(run_reading(run).get("metadata"))
    click.echo(f"{_PAUSED} is {value}.")
    marks = {*as_mapping(metadata.get("labels")), *as_mapping(metadata.get("annotations"))}
    for mark, tool in _GITOPS.items():
        if mark in marks:
            click.echo(
                f"Warning: {tool} applies ConfigMap {names.SETTINGS_CONFIG_MAP}, and may set this back. "
                f"Change {_PAUSED} in its source, too.",
                err=True,
            )
            return


async def _patch(client: KubeClient, reading: ReadingOptions, patch: Json) -> Json:
    name, namespace = names.SETTINGS_CONFIG_MAP, reading.operator_namespace
    try:
        return await client.merge_patch(CONFIG_MAPS, name, patch, namespace=namespace)
    except ForbiddenError:
        fail(f"missing right: patch configmaps/{name} in {namespace}. Ask an administrator of the fleet")
    except NotFoundError:
        fail(f"ConfigMap {name} does not exist in {namespace}. Name its namespace by --operator-namespace")


async def _read_rollout(client: KubeClient, reading: ReadingOptions) -> Rollout:
    reader = SnapshotReader(client)
    installation = await reader.read_installation(reading.operator_namespace)
    if installation.rollout is not None:
        return installation.rollout
    unread = (each.problem for each in reader.unread if each.what == "the rollout")
    problem = next(unread, "there is no rollout")
    raise FipopError(f"{problem} in namespace {reading.operator_namespace}")
