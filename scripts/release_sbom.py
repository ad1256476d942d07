"""The bill of materials of an image, in CycloneDX: what its file system holds of Python, Go and Debian.

    python -m scripts.release_sbom --root FOLDER --go GO --name NAME --version VERSION --digest DIGEST --epoch TIME FILE

It runs in the environment of requirements-sbom.txt, which has cyclonedx-bom. Nothing of the image is executed.
"""

from __future__ import annotations

import argparse
import configparser
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from scripts.release_packages import Package, read_debian_packages, read_go_modules

Component = dict[str, Any]
_SUBJECT = "image"
"""The name by which the bill refers to the image."""


class SbomError(Exception):
    """The bill would not name everything; the text says what is missing."""


def build_component(package: Package, *, kind: str = "library") -> Component:
    """Return the component of a package."""
    purl = PackageURL(
        package.kind, package.namespace, package.name, package.version, dict(package.qualifiers)
    )
    # The path of a Go module is its name.
    path = package.namespace if package.kind == "golang" else None
    name = f"{path}/{package.name}" if path else package.name
    text = purl.to_string()
    return {"type": kind, "bom-ref": text, "name": name, "version": package.version, "purl": text}


def find_python_folders(root: Path) -> list[Path]:
    """Return the folders of an image that have installed Python distributions."""
    found = {path.parent for kind in ("dist-info", "egg-info") for path in root.rglob(f"*.{kind}")}
    return sorted(found)


def read_python(root: Path, *, epoch: int) -> dict[str, Any]:
    """Return the bill of the Python distributions in an image, as cyclonedx-bom writes it."""
    folders = find_python_folders(root)
    with tempfile.TemporaryDirectory() as folder:
        # cyclonedx-py asks an interpreter where distributions are. The one of the image would run on this machine's
        # libraries, so this one answers for it.
        interpreter = Path(folder, "python")
        paths = Path(folder, "paths.json")
        paths.write_text(json.dumps([str(each) for each in folders]), encoding="utf-8")
        interpreter.write_text(f'#!/bin/sh\nexec cat "{paths}"\n', encoding="utf-8")
        interpreter.chmod(0o755)
        text = _run(
            *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--sv", "1.6"),
            str(interpreter),
            epoch=epoch,
        )
    bill: dict[str, Any] = json.loads(text)
    return bill


def read_interpreters(root: Path) -> Iterator[Component]:
    """Return the Pythons on which the virtual environments of an image are based: no list of packages names them."""
    for file in root.glob("opt/*/pyvenv.cfg"):
        text = f"[venv]\n{file.read_text(encoding='utf-8')}"
        settings = configparser.ConfigParser(interpolation=None)
        settings.read_string(text)
        python = Package(kind="generic", name="python", version=settings["venv"]["version"])
        yield build_component(python, kind="platform")


def read_system(root: Path) -> list[Component]:
    """Return the Debian packages of an image.

    Raises: SbomError
    """
    status, system = root / "var/lib/dpkg/status", root / "usr/lib/os-release"
    if not (status.is_file() and system.is_file()):
        raise SbomError(
            "RUNTIME_IMAGE must be of Debian: the image has no var/lib/dpkg/status to read packages of."
        )
    packages = read_debian_packages(status.read_text(encoding="utf-8"), system.read_text(encoding="utf-8"))
    return [build_component(each) for each in packages]


def merge(bill: dict[str, Any], subject: Component, components: Iterable[Component]) -> dict[str, Any]:
    """Return the bill of Python with `components` added, as the bill of `subject`."""
    named: dict[str, Component] = {}
    for each in [*bill.get("components", ()), *components]:
        named.setdefault(each["bom-ref"], each)
    ordered = [named[ref] for ref in sorted(named)]
    dependencies = [each for each in bill.get("dependencies", ()) if each["ref"] in named]
    return {
        **bill,
        "serialNumber": uuid5(NAMESPACE_URL, subject["purl"]).urn,
        "metadata": {**bill.get("metadata", {}), "component": subject},
        "components": ordered,
        "dependencies": [
            {"ref": _SUBJECT, "dependsOn": [each["bom-ref"] for each in ordered]},
            *dependencies,
        ],
    }


def build_subject(name: str, version: str, digest: str) -> Component:
    """Return the component of the image; `name` has its registry."""
    short = name.rpartition("/")[2]
    purl = PackageURL("oci", None, short, digest, {"repository_url": name}).to_string()
    return {"type": "container", "bom-ref": _SUBJECT, "name": short, "version": version, "purl": purl}


def _run(*argv: str, epoch: int | None = None) -> str:
    environment = os.environ if epoch is None else {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SbomError(f"{' '.join(argv[:4])} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def build(chosen: argparse.Namespace) -> str:
    """Return the bill as text.

    Raises: SbomError
    """
    root: Path = chosen.root
    components = [
        *read_system(root),
        *read_interpreters(root),
        *(build_component(each) for each in read_go_modules(_run(chosen.go, "version", "-m", str(root)))),
    ]
    subject = build_subject(chosen.name, chosen.version, chosen.digest)
    bill = merge(read_python(root, epoch=chosen.epoch), subject, components)
    text = json.dumps(bill, indent=2, ensure_ascii=False) + "\n"
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault is not None:
        raise SbomError(f"the bill is not valid: {fault}")
    return text


def main(arguments: Sequence[str]) -> int:
    """Write the bill; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.release_sbom", description="Write an image's SBOM."
    )
    parser.add_argument("file", type=Path, help="where the bill is written to")
    parser.add_argument("--root", type=Path, required=True, help="the file system of the image")
    parser.add_argument("--go", required=True, help="the program go")
    parser.add_argument("--name", required=True, help="the image, with its registry, without a tag")
    parser.add_argument("--version", required=True)
    parser.add_argument("--digest", required=True, help="of the image")
    parser.add_argument("--epoch", type=int, required=True, help="the time of the release, in seconds")
    chosen = parser.parse_args(arguments)
    try:
        text = build(chosen)
    except SbomError as error:
        print(error, file=sys.stderr)
        return 1
    chosen.file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
