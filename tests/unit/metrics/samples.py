"""A fleet whose metrics are looked at."""

from fipop.ipam.allocator import Usage
from fipop.metrics.exposition import Metrics
from fipop.metrics.samples import FleetSnapshot, GuestSample, RangeSample, RolloutSample

RANGE = RangeSample(
    name="guest-vlan",
    iprange="10.135.10.192/26",
    harvester_cluster="harv1",
    harvester_network="vlan10",
    ready=True,
    reason="Ready",
    families=frozenset({"IPv4"}),
    usage={"IPv4": Usage(used=3, free=58, quarantined=1, out_of_range=2), "IPv6": Usage()},
)


GUEST = GuestSample(
    guest="c-m-4xk8q2vz", cluster="demo", harvester_cluster="harv1", reachable=True, last_pass=1.5e9
)


FLEET = FleetSnapshot(
    leading=True,
    ranges=(RANGE,),
    guests=(GUEST,),
    queue_depths={"guests": 7},
    bad_options=2,
    withheld_releases=40,
    floating_ips={"True": 3, "False": 1, "Unknown": 0},
    gives_out=True,
    install_queue=12,
    rollout=RolloutSample(target="c0ffee", state="Wave", guests={"pending": 9, "upgrading": 2}),
    last_answer=1.5e9,
)


class Fleet:
    """A fleet that a test changes between two scrapes."""

    def __init__(self) -> None:
        self.snapshot = FLEET
        self.metrics = Metrics(lambda: self.snapshot, version="1.2.3")

    def lines(self, prefix: str) -> list[str]:
        """Give what a scrape shows of the metrics that begin so, without the comments."""
        return [line for line in self.metrics.render().decode().splitlines() if line.startswith(prefix)]
