"""Base images of this machine's Debian, for where no public registry is reached: made with debootstrap and buildah."""

import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from localfleet.assets import default_cache_folder
from localfleet.cache import Cache

SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
PATH = "/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


def run(*argv: str | Path, environment: Mapping[str, str]) -> str:
    """Run a program to its end and return its stdout without the last line break."""
    done = subprocess.run(
        [str(each) for each in argv], env=dict(environment), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def make_root(environment: Mapping[str, str]) -> Path:
    """Return a folder with a small Debian that has Python; it is kept in the user's cache."""

    def fill(folder: Path) -> None:
        run(
            "debootstrap",
            "--variant=minbase",
            f"--include={PACKAGES}",
            SUITE,
            folder,
            environment=environment,
        )

    # Beside the programs, with a lock of its own: a compiler there holds the other one for minutes.
    cache = Cache(default_cache_folder(environment).with_name("bases"))
    return cache.make(f"{SUITE}-{platform.machine()}", fill, on_wait=lambda: None)


def push_bases(registry: str, *, environment: Mapping[str, str]) -> dict[str, str]:
    """Push an image for each base argument of the Dockerfile; return their names.

    The two that fetch packages trust what this machine trusts: it may be behind a proxy.
    """
    root = make_root(environment)
    go = shutil.which("go", path=environment["PATH"])
    assert go is not None, "go must be installed"
    go_root = run(go, "env", "GOROOT", environment=environment)
    names: dict[str, str] = {}
    container = run("buildah", "from", "scratch", environment=environment)
    run("buildah", "add", "--quiet", container, root, "/", environment=environment)
    run("buildah", "config", "--env", f"PATH={PATH}", container, environment=environment)
    for argument, additions in (
        ("RUNTIME_IMAGE", ()),
        ("PYTHON_IMAGE", ((AUTHORITIES, str(AUTHORITIES)),)),
        ("GO_IMAGE", ((Path(go_root), "/usr/local/go"),)),
    ):
        for source, target in additions:
            run("buildah", "add", "--quiet", container, source, target, environment=environment)
        name = f"{registry}/bases/{argument.partition('_')[0].lower()}:{SUITE}"
        run("buildah", "commit", "--quiet", container, name, environment=environment)
        run("buildah", "push", "--quiet", "--tls-verify=false", name, environment=environment)
        names[argument] = name
    run("buildah", "rm", container, environment=environment)
    return names
