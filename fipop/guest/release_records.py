"""Changes of a release's records that are there already: of what a dead helm left, and of what a roll-back copies."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.guest.helm.guest_process import HelmTarget
from fipop.guest.helm.releases import LABEL_REVISION, SELECTOR, ReleaseRecord, ReleaseState, parse_record
from fipop.guest.limits import GuestLimits
from fipop.kube.resources import SECRETS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRecords:
    """Works on the releases of one guest, in that guest's turn."""

    limits: GuestLimits
    target: HelmTarget

    async def roll_back(self, state: ReleaseState, revision: int) -> None:
        """Have helm make a revision of an earlier one, and put right what its record says of who made it."""
        await self.limits.helm.roll_back(self.target, state.latest, revision)
        await self.own_revision(state.latest)

    async def own_revision(self, before: ReleaseRecord) -> None:
        """Note in the newest record that its revision is ours: helm copies labels, the number of the revision too."""
        async with self.limits.session(self.target.access) as client:
            selector = f"{SELECTOR},name={before.name}"
            listing = await client.list(
                SECRETS,
                namespace=before.namespace,
                label_selector=selector,
                metadata_only=True,
                project=parse_record,
            )
            records = [one for one in listing.items if one is not None and one.key == before.key]
            newest = max(records, key=lambda one: one.revision, default=None)
            if newest is None or newest.digest is None or newest.is_by_us:
                return  # one that kube-fip-operator made has none of our labels
            labels = {LABEL_REVISION: str(newest.revision)}
            await client.merge_patch(
                SECRETS,
                newest.secret,
                {"metadata": {"resourceVersion": newest.resource_version, "labels": labels}},
                namespace=newest.namespace,
            )

    async def drop(self, state: ReleaseState) -> None:
        """Delete the record of an operation whose helm is dead; what it made stays, and the next helm takes it over.

        helm itself would refuse to go on (`another operation is in progress`), and an uninstall would take what
        runs. Only this very version of the record goes: a helm that is alive after all has changed it.
        """
        record = state.latest
        async with self.limits.session(self.target.access) as client:
            await client.delete(
                SECRETS,
                record.secret,
                namespace=record.namespace,
                uid=record.uid,
                resource_version=record.resource_version,
            )
