"""What is seen of a guest, whatever it answers."""

import contextlib
from dataclasses import replace

import pytest

from fipop.errors import FipopError, UnavailableError
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.limits import GuestLimits
from localfleet.proxy import Fault, RancherProxy
from localfleet.simulated import SimulatedGuest
from tests.unit.guest.passes import add_guest


async def test_a_look_that_gets_no_answer_says_so_and_not_that_nothing_is_carried(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    task = add_guest(proxy, "c-m-a", fault=Fault(status=503))
    with pytest.raises(UnavailableError):
        await GuestSessions(limits).look("c-m-a", task.kubeconfig, on_objects=lambda _found: None)


@pytest.mark.parametrize(
    ("plural", "manifest"),
    [
        ("configmaps", {"metadata": {"name": "kubevip", "namespace": "a", "annotations": 7}}),
        (
            "configmaps",
            {"metadata": {"name": "kubevip", "namespace": "a", "annotations": {"x": 7}}, "data": [1]},
        ),
        ("configmaps", {"metadata": {"name": "kubevip", "namespace": "../a"}}),
        (
            "secrets",
            {"metadata": {"name": "s", "namespace": "a", "labels": {"owner": "helm", "version": "9" * 5000}}},
        ),
        ("secrets", {"metadata": {"name": "s", "namespace": "a", "labels": 7}}),
        (
            "daemonsets",
            {"metadata": {"name": "d", "namespace": "a"}, "spec": 7, "status": {"numberReady": "x"}},
        ),
        (
            "daemonsets",
            {"metadata": {"name": "d", "namespace": 7, "annotations": [7]}, "spec": {"template": 1}},
        ),
        ("services", {"metadata": {"name": "s", "namespace": "a"}, "spec": [], "status": 7}),
    ],
)
async def test_objects_of_any_shape_end_in_a_report(
    proxy: RancherProxy, limits: GuestLimits, plural: str, manifest: dict[str, object]
) -> None:
    task = replace(add_guest(proxy, "c-m-a"), opted_in=True)
    guest = proxy.guests["c-m-a"].target
    assert isinstance(guest, SimulatedGuest)
    stored = guest.put(plural, manifest)
    guest.objects = {(plural, "a", str(stored["metadata"]["name"])): stored}
    sessions = GuestSessions(limits)
    report = await sessions.run_pass(task)
    assert report.error is None or isinstance(report.error, (FipopError))
    with contextlib.suppress(FipopError):
        await sessions.look("c-m-a", task.kubeconfig, on_objects=lambda _found: None)
