"""One pass while it runs: what it found and did so far."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

from fipop.deadlines import HELM_TURN_SECONDS
from fipop.errors import ApiError, ConflictError, FipopError, GuestError
from fipop.guest.configmap.writer import find_namespace, settle_config_maps
from fipop.guest.errors import explain_refusal
from fipop.guest.harvester_parking import HarvesterParking
from fipop.guest.helm.charts import Role, WantedRelease, wanted_releases
from fipop.guest.helm.guest_process import HelmTarget
from fipop.guest.helm.releases import ReleaseState, Status
from fipop.guest.helm_turn import HelmTurn, Outcome
from fipop.guest.in_use import find_in_use
from fipop.guest.limits import GuestLimits
from fipop.guest.missing_objects import find_missing
from fipop.guest.observed import (
    ObservedState,
    read_config_maps,
    read_in_use,
    read_machines,
    read_observed_state,
    read_restarts,
)
from fipop.guest.release_inspection import Inspector
from fipop.guest.release_memory import Place
from fipop.guest.release_ownership import build_scope
from fipop.guest.release_work import ReleaseWork
from fipop.guest.report_building import build_events, sum_up_release, waits_for_pods
from fipop.guest.reports import ConfigMapOutcome, ConfigMapReport, GuestTask, PassReport, ReleaseReport
from fipop.ipam.addresses import parse_address
from fipop.kube.client import KubeClient
from fipop.kube.guests import GuestAccess

log = logging.getLogger(__name__)

CONFLICT_SECONDS = 2.0
"""When to come again after somebody else's write in between, or after a write that was not permitted."""


