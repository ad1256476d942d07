"""The state of an installation in sum: counts, the worst first, a rollout, and one guest alone."""

from fipop.report.maps import draw_map
from fipop.report.status import report_status
from tests.harness.objects import build_floating_ip, build_range, build_reservation, held_by
from tests.harness.steps import count_steps
from tests.unit.report.snapshots import snapshot


def test_each_guest_cluster_counts_once_for_the_versions_that_it_runs() -> None:
    """A floating IP that was refused shows no releases, whatever its name is."""
    release = {"role": "kube-vip", "namespace": "kube-system", "name": "kube-vip", "version": "0.11.0"}
    guest = {"id": "c-m-1", "cluster": "demo", "releases": [{**release, "status": "deployed", "revision": 1}]}
    shown, bare = {"guest": guest}, {"guest": {**guest, "releases": []}}
    found = snapshot(
        floating_ips=[
            build_floating_ip("first", status=bare),
            build_floating_ip("second", status=shown),
            build_floating_ip("third", status=shown),
            build_floating_ip("zero"),
        ]
    )
    assert report_status(found).count_versions() == {"kube-vip": {"0.11.0": 1}}


def count_report_steps(floating_ips: int) -> int:
    fields = [(f"10.10.{number // 250}.{number % 250 + 1}", f"f{number}") for number in range(floating_ips)]
    found = snapshot(
        ranges=[build_range("pool", "10.10.0.0-10.20.255.255")],
        floating_ips=[build_floating_ip(name, status=held_by([address])) for address, name in fields],
        reservations=[build_reservation(address, name) for address, name in fields],
    )
    assert report_status(found).count_floating_ips()["inAll"] == floating_ips
    return count_steps(lambda: (report_status(found), draw_map(found, "pool")))


def test_the_work_of_a_report_grows_with_the_floating_ips_and_not_faster() -> None:
    """A bound against blow-up; bench.look measures ten thousand of them."""
    assert count_report_steps(1_000) < 15 * count_report_steps(100)
