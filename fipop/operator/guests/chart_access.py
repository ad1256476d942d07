"""Reads the access to the sources of charts from the operator's own namespace."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fipop.errors import ApiError, ApiForbiddenError
from fipop.guest.helm.chart_access import (
    ChartAccess,
    ChartAccessError,
    parse_authority,
    parse_credential,
)
from fipop.guest.helm.charts import ChartSource
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS, SECRETS, Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartAccessReader:
    """Gives the access that the options name, as it is now: what was changed holds from the next fetch on."""

    client: KubeClient
    namespace: str

    async def read(self, source: ChartSource) -> ChartAccess:
        """Read the access to a source. Raises ChartAccessError."""
        access = ChartAccess()
        if source.secret:
            secret = await self._get(SECRETS, source.secret, "the chart's value settings.kubevipChartSecret")
            access = parse_credential(f"{self.namespace}/{source.secret}", secret, source.secret_host)
        if source.ca:
            config_map = await self._get(CONFIG_MAPS, source.ca, "the chart's value settings.kubevipChartCA")
            access = replace(access, authority=parse_authority(f"{self.namespace}/{source.ca}", config_map))
        return access

    async def _get(self, resource: Resource, name: str, grant: str) -> Json | None:
        try:
            return await self.client.get(resource, name, namespace=self.namespace)
        except ApiForbiddenError:
            what = f"{resource.kind} {self.namespace}/{name}"
            raise ChartAccessError(f"fipop cannot read {what}. Set {grant} to allow it") from None
        except ApiError as error:
            raise ChartAccessError(str(error)) from error
