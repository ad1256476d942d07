"""`fipop web`: where it listens, and how it ends where it cannot."""

import socket
from pathlib import Path

from click.testing import CliRunner

from fipop.cli.main import main
from localfleet.rancher_objects import build_kubeconfig
from tests.harness.reaching import NOBODY


def test_a_port_that_is_taken_is_a_sentence_and_1(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(build_kubeconfig(server=NOBODY, token="t"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        arguments = ["web", "--port", str(taken.getsockname()[1]), "--kubeconfig", str(kubeconfig)]
        result = CliRunner().invoke(main, arguments, prog_name="fipop")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Could not listen on port ")
    assert "--port" in result.stderr
    assert "Traceback" not in result.output


def test_a_wrong_kubeconfig_is_2(tmp_path: Path) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text("nonsense: [")
    result = CliRunner().invoke(main, ["web", "--kubeconfig", str(broken)], prog_name="fipop")
    assert result.exit_code == 2
    assert "Traceback" not in result.output
