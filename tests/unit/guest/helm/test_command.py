"""The command lines of helm, and what surrounds it."""

import itertools
import json
import re
from pathlib import Path

import pytest

from tests.harness.reaching import build_runner
from tests.unit.guest.helm.programs import Stub, order, target


async def test_secrets_go_by_stdin_and_a_private_file_and_never_by_the_command_line(
    stub: Stub, tmp_path: Path
) -> None:
    await build_runner(stub.make()).upgrade(target(), order(tmp_path, password="valuesecret"))
    argv = stub.told("argv")
    assert not [part for part in argv if "verysecret" in part or "valuesecret" in part]
    assert json.loads((tmp_path / "stdin").read_text()) == {"password": "valuesecret"}
    kubeconfig = json.loads((tmp_path / "kubeconfig").read_text())
    assert kubeconfig["users"] == [{"name": "guest", "user": {}}], "no credential is in any file"
    server = kubeconfig["clusters"][0]["cluster"].pop("server")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}", server), "128 random bits on loopback"
    assert kubeconfig["clusters"] == [{"name": "guest", "cluster": {}}]
    assert (tmp_path / "modes").read_text().split() == ["600", "700"]


async def test_helm_installs_or_upgrades_without_waiting_and_labels_the_release(
    stub: Stub, tmp_path: Path
) -> None:
    await build_runner(stub.make(), deadline_seconds=77).upgrade(target(), order(tmp_path))
    argv = stub.told("argv")
    assert argv[:3] == ["upgrade", "kube-vip", str(tmp_path / "chart.tgz")]
    assert {"--install", "--create-namespace"} <= set(argv)
    assert not {"--wait", "--atomic", "--force", "--take-ownership"} & set(argv)
    pairs = dict(itertools.pairwise(argv))
    assert pairs["--labels"] == "example.org/role=vip,example.org/digest=abc"
    assert (pairs["--namespace"], pairs["--timeout"], pairs["--values"]) == ("networking", "77s", "-")


async def test_helm_gets_no_proxy_no_kubeconfig_and_no_home_of_ours(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "KUBECONFIG", "HELM_KUBETOKEN", "HELM_NAMESPACE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "/ours")
    await build_runner(stub.make("echo '{}'")).upgrade(target(), order(tmp_path))
    assert "/ours" not in stub.env.values()
    folder = stub.env["HOME"]
    assert stub.env["KUBECONFIG"] == f"{folder}/kubeconfig"
    assert stub.env["HELM_CACHE_HOME"].startswith(folder)


async def test_charts_are_fetched_through_the_proxy_and_trust_of_our_surroundings(stub: Stub) -> None:
    environ = {
        "HTTPS_PROXY": "http://proxy.example",
        "SSL_CERT_FILE": "/ca.pem",
        "KUBECONFIG": "/ours",
        "HOME": "/ours",
    }
    runner = build_runner(stub.make("echo 'version: 1.2.3'"), environ=environ)
    async with runner.fetching("a chart") as fetch:
        assert await fetch.newest_version("oci://registry.example/chart") == "1.2.3"
    assert (stub.env["HTTPS_PROXY"], stub.env["SSL_CERT_FILE"]) == ("http://proxy.example", "/ca.pem")
    assert "/ours" not in stub.env.values()


async def test_what_a_guest_serves_is_not_kept_on_our_disk(stub: Stub, tmp_path: Path) -> None:
    await build_runner(stub.make()).upgrade(target(), order(tmp_path))
    assert stub.env["KUBECACHEDIR"].startswith("/dev/null/")
