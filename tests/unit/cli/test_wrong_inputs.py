"""Wrong inputs of each sort: what the command line says has the cause, with the word that is wrong, and the remedy."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fipop.cli.main import main
from tests.golden.fleet_server import FULL, Fleet, serve_fleet
from tests.harness.objects import count_ranges

RANGES, CONFIG_MAPS = "/apis/kubefip.k8s.binbash.org/v1/floatingipranges", "/api/v1/configmaps"


V1 = "client.authentication.k8s.io/v1"
FLOATING_IPS = "/apis/kubefip.k8s.binbash.org/v1/floatingips"


def build_options(data: dict[str, str]) -> dict[str, Any]:
    """Return the ConfigMap with the options."""
    metadata = {"namespace": "kube-fip", "name": "kube-fip-config", "uid": "u", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class Commands:
    """Runs commands over a fleet that a test spoils."""

    def __init__(self, fleet: Fleet, kubeconfigs: dict[str, Path]) -> None:
        self.fleet = fleet
        self.kubeconfigs = kubeconfigs

    def run(self, *arguments: str, kubeconfig: Path | None = None, **env: str) -> Result:
        chosen = kubeconfig or self.kubeconfigs[FULL]
        access = () if arguments[:1] in (("stauts",), ("rollout",)) else ("--kubeconfig", str(chosen))
        environment = {"NO_COLOR": "1", "HTTPS_PROXY": None, **env}
        result = CliRunner().invoke(main, [*arguments, *access], prog_name="fipop", env=environment)
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    fleet = Fleet("today", has_crds=True)
    with serve_fleet(fleet, tmp_path_factory.mktemp("readers")) as kubeconfigs:
        yield Commands(fleet, kubeconfigs)


@pytest.mark.parametrize(
    ("arguments", "cause", "remedy"),
    [
        (("stauts",), "stauts", "Did you mean 'status'?"),
        (("rollout", "stop"), "stop", "--help"),
        (("status", "-o", "yaml"), "yaml", "'table', 'wide', 'json'"),
        (("status", "--wait", "soon"), "soon", "such as 15s"),
        (("who",), "ADDRESS|CLUSTER|RANGE", "--help"),
        (("who", "10.0.0.999"), "10.0.0.999", "not an IP address"),
        (("who", "10.0.0.0/24"), "10.0.0.0/24", "Name one address, or a range"),
        (("who", ""), "empty", "Name an address"),
        (("who", "nobody"), "nobody", "Run fipop status"),
        (("--context", "other", "status"), "--context", "Write options after the command"),
        (("who", "detla"), "detla", 'did you mean "delta"?'),
        (("free", "nowhere"), "nowhere", "Run fipop check"),
        (("free", "dul"), "dul", 'did you mean "dual"?'),
        (("check", "--guest", "Alpha"), "Alpha", 'did you mean "alpha"?'),
        (("free", "full"), "is full", "extend spec.iprange"),
        (("free", "dual", "--count", "0"), "0", "1<=x<=10000"),
        (("free", "dual", "--family", "ipv5"), "ipv5", "is not one of"),
        (("check", "--guest", "nobody"), "nobody", "Run fipop check"),
        (("adopt",), "automatically", "Add --dry-run"),
        (("web", "--port", "70000"), "70000", "0<=x<=65535"),
        (("web", "--bind", "192.0.2.1", "--port", "0"), "192.0.2.1", "--bind"),
        (("status", "--context", "other"), "other", "It has fleet"),
        (("status", "--operator-namespace", "Kube Fip"), "--operator-namespace", "must be a DNS label"),
        (("values",), "Name a CLUSTER", "--diff or --stable"),
        (("values", "alpha", "--stable"), "--stable", "without CLUSTER and --diff"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_wrong_command_line(
    commands: Commands, arguments: tuple[str, ...], cause: str, remedy: str
) -> None:
    result = commands.run(*arguments)
    assert result.exit_code in {1, 2, 3}
    assert "Error: " in result.stderr
    assert cause in result.stderr
    assert remedy in result.stderr


def change(kubeconfig: dict[str, Any], **parts: Any) -> dict[str, Any]:
    user, cluster = dict(kubeconfig["users"][0]["user"]), dict(kubeconfig["clusters"][0]["cluster"])
    user.update(parts.get("user", {}))
    cluster.update(parts.get("cluster", {}))
    return kubeconfig | {
        "users": [{"name": "reader", "user": parts.get("only_user", user)}],
        "clusters": [{"name": "fleet", "cluster": cluster}],
    }


@pytest.mark.parametrize(
    ("parts", "cause", "remedy"),
    [
        ({"only_user": {}}, "neither a token nor a client certificate", "Log in again"),
        ({"only_user": {"exec": {"apiVersion": V1, "command": "no-plugin"}}}, "no-plugin", "kubectl version"),
        ({"user": {"as": "admin"}}, "impersonation", "Use a credential of that user"),
        ({"cluster": {"server": "http://127.0.0.1:1"}}, "http://127.0.0.1:1", "https URL"),
        ({"cluster": {"proxy-url": "socks5://127.0.0.1:1"}}, "socks5", "Use http"),
        ("[", "cannot be used", "kubectl version --kubeconfig"),
    ],
    ids=("no credential", "plugin", "impersonation", "http", "proxy", "no YAML"),
)
def test_a_wrong_kubeconfig(commands: Commands, tmp_path: Path, parts: Any, cause: str, remedy: str) -> None:
    good = json.loads(commands.kubeconfigs[FULL].read_text())
    path = tmp_path / "kubeconfig"
    path.write_text(parts if isinstance(parts, str) else yaml.safe_dump(change(good, **parts)))
    result = commands.run("status", kubeconfig=path)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert cause.lower() in result.stderr.lower()
    assert remedy in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_context_that_does_not_exist_is_a_mistake(commands: Commands, tmp_path: Path) -> None:
    assert commands.run("status", "--context", "other").exit_code == 2
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(json.loads(commands.kubeconfigs[FULL].read_text()) | {"current-context": ""})
    )
    result = commands.run("status", kubeconfig=path)
    assert (result.exit_code, "Name one with --context. It has fleet." in result.stderr) == (2, True)


def test_a_server_that_is_away_is_3(commands: Commands, tmp_path: Path) -> None:
    good = json.loads(commands.kubeconfigs[FULL].read_text())
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(change(good, cluster={"server": "https://127.0.0.1:9"})))
    result = commands.run("status", kubeconfig=path)
    assert (result.exit_code, len(result.stderr.splitlines())) == (3, 1)
    assert "https://127.0.0.1:9" in result.stderr
    assert "--context" in result.stderr


def test_the_kubeconfig_of_a_guest_cluster_is_recognized(commands: Commands, tmp_path: Path) -> None:
    """The most usual mistake."""
    good = json.loads(commands.kubeconfigs[FULL].read_text())
    server = f"{good['clusters'][0]['cluster']['server']}/k8s/clusters/c-m-alpha"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(change(good, cluster={"server": server})))
    for command in (("status",), ("check",), ("who", "10.0.0.10"), ("free", "full"), ("adopt", "--dry-run")):
        result = commands.run(*command, "--context", "fleet", kubeconfig=path)
        said = f'Context "fleet" at {server} has neither Rancher nor fipop: is it the management cluster?'
        assert (result.exit_code, said in result.stderr) == (3, True), result.stderr


@pytest.mark.parametrize(
    ("option", "value", "cause"),
    [
        ("kubevipUpdate", "ja", "kubevipUpdate"),
        ("logLevel", "Loud", "logLevel"),
        ("metricsPort", "99999", "metricsPort"),
        ("kubevipRolloutCanaries", "-1", "kubevipRolloutCanaries"),
        ("kubevipGuestInstall", "maybe", "kubevipGuestInstall"),
        (
            "kubevipChartValues",
            "env:\n\tbgp_password: hunter2\n",
            "must be YAML (line 2, column 1): the line is indented with a tab, use spaces.",
        ),
        ("kubevipChartRepoUrl", "https://me:hunter2@charts.lan", "must not have a user or password."),
        ("kubevipUpdates", "true", 'did you mean "kubevipUpdate"?'),
    ],
)
def test_a_wrong_option(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, option: str, value: str, cause: str
) -> None:
    monkeypatch.setitem(commands.fleet.management, CONFIG_MAPS, [build_options({option: value})])
    result = commands.run("check", "--all")
    assert_found(result, cause, "edit configmap kube-fip-config")
    assert "hunter2" not in result.stdout


@pytest.mark.parametrize(("value", "made"), [("true", True), ("false", False), ("maybe", False)])
def test_adopt_creates_what_an_operator_that_starts_creates(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, value: str, made: bool
) -> None:
    """While createFloatingIPs has no known good value, no floating IP is created."""
    monkeypatch.setitem(commands.fleet.management, FLOATING_IPS, [])
    options = build_options({"createFloatingIPs": value})
    monkeypatch.setitem(commands.fleet.management, CONFIG_MAPS, [options])
    assert ("c-m-delta/delta-kubevip" in commands.run("adopt", "--dry-run").stdout) is made


def test_values_says_which_option_is_bad_and_shown_with_its_default(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = build_options({"kubevipChartVersion": "newest"})
    monkeypatch.setitem(commands.fleet.management, CONFIG_MAPS, [options])
    result = commands.run("values", "delta")
    assert result.stderr.startswith("Bad option kubevipChartVersion must be a whole version")
    assert "Its default is shown" in result.stderr


@pytest.mark.parametrize(
    ("pool", "cause"),
    [
        ("10.0.0.300", "10.0.0.300"),
        ("10.0.0.9-10.0.0.1", "10.0.0.9-10.0.0.1"),
        ("10.0.0.0/33", "33"),
        ("224.0.5.0/28", "224.0.5.0/28"),
        ("0.0.0.0/32", "DHCP"),
    ],
)
def test_a_wrong_pool(commands: Commands, monkeypatch: pytest.MonkeyPatch, pool: str, cause: str) -> None:
    (first, *_) = commands.fleet.management[RANGES]
    spoilt = {**first, "spec": {"iprange": pool}, "status": {}}
    monkeypatch.setitem(commands.fleet.management, RANGES, count_ranges([spoilt], (), ()))
    assert_found(commands.run("check", "--all"), cause, "Correct spec.iprange")


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        ("harvesterNetworkname", "vlan20", "did you mean harvesterNetworkName?"),
        ("harvesterClustername", "harv1", "did you mean harvesterClusterName?"),
        ("kubefip.k8s.binbash.org/allow-delete", "ja", 'must be "true" or "false": it is "ja"'),
    ],
)
def test_a_wrong_annotation(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, key: str, value: str, cause: str
) -> None:
    (first, *_) = commands.fleet.management[RANGES]
    odd = {**first, "metadata": {**first["metadata"], "annotations": {key: value}}}
    monkeypatch.setitem(commands.fleet.management, RANGES, [odd])
    assert_found(commands.run("check", "--all"), cause, "kubectl edit floatingiprange")


def assert_found(result: Result, cause: str, remedy: str) -> None:
    lines = result.stdout.splitlines()
    at = next((number for number, line in enumerate(lines) if cause in line), None)
    assert at is not None, result.stdout
    found = lines[at : at + 2]
    assert found[0].startswith(("×", "‼", "i "))
    assert any(remedy in line for line in found), found
