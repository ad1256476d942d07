"""Other controllers that serve every Service of type LoadBalancer without a class: Harvester's, and ServiceLB of K3s.

They hinder no release. But what fipop's cloud provider assigns, they overwrite, and a Service that they serve waits for
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from fipop.helm.charts import Role
from fipop.helm.releases import Release
from fipop.helm.workloads import Workload


class Taker(StrEnum):
    """A controller that takes every Service; the value is the reason of conditions."""

    HARVESTER = "HarvesterTakesServices"
    SERVICE_LB = "ServiceLbTakesServices"

    @property
    def message(self) -> str:
        """What it does, and the remedy."""
        if self is Taker.HARVESTER:
            return (
                "Deployment kube-system/harvester-cloud-provider takes every Service of type LoadBalancer. Set "
                "loadBalancerClass of the Services, or switch off its Service controller with the chart values of the "
                "cluster."
            )
        return (
            "ServiceLB of K3s takes every Service of type LoadBalancer, and gives it the addresses of nodes. Switch it "
            'off with "disable: [servicelb]" in the configuration of the K3s servers, or set loadBalancerClass of the '
            "Services and have the cloud provider serve that class."
        )


def find_taker(other_providers: Iterable[Workload] | None, *, has_service_lb: bool) -> Taker | None:
    """Return the controller that takes every Service; None if there is none, or if it is not known."""
    if any(each.takes_services for each in other_providers or ()):
        return Taker.HARVESTER
    return Taker.SERVICE_LB if has_service_lb else None


def is_affected(release: Release) -> bool:
    """Return whether a release should serve Services without a class."""
    return release.role is Role.CLOUD_PROVIDER and not any(each.serves_class for each in release.workloads)
