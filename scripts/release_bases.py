"""The base images of a release: bases.toml has the digest of each, as its registry had it.

    python -m scripts.release_bases [--file bases.toml]

resolves each image at its registry and writes the digests. If an image cannot be resolved, the file stays as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localfleet.errors import ToolFailedError, last_lines
from scripts.release_tools import (
    ROOT,
    Registry,
    ReleaseError,
    exit_code,
    fetch_manifest,
    is_digest,
    require_programs,
)

FILE = ROOT / "bases.toml"
UPDATE = "make update-bases"
ARGUMENTS = ("GO_IMAGE", "PYTHON_IMAGE", "RUNTIME_IMAGE")
"""The build arguments of the Dockerfile that name base images."""
_IMAGE = re.compile(r"(?P<repository>[a-z0-9.-]+(?::\d+)?/[a-z0-9./_-]+):(?P<tag>[\w.-]+)", re.ASCII)
_COMMENT = f"""\
# The base images of a release, by the build argument of the Dockerfile. `{UPDATE}` resolves each `image` at its
# registry and writes the digest that it has there. Do not write a digest by hand: `make release` builds with these.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """One base image."""

    argument: str
    """The build argument that names it."""
    image: str
    """Its name with registry and tag, as registry.example/library/python:3.11."""
    digest: str
    """As its registry had it; empty if it was never resolved."""

    @property
    def repository(self) -> str:
        """The name without the tag."""
        return self.image.rpartition(":")[0]

    @property
    def registry(self) -> Registry:
        """Where it is pulled from."""
        return Registry(name=self.image.partition("/")[0])

    @property
    def pinned(self) -> str:
        """The name by digest alone: not every builder takes a name with tag and digest."""
        return f"{self.repository}@{self.digest}"


def parse_bases(text: str, *, name: str = FILE.name) -> tuple[Base, ...]:
    """Read the file of base images; `name` is for messages.

    Raises: ReleaseError
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ReleaseError(f"{name} is not TOML: {error}.") from error
    if set(tables) != set(ARGUMENTS):
        raise ReleaseError(f"{name} must have the tables {', '.join(ARGUMENTS)}, and no others.")
    return tuple(_read_base(argument, tables[argument], name) for argument in ARGUMENTS)


def _read_base(argument: str, table: object, name: str) -> Base:
    entries = table if isinstance(table, dict) else {}
    image, digest = entries.get("image"), entries.get("digest", "")
    if not (isinstance(image, str) and _IMAGE.fullmatch(image)):
        raise ReleaseError(f"{name}: {argument}.image must be a name with registry and tag, it is {image!r}.")
    if not (isinstance(digest, str) and (digest == "" or is_digest(digest))):
        raise ReleaseError(f"{name}: {argument}.digest must be sha256: and 64 hex digits, it is {digest!r}.")
    return Base(argument=argument, image=image, digest=digest)


def render_bases(bases: Iterable[Base]) -> str:
    """Return the text of the file of base images."""
    tables = (f'\n[{each.argument}]\nimage = "{each.image}"\ndigest = "{each.digest}"\n' for each in bases)
    return _COMMENT + "".join(tables)


def find_unresolved(bases: Iterable[Base]) -> list[str]:
    """Return a sentence for each base image without a digest."""
    return [
        f"The base image {each.argument} ({each.image}) has no digest: run `{UPDATE}`, and commit bases.toml."
        for each in bases
        if not each.digest
    ]


def read_bases(file: Path) -> tuple[Base, ...]:
    """Read the file of base images.

    Raises: ReleaseError
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReleaseError(f"Could not read {file}: {error}.") from error
    return parse_bases(text, name=file.name)


def resolve(base: Base) -> Base:
    """Return the base image with the digest that its registry has for its tag.

    Raises: ReleaseError
    """
    try:
        manifest = fetch_manifest(base.image, base.registry)
    except ToolFailedError as error:
        raise ReleaseError(
            f"Could not resolve {base.argument} ({base.image}): {last_lines(error.output).splitlines()[-1]}"
        ) from error
    # Of a manifest for several platforms, this is the digest of the list: the builder chooses its own platform.
    return replace(base, digest=f"sha256:{hashlib.sha256(manifest).hexdigest()}")


def update(file: Path) -> None:
    """Resolve all base images of the file and write it.

    Raises: ReleaseError
    """
    bases = read_bases(file)
    require_programs("skopeo")
    resolved = tuple(resolve(each) for each in bases)
    file.write_text(render_bases(resolved), encoding="utf-8")
    for before, now in zip(bases, resolved, strict=True):
        change = "unchanged" if before == now else f"was {before.digest or 'not resolved'}"
        print(f"{now.argument}: {now.image} is {now.digest} ({change})")


def main(arguments: Sequence[str]) -> int:
    """Update the file; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.release_bases", description="Resolve the digests of the base images."
    )
    parser.add_argument("--file", type=Path, default=FILE, help="the file of base images (%(default)s)")
    chosen = parser.parse_args(arguments)
    return exit_code("update-bases", lambda: update(chosen.file))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
