"""The commands of the documentation, typed into a shell against a real installation."""

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.cli.commands import PROGRAM
from tests.api.cli.conftest import Seen
from tests.harness.documentation import NOT_RUN, OTHERS, ROOT, TASKS, read_commands, read_files
from tests.harness.forked_commands import run_forked

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("installs")]
"""tests/unit/test_documented_commands.py has whether each can be parsed."""

ELSEWHERE = (
    r"make |pipx |docker |skopeo |sha256sum ",  # other programs; the wheel and the image have tests of their own
    r"helm ",  # tests/api/test_chart_install.py, tests/api/test_helm_test.py
    r"kubectl get settings\.management",  # there is no Rancher with a name of its own
    r"fipop web",  # tests/api/page
    r"fipop rollout status --watch",  # it waits for the end of a rollout
    r"fipop (operator|cloud-provider)\b",  # the roles, which run until they are ended
    r"(fipop (adopt|free|rollout|values|who)|kubectl fip)$",  # names, not commands
    r".*\\\|",  # the synopsis of a command, in a table
    r"source |_FIPOP_COMPLETE=",  # of click
    r"curl ",  # what it asks for is not here
    r"dig |kubectl .*(external-dns|web-with-name)",  # tests/api/cli/test_dns.py
    r"cosign |jq ",  # the files of a release
    # There is no kubelet here, and no monitoring.
    r"kubectl .*(exec|port-forward|logs|servicemonitor|rollout (status|restart)| run )",
    r"kubectl .*patch service .*externalTrafficPolicy",  # the Service here is no LoadBalancer
    r"kubectl .*(scale|delete deployment) ",  # kube-fip-operator is not here: tests/api/test_predecessor.py
    r"kubectl .*fipop-system",  # tests/api/test_moving.py
    r"kubectl .*out/fipop\.yaml",  # tests/api/test_chart_install.py
    r"kubectl .*out/fipop-guest\.yaml",  # tests/api/services/test_own_manifest.py
    r"kubectl .*fipop-service-addresses",  # tests/api/services
    r"kubectl apply -f (examples/)?backup",  # tests/api/test_crd_existing_objects.py
    r"kubectl apply .*-k examples/gitops",  # tests/api/test_gitops.py
    r"kubectl describe its ",  # a sentence
)
"""What is shown, and tried by other tests or not at all."""
DEADLINE_SECONDS = 60
SHOWN = {
    r"--context demo\b": "--kubeconfig guest.kubeconfig",
    r"-n shop\b": "-n default",
    r"\bservice web\b": "service kubernetes",
    r"\b(RANGE|guest-vlan(-\w+)?)\b": "vlan",
    r"\b(NAMESPACE-OF-THE-GUEST|NS|c-m-abc|c-m-ngd5hs2r|c-m-yt15ew7h)\b": "GUEST-ID",
    r"\b(ADDRESS|10\.0\.0\.5|10\.135\.10\.\d+)\b": "GUEST-ADDRESS",
    r"\b(fip|floatingip) (NAME|demo-vip|shop-ingress|shop-kubevip)\b": r"\1 demo-kubevip",
    r"\bcattle\.io shop\b": "cattle.io demo",
    r"\bNAME\b": "demo",
    r"--wait \d+m": "--wait 2s",
    "…": "x",
}
"""What the pages show, and what it is called here."""
_CHANGES = re.compile(r"kubectl (?:-\S+ \S+ )*(create|apply|patch|annotate|label|delete)\b")
_DELETED_RANGE = re.compile(r"kubectl delete fiprange")


def collect() -> Iterator[tuple[Path, str]]:
    """Return the commands that run here with the page of each; one that two pages show in the same way runs once."""
    seen = set()
    for page in (*TASKS, *OTHERS):
        for command in read_commands(page) if page.stem not in NOT_RUN else ():
            kept = (page if ".yaml" in command else None, command)
            if kept not in seen and not re.match("|".join(ELSEWHERE), command):
                seen.add(kept)
                yield page, command


TRIED = sorted(collect())


async def _type(command: str, env: dict[str, str], folder: Path) -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    async with asyncio.timeout(DEADLINE_SECONDS):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err


def lay_out(folder: Path, page: Path, seen: Seen) -> None:
    """Write what the commands of a page read into a folder."""
    for name in ("examples", "crds"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "authority.pem").write_text("x")
    for name, text in read_files(page).items():
        # The namespaces of the pages are not in the guest cluster.
        (folder / name).write_text(translate(text, seen).replace("namespace: shop\n", "namespace: default\n"))
    assert seen.guest.plane is not None
    shutil.copy(seen.guest.plane.admin_kubeconfig, folder / "guest.kubeconfig")


def translate(text: str, seen: Seen) -> str:
    """Call the guest cluster and its address as they are called here."""
    for pattern in (r"\bc-m-ngd5hs2r\b", "GUEST-ID"):
        text = re.sub(pattern, seen.guest.id, text)
    return text.replace("GUEST-ADDRESS", seen.address)


@pytest.mark.parametrize(("page", "command"), TRIED, ids=[f"{page.stem}: {each}" for page, each in TRIED])
async def test_a_documented_command_works(seen: Seen, tmp_path: Path, page: Path, command: str) -> None:
    for pattern, instead in SHOWN.items():
        command = re.sub(pattern, instead, command)
    command = translate(command, seen)
    if _CHANGES.match(command):
        command = f"{command} --dry-run=server"
    if " delete " in command:
        command = f"{command} --wait=false"
    await asyncio.to_thread(lay_out, tmp_path, page, seen)
    kubectl = seen.stack.fleet.programs["kubectl"]
    helm = seen.stack.installation.helm.program
    env = {
        "PATH": os.pathsep.join(
            [str(each.parent) for each in (PROGRAM, kubectl, helm)] + [os.environ["PATH"]]
        ),
        "HOME": str(tmp_path),
        "KUBECONFIG": str(seen.commands.kubeconfig),
        "LANG": "C.UTF-8",
        # For the many short lives of kubectl: what the API servers have does not change between them.
        "KUBECACHEDIR": str(seen.commands.kubeconfig.parent / "kubectl-cache"),
        "GOGC": "off",
    }
    if re.fullmatch(r"fipop [^|<>;&$]*", command):
        code, out, err = await run_forked(shlex.split(command, comments=True)[1:], env=env, cwd=tmp_path)
    else:
        code, out, err = await _type(command, env, tmp_path)
    said = (out + err).decode()
    # What fipop finds in this installation (the guest is on this machine, which is refused) is none of its faults.
    may_fail = command.startswith(("fipop", "kubectl fip "))
    if _DELETED_RANGE.match(command):
        # Its addresses are held here.
        assert code == 1, said
        assert "denied request" in said
    else:
        assert code in ({0, 1} if may_fail else {0}), said
    assert "Traceback" not in said
    assert "Usage:" not in said, said


def test_what_is_not_run_is_a_page() -> None:
    assert {page.stem for page in TASKS} >= NOT_RUN.keys()
