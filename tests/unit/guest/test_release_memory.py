"""What is remembered between the passes over a guest."""

from fipop.guest.errors import HelmError, HelmFailure
from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import ReleaseDescription, ReleaseRecord, parse_record
from fipop.guest.release_memory import ReleaseMemory
from tests.unit.guest.conftest import release_secret

TOLD = ReleaseDescription(chart_name="kube-vip", chart_version="1.0.0", values={"a": 1})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def record(revision: int = 1) -> ReleaseRecord:
    found = parse_record(release_secret(revision=revision))
    assert found is not None
    return found


def test_what_helm_told_of_a_release_is_remembered_by_its_secret_and_version() -> None:
    memory = ReleaseMemory()
    memory.inspect(record()).description = TOLD
    found = memory.inspection(record())
    assert found is not None
    assert found.description == TOLD
    assert memory.inspection(record(2)) is None


def test_helm_rests_longer_each_time_it_cannot_tell_of_a_release() -> None:
    clock = Clock()
    notes = ReleaseMemory(clock)
    error = HelmError(action="inspection", subject="release", failure=HelmFailure.KILLED)
    for seconds in (30, 60, 120):
        notes.note_silence(notes.inspect(record()), error)
        clock.now += seconds - 1
        assert notes.is_resting(notes.inspect(record()))
        clock.now += 1
        assert not notes.is_resting(notes.inspect(record()))


def test_what_is_gone_from_the_guest_is_forgotten() -> None:
    notes = ReleaseMemory(Clock())
    notes.keep_only([])
    notes.inspect(record()).description = TOLD
    notes.keep_only([record(), record(2)])
    assert notes.inspection(record())
    notes.keep_only([record(2)])
    assert notes.inspection(record()) is None


def test_helm_rests_longer_with_each_failure_and_not_at_all_with_other_values() -> None:
    clock = Clock()
    notes = ReleaseMemory(clock)
    assert notes.rest_seconds(Role.KUBE_VIP, "d1") == 0
    assert notes.note_failure(Role.KUBE_VIP, "d1") == 30
    clock.now = 10
    assert notes.rest_seconds(Role.KUBE_VIP, "d1") == 20
    clock.now = 100
    assert notes.rest_seconds(Role.KUBE_VIP, "d1") == 0
    assert notes.note_failure(Role.KUBE_VIP, "d1") == 60
    assert notes.rest_seconds(Role.KUBE_VIP, "d2") == 0
    assert notes.rest_seconds(Role.CLOUD_PROVIDER, "d1") == 0
    assert notes.note_failure(Role.KUBE_VIP, "d2") == 30


def test_why_helm_failed_is_told_until_it_succeeds_or_need_not_run() -> None:
    notes = ReleaseMemory(Clock())
    assert notes.failure(Role.KUBE_VIP) is None
    error = HelmError(action="upgrade", subject="release", failure=HelmFailure.FORBIDDEN)
    notes.note_failure(Role.KUBE_VIP, "d", error)
    assert notes.failure(Role.KUBE_VIP) is error
    assert notes.failed_runs(Role.KUBE_VIP) == 1
    assert notes.failure(Role.CLOUD_PROVIDER) is None
    notes.note_success(Role.KUBE_VIP)
    assert notes.failure(Role.KUBE_VIP) is None
    assert notes.failed_runs(Role.KUBE_VIP) == 0


def test_a_success_and_another_rollout_forget_failures() -> None:
    memory = ReleaseMemory(Clock())
    for forget in (lambda: memory.note_success(Role.KUBE_VIP), memory.forget_failures):
        memory.note_failure(Role.KUBE_VIP, "d")
        forget()
        assert memory.rest_seconds(Role.KUBE_VIP, "d") == 0
