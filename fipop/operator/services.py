"""What outlives the terms of a leader, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.api import names
from fipop.guest.guest_pass import GuestSessions
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder
from fipop.metrics.exposition import Metrics
from fipop.operator.configuration import Configuration
from fipop.runtime.leader_election import LeaderElector
from fipop.state.cache import ClusterCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What outlives a term: the cache that a standby keeps, and what every term uses."""

    cache: ClusterCache
    client: KubeClient
    events: EventRecorder
    configuration: Configuration
    elector: LeaderElector
    metrics: Metrics
    sessions: GuestSessions
    namespace: str = names.OPERATOR_NAMESPACE
