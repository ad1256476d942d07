"""One reconciliation of a guest cluster: its ConfigMap, its releases, Harvester's kube-vip.

It has a session with the guest cluster before helm runs and one after, and one between them if objects of releases are
compared. If nothing changed, it is one session of four requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fipop.errors import ApiError, GuestError
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.in_use import InUseAddresses, find_in_use
from fipop.guest.limits import GuestLimits
from fipop.guest.observed import read_in_use, read_machines
from fipop.guest.pass_run import PassRun
from fipop.guest.reports import GuestTask, PassReport

log = logging.getLogger(__name__)


class GuestSessions:
    """Makes passes over guests and looks into them; all of them share one set of limits."""

    def __init__(self, limits: GuestLimits) -> None:
        self._limits = limits

    async def run_pass(
        self,
        task: GuestTask,
        *,
        deep: bool = False,
        early: Callable[[PassReport], None] | None = None,
        is_known: bool = False,
    ) -> PassReport:
        """Bring one guest to the wanted state, as far as it lets us, and tell how it stands.

        What fails is in the report, not raised. `deep` also looks for deleted objects of the releases, one request
        for each. `early` hears how the guest stands before charts and helm are waited for: when the ConfigMap was
        written, and in any case where nothing is known of the guest (`is_known` False). What is known of releases
        is not undone by half a pass. Where helm is needed and `task.may_run_helm` is False, the report says that the
        guest awaits it. A task that is cancelled leaves no connection and no helm
        process behind.
        """
        limits = self._limits
        run = PassRun(task=task, limits=limits, deep=deep)
        try:
            access = limits.connect(task.guest.id, task.kubeconfig)
            await run.first_session(access)
            if early is not None and run.has_news(is_known=is_known):
                early(run.report())
            if await run.run_helm(access):
                await run.second_session(access)
        except (ApiError, GuestError) as error:
            run.note(error)
        return run.report()

    async def look(
        self,
        guest_id: str,
        kubeconfig: bytes,
        *,
        on_objects: Callable[[InUseAddresses], None],
        on_machines: Callable[[InUseAddresses], None] | None = None,
    ) -> None:
        """Read which addresses a guest cluster uses in ConfigMaps and Services, and which its machines have.

        Raises ApiError and GuestError: if it does not answer, none of its addresses is free.
        """
        limits = self._limits
        access = limits.connect(guest_id, kubeconfig)
        async with limits.look(access) as client:
            on_objects(find_in_use(*await read_in_use(client)))
            if on_machines is not None:
                on_machines(await read_machines(client))

    @property
    def charts(self) -> ChartCache:
        """The charts that all passes share."""
        return self._limits.charts

    async def close(self) -> None:
        """Stop fetching charts, remove them from the disk, and close connections. Who began passes ends them."""
        await self._limits.close()
