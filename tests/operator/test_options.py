"""kube-fip-config: it is read every 5 s, created again if it is deleted, and bad values of it change no release."""

import base64
import logging
from pathlib import Path

import pytest

from fipop.api import names
from fipop.interfaces import ApiRequest
from localfleet.simulated import Target
from tests.harness.fleet import NAMESPACE, Fleet

A, B = "c-m-a", "c-m-b"
OPTIONS = ("configmaps", NAMESPACE, names.SETTINGS_CONFIG_MAP)
POLL_SECONDS = 5
VISITED = 150
"""Every guest cluster was visited twice in that time."""


def reports(fleet: Fleet, reason: str) -> list[str]:
    """Return the messages of the events of this reason on the ConfigMap."""
    about = f"ConfigMap/{names.SETTINGS_CONFIG_MAP}"
    return [event[2] for event in fleet.events(about) if event[1] == reason]


def build_opted_in() -> Fleet:
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval="60")
    fleet.add_range(iprange="10.0.0.10-10.0.0.29")
    fleet.add_guest(A)
    fleet.opt_in(A)
    fleet.ask(A)
    return fleet


async def test_a_changed_option_takes_effect_within_5_seconds() -> None:
    fleet = build_opted_in()
    fleet.set_options(kubevipGuestInstall="disabled")
    await fleet.start(leader_election=False)
    assert fleet.guests[A].releases == {}
    fleet.set_options(kubevipGuestInstall="enabled")
    await fleet.pass_time(POLL_SECONDS + 30)
    assert set(fleet.guests[A].releases.values()) == {"deployed"}


