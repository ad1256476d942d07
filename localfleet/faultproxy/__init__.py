"""A TLS proxy in front of a real API server that does harm as a plan says."""

from localfleet.faultproxy.proxy import FaultProxy, Passed
from localfleet.faultproxy.rules import Do, On, Rule, Schedule, Seen

__all__ = ["Do", "FaultProxy", "On", "Passed", "Rule", "Schedule", "Seen"]
