"""What happens to the releases of a guest cluster: observe, decide, run one step, and have it visited.

A new guest cluster gets both releases in one turn. What its visit saw within the last 10 s is not read again.

As many guest clusters at a time as this queue has workers: that bounds the processes of helm.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from fipop.addresses.gate import Gate
from fipop.errors import ApiError, FipopError, GuestError
from fipop.guests.access import GuestClients, read_access
from fipop.guests.desired import DesiredState, count_event, find_desired
from fipop.guests.discovery import GuestDirectory
from fipop.guests.harvester import is_back
from fipop.guests.observed import Observed, list_revisions, observe
from fipop.guests.record import GuestRecord
from fipop.guests.release_plan import Step, Verb, plan_releases
from fipop.helm.chart_store import Access, ChartStore
from fipop.helm.charts import Chart, Role, Values, hide_values
from fipop.helm.command import Helm, HelmCommand
from fipop.helm.errors import HelmError, HelmFailure
from fipop.helm.releases import Release, ReleaseOwner, Status, build_labels, label_as_seen, take_over
from fipop.jsons import as_mapping
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.guests import GuestAccess
from fipop.kube.resources import PROVISIONING_CLUSTERS, SECRETS
from fipop.metrics.counters import GuestEvent
from fipop.rollout.controller import RolloutController
from fipop.rollout.plan import ReleaseGoal
from fipop.runtime.configuration import Configuration
from fipop.runtime.queues import Key, Request, WorkQueues, request_routine_visit
from fipop.runtime.workqueue import Priority

logger = logging.getLogger(__name__)

KIND = "install"
"""The kind of keys: a guest cluster whose releases have to change, by its id."""
_EVENTS = {Role.KUBE_VIP: GuestEvent.KUBE_VIP_INSTALL, Role.CLOUD_PROVIDER: GuestEvent.CLOUD_PROVIDER_INSTALL}


def find_goal(desired: DesiredState, observed: Observed, rollout: RolloutController) -> ReleaseGoal:
    """Return what the releases of a guest cluster should be now; they go once Harvester's kube-vip can run again."""
    if desired.removes:
        return ReleaseGoal(remove=True, may_change=is_back(observed.daemon_sets))
    if not desired.keeps:
        return ReleaseGoal()
    return rollout.decide_goal(desired.guest, observed.releases)


def request_turn(
    guest_id: str, record: GuestRecord, goal: ReleaseGoal, steps: Iterable[Step], *, is_judged: bool
) -> Request:
    """Request a turn of helm for a guest cluster whose releases have to change; `is_judged`: by a rollout."""
    target, releases = goal.target.name if goal.target is not None else "", [each.release for each in steps]
    is_back = goal.reason == "RolledBack" or goal.leaves is not None
    has_begun = is_judged and (
        record.began_target == target or any(each.made_for == target for each in releases)
    )
    is_new = any(each.is_missing for each in releases)
    # A new one that has one of its releases is finished before the next one.
    has_begun |= is_new and not all(each.is_missing for each in record.releases)
    priority = Priority.NORMAL if is_new else Priority.BACKGROUND
    # Who goes back, or has a deadline, does not wait for hundreds that opted in at once.
    priority = Priority.URGENT if is_back or has_begun else priority
    return Request(Key(KIND, "", guest_id), priority, record.backoff_seconds(target))