async def test_at_level_trace_each_request_is_logged_without_its_body(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fleet = build_opted_in()
    with caplog.at_level(1, logger="fipop.requests"):
        await fleet.start(leader_election=False)
    told = [each for each in caplog.records if each.name == "fipop.requests" and each.verb == "create"]
    assert ("management", 201) in {(each.target, each.status) for each in told}
    own = vars(told[0]).keys() - vars(logging.makeLogRecord({})).keys() - {"message", "asctime"}
    assert own == {"target", "verb", "path", "status"}


async def test_a_deleted_config_map_is_created_again_within_5_seconds() -> None:
    fleet = Fleet()
    await fleet.start(leader_election=False)
    made = fleet.memory.objects[OPTIONS]
    fleet.memory.remove(OPTIONS)
    await fleet.pass_time(POLL_SECONDS + 1)
    assert fleet.memory.objects[OPTIONS]["data"] == made["data"]


async def test_a_deleted_config_map_gets_the_settings_that_the_chart_has_now(tmp_path: Path) -> None:
    """An upgrade of the chart that changes only its settings restarts no pod: the mounted files change."""
    option = tmp_path / "operateGuestClusterInterval"
    option.write_text("480")
    fleet = Fleet()
    await fleet.start(leader_election=False, settings_defaults=tmp_path)
    option.write_text("60")
    await fleet.pass_time(POLL_SECONDS + 1)
    assert fleet.memory.objects[OPTIONS]["data"] == {option.name: "480"}, (
        "an upgrade changes none that exists"
    )
    fleet.memory.remove(OPTIONS)
    await fleet.pass_time(POLL_SECONDS + 1)
    assert fleet.memory.objects[OPTIONS]["data"] == {option.name: "60"}


async def test_of_replicas_that_start_at_once_each_takes_the_config_map_that_one_of_them_created(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fleet = Fleet()
    with caplog.at_level(logging.WARNING):
        fleet.begin()
        await fleet.start()
    assert OPTIONS in fleet.memory.objects
    assert [each.message for each in caplog.records if each.message == "Start is waiting"] == []


async def test_a_policy_that_refuses_the_config_map_keeps_the_options_in_force_and_the_process_ready() -> (
    None
):
    def refuse(verb: str, target: Target, _request: ApiRequest) -> bool:
        return verb == "create" and target.plural == "configmaps"

    fleet = build_opted_in()
    fleet.set_options(kubevipGuestInstall="disabled")
    await fleet.start(leader_election=False)
    fleet.link.refuse = refuse
    fleet.memory.remove(OPTIONS)
    await fleet.pass_time(VISITED)
    assert fleet.operator.is_alive
    assert fleet.guests[A].releases == {}
    assert "WriteRefused" in [reason for _, reason, _ in fleet.events("ConfigMap/kube-fip-config")]
    fleet.link.refuse = lambda *_: False
    await fleet.pass_time(POLL_SECONDS + 1)
    assert OPTIONS in fleet.memory.objects


async def test_a_bad_value_keeps_the_last_good_one_of_this_process_and_is_reported_once() -> None:
    fleet = build_opted_in()
    fleet.set_options(kubevipNamespace="vips")
    await fleet.start(leader_election=False)
    fleet.set_options(kubevipNamespace="No Namespace")
    await fleet.pass_time(VISITED)
    fleet.add_guest(B)
    fleet.opt_in(B)
    fleet.ask(B)
    await fleet.pass_time(60)
    assert ("configmaps", "vips", names.GUEST_CONFIG_MAP) in fleet.guests[B].objects
    [message] = reports(fleet, "BadOption")
    assert message.startswith("Option kubevipNamespace must be a DNS label")
    assert "keeps the last valid value" in message


@pytest.mark.parametrize(
    ("option", "bad"),
    [
        ("kubevipNamespace", "No Namespace"),
        ("kubevipChartValues", "a: y"),
        ("kubevipChartVersion", "~0.9"),
        ("kubevipUpdate", "perhaps"),
    ],
)
async def test_while_no_good_value_of_an_option_that_shapes_releases_is_known_no_release_changes(
    option: str, bad: str
) -> None:
    fleet = build_opted_in()
    fleet.set_options(**{option: bad})
    await fleet.start(leader_election=False)
    await fleet.pass_time(VISITED)
    assert fleet.guests[A].releases == {}
    assert len(fleet.guests[A].addresses) == 1, "addresses are assigned and written as before"
    assert fleet.condition(A, "KubeVipReady") == ("False", "OptionUnknown")
    assert option in fleet.message(A, "KubeVipReady")
    [message] = reports(fleet, "BadOption")
    assert option in message
    assert "changes no releases" in message
    fleet.set_options(**{option: None})  # type: ignore[arg-type]
    await fleet.pass_time(VISITED)
    assert set(fleet.guests[A].releases.values()) == {"deployed"}


@pytest.mark.parametrize(
    ("option", "effect"),
    [
        ("kubevipChartVersion", "Correct it: until then, fipop changes no releases in guest clusters."),
        ("kubevipRolloutCanaries", "Correct it: until then, rollouts stand still."),
        ("createFloatingIPs", "Correct it: until then, fipop creates no floating IPs."),
        ("helmConcurrency", "fipop uses the default."),
    ],
)
async def test_a_bad_value_at_the_start_is_reported_with_what_it_causes(option: str, effect: str) -> None:
    fleet = build_opted_in()
    fleet.set_options(**{option: "none"})
    await fleet.start(leader_election=False)
    [message] = reports(fleet, "BadOption")
    assert message.endswith(f": it is 'none'. {effect}")
    assert bool(fleet.guests[A].releases) is (option in {"createFloatingIPs", "helmConcurrency"})


async def test_an_option_that_is_not_utf_8_is_a_bad_value_and_not_an_absent_one() -> None:
    """`kubectl create configmap --from-file` puts such a file into binaryData."""
    fleet = build_opted_in()
    fleet.set_options(kubevipUpdate="true", kubevipChartValues="nodeSelector: {vip: here}")
    await fleet.start(leader_election=False)
    await fleet.pass_time(VISITED)
    secrets = fleet.guests[A].of_kind("secrets")
    assert set(fleet.guests[A].releases.values()) == {"deployed"}
    fleet.set_options(kubevipChartValues=None)  # type: ignore[arg-type]
    binary = {
        "kubevipChartValues": base64.b64encode("# f\xfcr alle\nnodeSelector: {vip: here}".encode("latin-1"))
    }
    found = fleet.memory.objects[OPTIONS]
    fleet.write(OPTIONS, {**found, "binaryData": {name: each.decode() for name, each in binary.items()}})
    await fleet.pass_time(VISITED)
    [message] = reports(fleet, "BadOption")
    assert message.startswith("Option kubevipChartValues must be")
    [message] = reports(fleet, "UnwiseOption")
    assert 'option "kubevipChartValues" is in binaryData: it must be text in UTF-8' in message
    assert fleet.guests[A].of_kind("secrets") == secrets, "no revision was made"


async def test_an_unknown_name_is_warned_of_and_changes_nothing() -> None:
    fleet = build_opted_in()
    fleet.set_options(kubevipUpdates="true")
    await fleet.start(leader_election=False)
    await fleet.pass_time(60)
    assert set(fleet.guests[A].releases.values()) == {"deployed"}
    [message] = reports(fleet, "UnwiseOption")
    assert 'option "kubevipUpdates" is unknown (did you mean "kubevipUpdate"?)' in message
    assert reports(fleet, "BadOption") == []
