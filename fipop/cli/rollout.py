"""`fipop rollout`: see, pause, resume, retry and undo the rollout of kube-vip, with the rights of the user."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import click

from fipop.api import names
from fipop.cli.reading import (
    EXIT_CODES,
    EXIT_INCOMPLETE,
    EXIT_WRONG,
    ReadingOptions,
    access_options,
    end,
    fail,
    read_once,
    reading_options,
    run_reading,
    wait_until,
    watch,
)
from fipop.cli.status import describe_rollout
from fipop.cli.values import CHANGES, describe_preview, list_changes
from fipop.errors import ConflictError, ForbiddenError, NotFoundError
from fipop.jsons import Json, as_mapping
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS
from fipop.report.reading import SnapshotReader, read_snapshot
from fipop.report.rendering import age, count_of, moment, table
from fipop.report.snapshot import Kind, Snapshot
from fipop.report.values import preview_change
from fipop.rollout.member import RolloutStatus
from fipop.rollout.parts import BLOCKED, Part, Parts
from fipop.rollout.plan import Phase, Rollout, advise_after_stop, count, describe_change
from fipop.rollout.targets import asks_for, build_stable_options

_RETRY_SECONDS = 30.0
"""How long the operator may take to notice that the annotation of an earlier retry is gone."""
_PAUSED = "kubevipRolloutPaused"
_MOST_ROWS = 10
"""The most guest clusters of one status that are shown one by one, beside canaries and those in which it failed."""
_HEADER = ("GUEST CLUSTER", "ID", "PART", "CANARY", "SINCE", "WHY")
_GITOPS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "objectset.rio.cattle.io/id": "Fleet",
    "meta.helm.sh/release-name": "helm",
}
"""Labels and annotations by which these tools mark what they apply."""


@click.group(short_help="Show, pause, resume, retry or undo a rollout of kube-vip.")
def rollout() -> None:
    """Show or control the rollout of kube-vip and its cloud provider over the guest clusters."""


@rollout.command(short_help="Charts, phase, and the part of each guest cluster.", epilog=EXIT_CODES)
@click.option("--all", "all_each", is_flag=True, help="Show each guest cluster, also of more than 10 alike.")
@click.option("--watch", "is_watched", is_flag=True, help="Wait for the end; a terminal shows each change.")
@reading_options
def status(*, reading: ReadingOptions, all_each: bool, is_watched: bool) -> None:
    """Show which charts are rolled out, the part of each guest cluster, and what the rollout waits for."""
    read = partial(read_once, reading)
    snapshot = run_reading(lambda: watch(read, _describe_parts, _has_ended) if is_watched else read())
    unread, state = snapshot.unread, snapshot.installation.rollout
    parts = snapshot.installation.rollout_parts
    fields = {
        **(snapshot.installation.render_rollout() or {}),
        "failed": sorted(state.failed if state is not None else ()),
        "parts": [
            {"guest": each, "cluster": snapshot.cluster_of(each), **part.to_fields()}
            for each, part in parts.items()
        ],
        "unread": unread,
    }
    shown = parts if all_each else _choose_shown(parts)
    rows = (_row(snapshot, each, part) for each, part in shown.items())
    reading.show(fields, _HEADER, rows, _lines(snapshot, count(each.status for each in shown.values())))
    is_stopped = state is not None and state.phase is Phase.STOPPED
    end(unread, is_wrong=is_stopped or snapshot.installation.has_settings is False)


def _has_ended(snapshot: Snapshot) -> bool:
    state = snapshot.installation.rollout
    # A rollout that has ended waits only for an order that fipop has not taken up: another target, or a retry.
    return state is None or not (state.phase is Phase.PROGRESSING or snapshot.installation.rollout_waits)


def _describe_parts(snapshot: Snapshot) -> dict[str, str]:
    parts, state = snapshot.installation.rollout_parts, snapshot.installation.rollout
    found = {"Rollout": f"{describe_change(state)}, {state.phase.value}"} if state is not None else {}
    if BLOCKED in (waits := snapshot.installation.rollout_waits):
        found["Waits"] = waits
    for each, part in parts.items():
        found[snapshot.show_guest(each) if snapshot.cluster_of(each) else each] = str(part)
    return found


def _choose_shown(parts: Parts) -> Parts:
    """Return those that are shown one by one: canaries, those in which it failed, and some of each other part."""
    numbers, shown = Counter[RolloutStatus](), dict[str, Part]()
    for each, part in parts.items():
        numbers[part.status] += 1
        is_always = part.is_canary or part.status is RolloutStatus.FAILED
        if is_always or numbers[part.status] <= _MOST_ROWS:
            shown[each] = part
    return shown


def _row(snapshot: Snapshot, guest_id: str, part: Part) -> tuple[str, ...]:
    since = f"{age((snapshot.now - part.since).total_seconds())} ago" if part.since is not None else ""
    canary = "yes" if part.is_canary else ""
    return snapshot.show_guest(guest_id), guest_id, part.status.value, canary, since, part.reason


def _lines(snapshot: Snapshot, shown: Mapping[str, int]) -> Iterator[str]:
    installation, state = snapshot.installation, snapshot.installation.rollout
    if state is None:
        yield "There is no rollout: no guest cluster is opted in, or kubevipGuestInstall is off."
        if installation.has_settings is False:
            yield f"ConfigMap {names.SETTINGS_CONFIG_MAP} does not exist in namespace {installation.namespace}."
        return
    hidden = {each: number - shown[each] for each, number in installation.rollout_guests.items()}
    more = ", ".join(f"{number} more {each}" for each, number in hidden.items() if number)
    if more:
        yield f"{more}: --all shows them."
    yield describe_rollout(installation)
    if state.reason:
        yield f"Stopped: {state.reason}. {advise_after_stop(state)}."
    if installation.rollout_waits:
        yield f"Waits: {installation.rollout_waits}"
    if state.stable is not None and not state.is_stable:
        yield "To go back to the stable target, run fipop rollout undo."


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
            wanted = state.retry_annotation
            if state.retried == wanted:  # It acts once: the operator has to see it go first.
                await _patch(client, reading, {"metadata": {"annotations": {names.ANNOTATION_ROLLOUT: None}}})
                read = partial(_read_rollout, client, reading)
                if (await wait_until(read, _describe_retry, _RETRY_SECONDS)).retried:
                    fail("the operator did not notice the end of the earlier retry. Run fipop check")
            await _patch(client, reading, {"metadata": {"annotations": {names.ANNOTATION_ROLLOUT: wanted}}})
        return f"{count_of(len(state.failed), 'guest cluster')} in which it failed can take part again."

    click.echo(run_reading(run))


@rollout.command(short_help="Write the options of the stable target back.", epilog=EXIT_CODES)
@click.option("--dry-run", is_flag=True, help="Show what changes, and write nothing.")
@access_options
def undo(*, reading: ReadingOptions, dry_run: bool) -> None:
    """Write the options of the stable target back, and show first what that changes.

    The stable target is rolled out like any other one. If the options were changed since the rollout began, nothing is
    written.
    """

    async def run() -> str:
        async with reading.connect() as client:
            namespace = reading.operator_namespace
            found = await client.get(CONFIG_MAPS, names.SETTINGS_CONFIG_MAP, namespace=namespace)
            state = await _read_rollout(client, reading)
            snapshot = await read_snapshot(client, namespace=namespace)
            settings = snapshot.installation.settings
            if state.stable is None:
                fail("there is nothing to undo: no target was completed before the current one")
            if state.is_stable:
                fail("there is nothing to undo: the target is the stable one. See fipop rollout status")
            if not asks_for(settings, state):
                change = f"the options were changed since the rollout of target {state.target.name} began"
                fail(f"{change}. Compare them with fipop values --stable, and write them yourself")
            options = build_stable_options(state, settings)
            preview = preview_change(json.dumps({"data": options}), snapshot)
            *lines, _ = describe_preview(preview)
            began = f" (the newest one, begun at {moment(state.began)})" if state.began else ""
            undone = f"From target {state.target.name}{began} back to the stable target {state.stable.name}."
            click.echo("\n".join((table(CHANGES, list_changes(preview)), *lines, undone)))
            if dry_run:
                return "Nothing was written. After fipop rollout undo, fipop rollout status --watch waits for the end."
            version = {"resourceVersion": as_mapping((found or {}).get("metadata")).get("resourceVersion")}
            try:
                written = await _patch(client, reading, {"metadata": version, "data": options})
            except ConflictError:
                fail("the options were changed meanwhile, and nothing was written. Run the command again")
            _warn_of_gitops(written, ", ".join(options))
        is_paused = settings.kubevip_rollout_paused
        starts = "once you run fipop rollout resume" if is_paused else "which starts after some seconds"
        return (
            f"The options ask for the stable target {state.stable.name} again. fipop rolls it out like any other one, "
            f"{starts}. fipop rollout status shows how long that takes. fipop rollout status --watch waits for the end."
        )

    click.echo(run_reading(run))


def _describe_retry(found: Rollout) -> str:
    return "the operator to notice the end of the earlier retry" if found.retried else ""


def _set_paused(reading: ReadingOptions, value: str) -> None:
    async def run() -> Json:
        async with reading.connect() as client:
            return await _patch(client, reading, {"data": {_PAUSED: value}})

    written = run_reading(run)
    click.echo(f"{_PAUSED} is {value}.")
    _warn_of_gitops(written, _PAUSED)


def _warn_of_gitops(written: Json, options: str) -> None:
    """Warn if a tool applies the options: it may set back what was written."""
    metadata = as_mapping(written.get("metadata"))
    marks = {*as_mapping(metadata.get("labels")), *as_mapping(metadata.get("annotations"))}
    for mark, tool in _GITOPS.items():
        if mark in marks:
            click.echo(
                f"Warning: {tool} applies ConfigMap {names.SETTINGS_CONFIG_MAP}, and may set this back. "
                f"Change {options} in its source, too.",
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
    if installation.rollout is None:
        unread = [each.problem for each in reader.unread if each.what == Kind.ROLLOUT]
        problem = next(iter(unread), "there is no rollout")
        fail(
            f"{problem} in namespace {reading.operator_namespace}",
            EXIT_INCOMPLETE if unread else EXIT_WRONG,
        )
    return installation.rollout