@dataclass(slots=True, kw_only=True)
class InstallController:
    """Runs helm. The work queue brings the ids of guest clusters, the most urgent first."""

    guests: GuestDirectory
    clients: GuestClients
    charts: ChartStore
    helm: Helm
    configuration: Configuration
    rollout: RolloutController
    queues: WorkQueues
    gate: Gate
    events: EventRecorder

    async def reconcile(self, guest_id: str) -> None:
        """Bring the releases of a guest cluster one step further, if that is still wanted."""
        record = self.guests.record(guest_id)
        desired = find_desired(self.guests.inventory, guest_id, record, self.configuration.settings)
        if desired is None or not desired.places or not self.gate.is_open:
            return
        try:
            access = await read_access(self.guests.client, desired.guest)
            observed = record.take_observed(desired.places) or await self._observe(record, desired, access)
        except (ApiError, GuestError) as error:
            # The visit that follows reports it, and comes back.
            logger.debug("Could not read releases", extra={"guest": guest_id, "error": str(error)})
            self.queues.add(request_routine_visit(guest_id))
            return
        goal = find_goal(desired, observed, self.rollout)
        steps = [each for each in plan_releases(observed.releases, goal) if each.verb.needs_helm]
        target = goal.target.name if goal.target is not None else ""
        if not steps or record.backoff_seconds(target):
            return
        is_moved = steps[0].verb is not Verb.INSPECT and record.record_turn(target)
        install = InstallStep(
            controller=self,
            access=access,
            desired=desired,
            record=record,
            observed=observed,
            step=steps[0],
            goal=goal,
        )
        try:
            last, failures = await self._run_steps(guest_id, install, steps)
            is_repair = last.verb is Verb.UPGRADE and last.release.is_at(goal.target)
            if failures or is_repair or is_moved:
                record.record_rest(target, failures, is_moved=is_moved)
            elif last.verb is Verb.UPGRADE:
                record.record_success(target)
        finally:
            record.end_turn()
            self.queues.add(request_routine_visit(guest_id))

    async def _run_steps(
        self, guest_id: str, install: InstallStep, steps: Iterable[Step]
    ) -> tuple[Step, dict[str, FipopError]]:
        """Run the steps of a turn: the first one, but both releases of a new guest cluster.

        A release that helm cannot change does not keep the other one from a change. Return the last step that ran, and
        why steps failed, by release.
        """
        is_new = all(each.is_missing for each in install.observed.releases)
        failures: dict[str, FipopError] = {}
        last = install.step
        for step in steps:
            if step is not install.step and not self._is_wanted(guest_id, install):
                break
            last, failure = step, await self._try(replace(install, step=step))
            if failure is not None:
                failures[str(step.release)] = failure
            goes_on = failure is not None or (is_new and step.verb is Verb.UPGRADE)
            if install.goal.remove or not goes_on:
                break
        return last, failures

    def _is_wanted(self, guest_id: str, install: InstallStep) -> bool:
        """Return whether what was decided before helm ran still holds."""
        found = find_desired(self.guests.inventory, guest_id, install.record, self.configuration.settings)
        return (
            found is not None
            and find_goal(found, install.observed, self.rollout).target == install.goal.target
        )

    async def _observe(self, record: GuestRecord, desired: DesiredState, access: GuestAccess) -> Observed:
        """Read the releases. Raises ApiError and GuestError."""
        async with self.clients.session(access, is_urgent=False) as client:
            observed = await observe(client, desired.places, other_providers=record.other_providers)
        return replace(observed, releases=record.mark_foreign(observed.releases))

    async def _try(self, install: InstallStep) -> FipopError | None:
        """Run one step. Return why it failed."""
        step = install.step
        fields = {
            "cluster": install.desired.guest.cluster_name,
            "release": str(step.release),
            "verb": step.verb.value,
        }
        try:
            await install.run()
        except FipopError as error:
            logger.warning("Could not change release", extra=fields | {"error": str(error)})
            self._count(install.desired, step, success=False)
            return error
        logger.info("Changed release", extra=fields)
        self._count(install.desired, step, success=True)
        return None

    def _count(self, desired: DesiredState, step: Step, *, success: bool) -> None:
        if step.verb in (Verb.UPGRADE, Verb.ROLL_BACK, Verb.UNINSTALL):
            count_event(self.guests, desired.guest, _EVENTS[step.release.role], success=success)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallStep:
    """One step of a guest cluster's turn: what was decided, with all that it needs."""

    controller: InstallController
    access: GuestAccess
    desired: DesiredState
    record: GuestRecord
    observed: Observed
    step: Step
    goal: ReleaseGoal

    async def run(self) -> None:
        """Run the step. Raises FipopError."""
        release = self.step.release
        match self.step.verb:
            case Verb.INSPECT:
                await self._inspect(release)
            case Verb.UNLOCK:
                await self._unlock(release)
            case Verb.UNINSTALL:
                await self._uninstall(release)
            case Verb.ROLL_BACK:
                await self._roll_back(release)
            case Verb.UPGRADE:
                await self._upgrade(release)

    async def _upgrade(self, release: Release) -> None:
        target, control = self.goal.target, self.controller
        assert target is not None, "without a target nothing is upgraded"
        if release.status is Status.ABSENT:
            # A helm that died last can have left revisions that are superseded alone.
            release = next(iter(await self._list_revisions(release)), release)
        values = target.values[release.role]
        name = str(values.get("nameOverride") or release.object_name or self._choose_name(release))
        release = replace(release, object_name=name)
        access = Access.of(control.configuration.settings)
        chart = await control.charts.path(target.charts[release.role], access)
        labels = build_labels(target, release)
        values = {**values, "nameOverride": name}
        try:
            with self._helm(release, labels, what=target.charts[release.role]) as command:
                await command.install_or_upgrade(release.name, chart, values, namespace=release.namespace)
        except HelmError as error:
            if error.failure is HelmFailure.RENDERING:
                await self._quote(release, chart, values)
            raise

    async def _quote(self, release: Release, chart: Path, values: Values) -> None:
        """Have helm render the chart without the guest cluster, and put what it says into an event for administrators.

        What helm says about a guest cluster is quoted nowhere: that one can have written it.
        """
        helm = self.controller.helm
        with helm.private_folder() as folder:
            command = helm.for_charts(f"release {release}", folder)
            try:
                await command.template(release.name, chart, values, namespace=release.namespace)
            except HelmError as error:
                text = hide_values(error.quote, values)
                if error.failure is HelmFailure.RENDERING and text:
                    message = f"Chart {release.role.value} cannot be rendered with its values: {text}"
                    self.controller.configuration.complain("ChartNotRendered", message)

    def _helm(
        self, release: Release, labels: Mapping[str, str] | None = None, *, what: Chart | None = None
    ) -> AbstractContextManager[HelmCommand]:
        chart = f" with chart {what} {what.version}" if what is not None else ""
        target = self.controller.clients.target(self.access)
        return self.controller.helm.for_guest(target, f"release {release}{chart}", labels=labels)

    def _choose_name(self, release: Release) -> str:
        """Return the name for the objects of a new release: another one than that of objects that are there.

        In guest clusters on Harvester kube-vip never has the bare name, whose objects Harvester's chart owns.
        """
        here = (release.namespace, release.name)
        taken = {each.name for each in self.observed.daemon_sets if (each.namespace, each.release) != here}
        is_harvester = self.desired.guest.on_harvester and release.role is Role.KUBE_VIP
        return f"{release.name}-fipop" if is_harvester or release.name in taken else release.name

    async def _uninstall(self, release: Release) -> None:
        with self._helm(release) as command:
            await command.uninstall(release.name, namespace=release.namespace, no_hooks=True)
        cause = (
            "its Cluster has the labels that remove it" if self.goal.remove else "its first rollout failed"
        )
        message = f"fipop removed release {release} from the guest cluster: {cause}."
        about = reference_to(PROVISIONING_CLUSTERS, self.desired.guest.cluster.metadata)
        self.controller.events.record(about, EventType.NORMAL, "ReleaseRemoved", message, is_repeated=True)

    async def _roll_back(self, release: Release) -> None:
        """Go back to the newest revision that the target to leave did not make; uninstall if it made the first one."""
        leaves = self.goal.leaves
        assert leaves is not None, "only a target that failed is left"
        revisions = await self._list_revisions(release)
        served = (Status.SUPERSEDED, Status.DEPLOYED)
        before = [each for each in revisions if each.status in served and each.made_for != leaves.name]
        if not before:
            # helm forgets old revisions: what was installed before this target is not removed.
            if revisions and revisions[-1].revision == 1 and revisions[-1].made_for == leaves.name:
                await self._uninstall(release)
            return
        if release.status.is_under_way:
            await self._unlock(release)
        with self._helm(release) as command:
            place = {"namespace": release.namespace, "no_hooks": True}
            await command.rollback(release.name, before[0].revision, **place)
        # helm copies the labels, with the number of the revision.
        made = (await self._list_revisions(release))[0]
        if made.owner is ReleaseOwner.FIPOP:
            await self._label(replace(made, version=before[0].version))

    async def _list_revisions(self, release: Release) -> list[Release]:
        async with self.controller.clients.session(self.access, is_urgent=False) as client:
            return await list_revisions(client, release)

    async def _inspect(self, release: Release) -> None:
        """Ask helm what a release without labels was made from, and label it if kube-fip-operator made it."""
        try:
            with self._helm(release) as command:
                place = {"namespace": release.namespace, "revision": release.revision}
                values = as_mapping(await command.get_values(release.name, **place))
                # Not by pyhelm3's template, which is YAML that a guest cluster wrote a part of.
                where = ["--namespace", release.namespace, "--revision", release.revision, "--output", "json"]
                metadata = as_mapping(
                    json.loads(await command.run(["get", "metadata", release.name, *where]))
                )
        except (HelmError, ValueError, RecursionError) as error:
            known = f": {error.cause}" if isinstance(error, HelmError) and error.cause else ""
            what = error.failure.value if isinstance(error, HelmError) else HelmFailure.UNKNOWN.value
            raise GuestError(f"could not read release {release}: helm reported: {what}{known}") from error
        chart, version = str(metadata.get("chart")), str(metadata.get("version"))
        found = take_over(release, chart, version, values, self.goal.compare)
        if found.owner is ReleaseOwner.FIPOP:
            await self._label(found)
        elif release.record is not None:
            self.record.foreign.add(release.record.uid)

    async def _label(self, release: Release) -> None:
        assert release.record is not None, "a release that is there has a record"
        version = release.record.resource_version
        patch = {"metadata": {"resourceVersion": version, "labels": label_as_seen(release)}}
        async with self.controller.clients.session(self.access, is_urgent=False) as client:
            await client.merge_patch(SECRETS, release.record.name, patch, namespace=release.namespace)

    async def _unlock(self, release: Release) -> None:
        """Delete the record of a helm that died. Only this version of it goes: a helm that is alive has changed it."""
        assert release.record is not None, "a release that is there has a record"
        async with self.controller.clients.session(self.access, is_urgent=False) as client:
            await client.delete(
                SECRETS,
                release.record.name,
                namespace=release.namespace,
                uid=release.record.uid,
                resource_version=release.record.resource_version,
            )