@dataclass(slots=True, kw_only=True)
class PassRun:
    """A pass while it runs: what it found and did so far."""

    task: GuestTask
    limits: GuestLimits
    deep: bool
    awaits_helm: bool = False
    reachable: bool = False
    error: FipopError | None = None
    config_map: ConfigMapReport = field(default_factory=ConfigMapReport)
    observed: ObservedState | None = None
    unlisted: dict[Role, ReleaseState] = field(default_factory=dict)
    missing: dict[Role, tuple[str, ...]] = field(default_factory=dict)
    outcomes: dict[Role, Outcome] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    restarts: dict[str, int] | None = None

    @property
    def wanted(self) -> tuple[WantedRelease, ...]:
        """The releases that the settings want."""
        return wanted_releases(self.task.settings)

    def has_news(self, *, is_known: bool) -> bool:
        """Whether the first session has to tell what charts and helm need not be waited for."""
        if self.config_map.outcome is ConfigMapOutcome.WRITTEN:
            return True
        # To a quiet pass over releases that are there helm has nothing to do, and the whole is told at once.
        return not is_known and self.observed is not None and len(self.observed.managed) < len(self.wanted)

    def note(self, error: FipopError | None) -> None:
        """Keep the first error, and come again soon where it mends itself."""
        if error is not None and self.error is None:
            cluster = self.task.guest.cluster
            self.error = explain_refusal(error, workspace=cluster.namespace, cluster_name=cluster.name)
        if isinstance(error, ConflictError):
            self.waits.append(CONFLICT_SECONDS)

    async def first_session(self, access: GuestAccess) -> None:
        """Probe, observe, write the ConfigMap, and do what the observed state showed to be due."""
        async with self._session(access) as client:
            config_maps, services = await read_in_use(client)
            in_use = find_in_use(config_maps, services)
            self.reachable = True
            self.task.on_objects(in_use)
            await self._read_machines(client)
            home = find_namespace(config_maps)
            wanted_home = self.task.settings.kubevip_namespace
            is_unknown = "kubevipNamespace" in self.task.settings.unknown_options
            if self.task.opted_in or self.task.leaving or home not in (None, wanted_home):
                # The cloud provider reads the namespace of its release, which need not be the wanted one.
                await self._read_observed_state(client)
                provider = (
                    self.observed.managed.get(Role.CLOUD_PROVIDER) if self.observed is not None else None
                )
                if provider is None and self.observed is not None:
                    # Where the one runs that helm is still to be asked about: addresses do not wait for that.
                    provider = self.observed.unknown.get(Role.CLOUD_PROVIDER)
                if provider is not None:
                    home = provider.latest.namespace
                elif self.observed is not None and not is_unknown:
                    home = None
            # What this guest cluster uses already stays: its former key had it, or a Service has it.
            unused = (each for each in self.task.withheld if in_use.carrier_of(parse_address(each)) is None)
            self.config_map = await settle_config_maps(
                client, self.task, config_maps, home or wanted_home, withheld=frozenset(unused)
            )
            if self.config_map.outcome is ConfigMapOutcome.WRITTEN:
                self.task.on_objects(find_in_use(await read_config_maps(client), services))
            self.note(self.config_map.error)
            if self.config_map.outcome is ConfigMapOutcome.WITHHELD and self.config_map.error is None:
                # Nothing failed, so nothing else brings it back: a lease that was renewed late, a ledger that moved.
                self.waits.append(CONFLICT_SECONDS)
            if self.task.may_remove and self.observed is not None:
                self.observed = await self._parking(client).unpark(self.observed)
            if self.task.opted_in and self.observed is not None:
                await self._find_missing(client, self.observed)
                self.observed = await self._parking(client).park(self.observed)
                if self.task.gate.watch_pods:
                    await self._count_restarts(client, self.observed)

    async def _read_machines(self, client: KubeClient) -> None:
        if self.task.on_machines is None:
            return
        try:
            self.task.on_machines(await read_machines(client))
        except (ApiError, GuestError) as error:
            self.note(error)  # its addresses are written all the same

    async def _count_restarts(self, client: KubeClient, observed: ObservedState) -> None:
        try:
            self.restarts = await read_restarts(client, observed.managed.values())
        except ApiError as error:
            self.note(error)

    async def run_helm(self, access: GuestAccess) -> bool:
        """Have helm tell what is not known of releases, and settle them; give whether it changed any."""
        if self.observed is None or not (self.task.opted_in or self.task.leaving):
            return False
        target = HelmTarget(
            access=access,
            # One deadline for all that the turn is for: a slow guest has its names and retries in it, too.
            deadline=asyncio.get_running_loop().time() + HELM_TURN_SECONDS,
            on_request=self.limits.observe_request,
        )
        turn = HelmTurn(
            task=self.task,
            limits=self.limits,
            target=target,
            observed=self.observed,
            missing=self.missing,
        )
        if self.task.opted_in and (self.observed.unknown or self.unlisted):
            if self.task.may_run_helm:
                self.observed = await self._inspect(turn)
            else:
                self.awaits_helm = True
        await ReleaseWork(turn=replace(turn, observed=self.observed), take=self._take).run()
        return any(outcome.ran for outcome in self.outcomes.values())

    def _take(self, role: Role, outcome: Outcome) -> None:
        self.outcomes[role] = outcome
        self.note(outcome.error)
        self.awaits_helm = self.awaits_helm or outcome.awaits_helm
        if outcome.wait_seconds is not None:
            self.waits.append(outcome.wait_seconds)

    async def _inspect(self, turn: HelmTurn) -> ObservedState:
        inspector = Inspector(turn)
        observed = await inspector.find_adopted(self.wanted)
        for role, state in observed.managed.items() if self.deep else ():
            if role not in turn.observed.managed and state.latest.status is Status.DEPLOYED:
                self.unlisted[role] = state
        unlisted, self.unlisted = self.unlisted, {}
        try:
            objects = await inspector.list_objects(unlisted)
        except GuestError as error:
            self.note(error)
            return observed
        if objects:
            async with self._session(turn.target.access) as client:
                for role, places in objects.items():
                    await self._compare(client, role, places)
        return observed

    async def second_session(self, access: GuestAccess) -> None:
        """See what helm made, and let Harvester's make room for it."""
        async with self._session(access) as client:
            await self._read_observed_state(client)
            if self.observed is not None and self.task.opted_in:
                self.observed = await self._parking(client).park(self.observed)

    def report(self) -> PassReport:
        """Sum up."""
        observed = self.observed if self.task.opted_in else None
        releases: tuple[ReleaseReport, ...] = ()
        waits = list(self.waits)
        if observed is not None:
            releases = tuple(
                sum_up_release(
                    one,
                    observed,
                    self.outcomes.get(one.role),
                    self.task.memory.failure(one.role),
                    gate=self.task.gate,
                    failed_runs=self.task.memory.failed_runs(one.role),
                )
                for one in self.wanted
            )
            waits += waits_for_pods(observed, releases)
            if self.task.gate.recheck_seconds is not None:
                waits.append(self.task.gate.recheck_seconds)
        return PassReport(
            reachable=self.reachable,
            error=self.error,
            config_map=self.config_map,
            releases=releases,
            events=build_events(self.config_map, self.outcomes, reachable=self.reachable),
            checked=self.deep and not self.unlisted and not (observed is not None and observed.unknown),
            retry_after_seconds=min(waits, default=None),
            awaits_helm=self.awaits_helm,
            restarts=self.restarts,
            is_back=self._is_back(),
            has_ours=bool(self.observed.removable) if self.observed is not None else None,
        )

    def _is_back(self) -> bool:
        back, observed = self.task.gate.going_back, self.observed
        if back is None or observed is None:
            return False
        return all(back.is_done(one.role, observed.managed.get(one.role)) for one in self.wanted)

    async def _read_observed_state(self, client: KubeClient) -> None:
        try:
            scope = build_scope(self.task.settings, self.task.reported)
            self.observed = await read_observed_state(client, self.wanted, self.task.memory, scope)
        except ApiError as error:
            # The addresses are written all the same; nothing is installed by what is not known.
            self.observed = None
            self.note(error)

    async def _find_missing(self, client: KubeClient, observed: ObservedState) -> None:
        """Look for deleted objects of the releases; of which objects those are, helm may have to be asked first."""
        for role, state in observed.managed.items():
            suspicious = not observed.workloads_of(role) or role in self.task.memory.lacking
            if state.latest.status is not Status.DEPLOYED or not (self.deep or suspicious):
                continue
            inspection = self.task.memory.inspection(state.latest)
            if inspection is not None and inspection.objects is not None:
                await self._compare(client, role, inspection.objects)
            elif inspection is None or not self.task.memory.is_resting(inspection):
                self.unlisted[role] = state
            else:
                self.note(inspection.error)

    async def _compare(self, client: KubeClient, role: Role, objects: tuple[Place, ...]) -> None:
        try:
            self.missing[role] = await find_missing(client, objects)
        except ApiError as error:
            self.note(error)
            return
        if self.missing[role]:
            self.task.memory.lacking.add(role)  # then every pass looks for them, until they are there
        else:
            self.task.memory.lacking.discard(role)

    def _session(self, access: GuestAccess) -> AbstractAsyncContextManager[KubeClient]:
        return self.limits.session(access)

    def _parking(self, client: KubeClient) -> HarvesterParking:
        return HarvesterParking(client=client, cluster_name=self.task.guest.cluster_name, note=self.note)
