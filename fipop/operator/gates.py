"""What must have happened before addresses are given out. Everything starts closed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Gates:
    """The state of the start, shared by the reconcilers.

    `adopted`: every floating IP that already has an address has claimed it. `looked`: the guests told what they
    carry, so that new addresses can be chosen. `predecessor_runs`: kube-fip-operator still has replicas.
    """

    adopted: bool = False
    looked: bool = False
    predecessor_runs: bool = False

    def refuses_new_address(self) -> str | None:
        """Give the reason (a sentence) why no new address is given out now; None where it may be."""
        if self.predecessor_runs:
            return "kube-fip-operator still has replicas: scale it to 0, and addresses are given out"
        if not self.adopted:
            return "floating IPs that have an address claim theirs first"
        if not self.looked:
            return "the guests are asked which addresses they carry"
        return None
