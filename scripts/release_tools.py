"""What the commands of a release share: their error, programs that run to their end, and names of images."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from localfleet.errors import LocalFleetError, ToolFailedError
from localfleet.guard import guarded

ROOT = Path(__file__).parents[1]
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REGISTRY = re.compile(r"(?P<host>[a-z0-9.-]+|\[[0-9a-f:]+\])(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")


class ReleaseError(Exception):
    """A release cannot be made; the text has one sentence for each reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """An OCI registry, and the path in it below which the repositories are."""

    name: str
    """As host[:port][/path]."""

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine: then it is asked over plain HTTP."""
        host = self.name.partition("/")[0]
        # What is left of a port: the last colon outside of brackets.
        host = re.sub(r":\d+$", "", host).strip("[]")
        if host == "localhost":
            return True
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return False

    @property
    def tls_options(self) -> tuple[str, ...]:
        """The options for buildah and skopeo."""
        return ("--tls-verify=false",) if self.is_loopback else ()


def parse_registry(text: str) -> Registry:
    """Read the REGISTRY of a release.

    Raises: ReleaseError
    """
    name = text.removesuffix("/")
    if not _REGISTRY.fullmatch(name):
        raise ReleaseError(
            f'REGISTRY must be host[:port][/path] in lower case, without oci:// or https://; it is "{text}".'
        )
    return Registry(name=name)


def is_digest(text: str) -> bool:
    """Return whether `text` is the digest of an image: sha256: and 64 hex digits."""
    return _DIGEST.fullmatch(text) is not None


def require_programs(*names: str) -> None:
    """Raise ReleaseError if a program is not on PATH."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise ReleaseError(f"{' and '.join(missing)} must be installed; see docs/contributing/releasing.md.")


def capture(
    argv: Sequence[str], *, folder: Path = ROOT, environment: Mapping[str, str] | None = None
) -> bytes:
    """Run a program to its end and return what it wrote to stdout.

    Raises: ToolFailedError
    """
    done = subprocess.run(
        guarded(argv),
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        output = (done.stdout + done.stderr).decode(errors="replace")
        raise ToolFailedError(argv=argv, returncode=done.returncode, output=output)
    return done.stdout


def fetch_manifest(image: str, registry: Registry) -> bytes:
    """Return the manifest of `image` as its registry has it; its SHA-256 is the digest.

    Raises: ToolFailedError
    """
    return capture(("skopeo", "inspect", "--raw", *registry.tls_options, f"docker://{image}"))


def exit_code(name: str, command: Callable[[], None]) -> int:
    """Run `command`; report what cannot be done in sentences, and return the exit code."""
    try:
        command()
    except (ReleaseError, LocalFleetError) as error:
        for line in str(error).splitlines():
            print(f"{name}: {line}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
