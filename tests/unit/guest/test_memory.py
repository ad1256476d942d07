"""What is remembered between the passes over a guest."""

from fipop.errors import HelmError, HelmFailure
from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import ReleaseDescription, ReleaseRecord, parse_record
from fipop.guest.memory import GuestMemory
from tests.unit.guest.conftest import release_secret

TOLD = ReleaseDescription(chart_name="kube-vip", chart_version="1.0.0", values={"a": 1})


def record(revision: int = 1) -> ReleaseRecord:
    found = parse_record(release_secret(revision=revision))
    assert found is not None
    return found


def test_what_helm_told_of_a_release_is_remembered_by_its_secret_and_version() -> None:
    memory = GuestMemory()
    memory.inspect("a", record()).description = TOLD
    found = memory.inspection("a", record())
    assert found is not None
    assert found.description == TOLD
    assert memory.inspection("a", record(2)) is None
    assert memory.inspection("b", record()) is None


def test_helm_rests_longer_each_time_it_cannot_tell_of_a_release() -> None:
    memory = GuestMemory()
    error = HelmError(action="inspection", subject="release", failure=HelmFailure.KILLED)
    waits = []
    for _ in range(3):
        memory.inspect("a", record()).fail(error, 100)
        waits.append(memory.inspect("a", record()).not_before - 100)
    assert waits == [30, 60, 120]


def test_what_is_gone_from_the_guest_is_forgotten() -> None:
    memory = GuestMemory()
    memory.keep_only("a", [])
    memory.inspect("a", record()).description = TOLD
    memory.keep_only("a", [record(), record(2)])
    assert memory.inspection("a", record())
    memory.keep_only("a", [record(2)])
    assert memory.inspection("a", record()) is None


def test_helm_rests_longer_with_each_failure_and_not_at_all_with_other_values() -> None:
    memory = GuestMemory()
    assert memory.rest_seconds("a", Role.KUBE_VIP, "d1", 0) == 0
    assert memory.note_failure("a", Role.KUBE_VIP, "d1", 100) == 30
    assert memory.rest_seconds("a", Role.KUBE_VIP, "d1", 110) == 20
    assert memory.rest_seconds("a", Role.KUBE_VIP, "d1", 200) == 0
    assert memory.note_failure("a", Role.KUBE_VIP, "d1", 200) == 60
    assert memory.rest_seconds("a", Role.KUBE_VIP, "d2", 201) == 0
    assert memory.rest_seconds("a", Role.CLOUD_PROVIDER, "d1", 201) == 0
    assert memory.note_failure("a", Role.KUBE_VIP, "d2", 200) == 30


def test_why_helm_failed_is_told_until_it_succeeds_or_need_not_run() -> None:
    memory = GuestMemory()
    assert memory.failure("a", Role.KUBE_VIP) is None
    error = HelmError(action="upgrade", subject="release", failure=HelmFailure.FORBIDDEN)
    memory.note_failure("a", Role.KUBE_VIP, "d", 0, error)
    assert memory.failure("a", Role.KUBE_VIP) is error
    assert memory.failure("a", Role.CLOUD_PROVIDER) is None
    memory.note_success("a", Role.KUBE_VIP)
    assert memory.failure("a", Role.KUBE_VIP) is None


def test_a_success_and_the_end_of_a_guest_forget_failures() -> None:
    memory = GuestMemory()
    for forget in (lambda: memory.note_success("a", Role.KUBE_VIP), lambda: memory.forget("a")):
        memory.note_failure("a", Role.KUBE_VIP, "d", 0)
        forget()
        assert memory.rest_seconds("a", Role.KUBE_VIP, "d", 0) == 0
    memory.note_success("nobody", Role.KUBE_VIP)
    memory.forget("nobody")
