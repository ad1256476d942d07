"""A guest's turn with helm, in which nothing runs: what would be done is taken down."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from fipop.api.names import LABEL_OPT_IN
from fipop.guest.helm.charts import ChartIdentity, Role, wanted_releases
from fipop.guest.helm.releases import ReleaseRecord, ReleaseState, build_labels, parse_record
from fipop.guest.helm_turn import HelmTurn
from fipop.guest.observed import ObservedState
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.release_memory import ReleaseMemory
from fipop.guest.release_ownership import build_scope, is_removable
from fipop.guest.workloads import Workload
from fipop.kube.client import Listing
from fipop.settings.options import DEFAULTS
from tests.harness.guests import build_guest
from tests.harness.tasks import build_task
from tests.unit.guest.conftest import CHART, NOW, release_secret

GRACE = 150.0


class FakeHelm:
    """Takes down what it is asked to do; `error` is raised instead."""

    def __init__(self, done: list[str]) -> None:
        self.done = done
        self.error: Exception | None = None

    async def roll_back(self, _target: object, release: ReleaseRecord, revision: int) -> None:
        self.do(f"rollback {release.name} {revision}")

    async def uninstall(self, _target: object, release: ReleaseRecord) -> None:
        self.do(f"uninstall {release.name}")

    async def upgrade(self, _target: object, order: Any) -> None:
        self.do(f"upgrade {order.name} {order.values['nameOverride']}")

    def do(self, what: str) -> None:
        if self.error is not None:
            raise self.error
        self.done.append(what)


class AnyTarget:
    """A target of a rollout: it made every release, or none."""

    def __init__(self, *, is_maker: bool = True) -> None:
        self._is_maker = is_maker

    def made(self, _role: Role, _state: object) -> bool:
        return self._is_maker


class FakeGuestTarget:
    """Where helm goes; nothing is connected."""

    access = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeChart:
    identity: ChartIdentity
    path: str = "chart.tgz"


class FakeCharts:
    """Has every chart that is asked for."""

    async def get(self, source: Any, *, content: str = "") -> FakeChart:
        del content
        return FakeChart(identity=replace(CHART, name=source.name))


class FakeLimits:
    """What all passes share, as far as a turn of helm uses it."""

    grace_seconds = GRACE

    def __init__(self, helm: "FakeHelm", client: "FakeClient") -> None:
        self.helm, self.charts, self._client = helm, FakeCharts(), client

    @asynccontextmanager
    async def session(self, _connection: object) -> AsyncIterator["FakeClient"]:
        yield self._client


class FakeClient:
    """The guest's API as far as records of releases go."""

    def __init__(self, done: list[str]) -> None:
        self.done = done
        self.secrets: list[dict[str, Any]] = []

    async def list(self, _resource: object, *, project: Any, **_: object) -> Any:
        return Listing(items=tuple(map(project, self.secrets)), resource_version=9)

    async def merge_patch(self, _resource: object, name: str, patch: Any, **_: object) -> None:
        self.done.append(f"patch {name} {patch['metadata']['labels']}")

    async def delete(
        self, _resource: object, name: str, *, uid: str, resource_version: str, **_: object
    ) -> None:
        self.done.append(f"delete {name} {uid} {resource_version}")


def state(status: str = "deployed", *, revision: int = 3, role: Role = Role.KUBE_VIP) -> ReleaseState:
    """A release that fipop made."""
    labels = build_labels(role, "d", CHART, object_name=role.value, revision=revision)
    record = parse_record(release_secret(role.value, revision, status, labels=labels))
    assert record is not None
    return ReleaseState(latest=record, deployed_revision=revision)


class Turn:
    """A turn of one guest, and what was done in it."""

    def __init__(
        self,
        *states: ReleaseState,
        workloads: tuple[Workload, ...] = (),
        age_seconds: float = 0.0,
        may_run_helm: bool = True,
        missing: Mapping[Role, tuple[str, ...]] | None = None,
        gate: ReleaseGate | None = None,
        **task: Any,
    ) -> None:
        self.done: list[str] = []
        self.now = 1000.0
        self.helm, self.client = FakeHelm(self.done), FakeClient(self.done)
        self.notes = ReleaseMemory(lambda: self.now)
        scope = build_scope(DEFAULTS, frozenset(each.latest.key for each in states))
        observed = ObservedState(
            now=NOW + timedelta(seconds=age_seconds),
            states={each.latest.key: each for each in states},
            managed={each.latest.role: each for each in states if each.latest.role is not None},
            workloads=workloads,
            problems={},
            unknown={},
            scope=scope,
            removable=tuple(
                each
                for wanted in reversed(wanted_releases(DEFAULTS))
                for each in states
                if is_removable(each, wanted, scope)
            ),
        )
        self.turn = HelmTurn(
            task=build_task(
                opted_in=True,
                guest=build_guest("c-m-a", name="demo", labels={LABEL_OPT_IN: "true"}),
                gate=gate or ReleaseGate(),
                memory=self.notes,
                may_run_helm=may_run_helm,
                **task,
            ),
            limits=FakeLimits(self.helm, self.client),  # type: ignore[arg-type]
            target=FakeGuestTarget(),  # type: ignore[arg-type]
            observed=observed,
            missing=missing or {},
        )

    def seeing(self, **changes: Any) -> HelmTurn:
        """The turn with another observed state."""
        return replace(self.turn, observed=replace(self.turn.observed, **changes))
