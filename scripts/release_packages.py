"""The packages of an image, from what dpkg keeps and from what `go version -m` reports: texts in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.parser import HeaderParser

_GO_VERSION = re.compile(r"^\S.*: go(?P<version>\d+\S*)", re.MULTILINE)
_GO_MODULE = re.compile(r"^\t(?:mod|dep|=>)\t(?P<path>\S+)\t(?P<version>v\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package, in the words of a package URL."""

    kind: str
    """The type of the package URL: deb, golang, …"""
    name: str
    version: str
    namespace: str | None = None
    qualifiers: Mapping[str, str] = field(default_factory=dict)


def read_go_modules(report: str) -> list[Package]:
    """Return the modules and the standard libraries in a report of `go version -m`.

    A module that another one replaces is not in the program; the report has the other one in the line below it.
    """
    lines = report.splitlines()
    kept = [
        line for line, below in zip(lines, [*lines[1:], ""], strict=True) if not below.startswith("\t=>\t")
    ]
    modules = {(each["path"], each["version"]) for each in _GO_MODULE.finditer("\n".join(kept))}
    modules |= {("stdlib", f"v{each['version']}") for each in _GO_VERSION.finditer(report)}
    found = []
    for path, version in sorted(modules):
        namespace, _, name = path.rpartition("/")
        found.append(Package(kind="golang", namespace=namespace or None, name=name, version=version))
    return found


def read_debian_packages(status: str, os_release: str) -> list[Package]:
    """Return the installed packages of dpkg's file `status`; `os_release` names the distribution."""
    system = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', os_release, re.MULTILINE))
    name = system.get("ID", "debian")
    distribution = system.get("VERSION_CODENAME") or f"{name}-{system.get('VERSION_ID', '')}"
    found = []
    for paragraph in status.strip().split("\n\n"):
        fields = HeaderParser().parsestr(paragraph)
        # Of three words, as "deinstall ok config-files", the last is what there is.
        if (fields["Status"] or "").split()[-1:] == ["installed"]:
            qualifiers = {"arch": fields["Architecture"], "distro": distribution}
            found.append(
                Package(
                    kind="deb",
                    namespace=name,
                    name=fields["Package"],
                    version=fields["Version"],
                    qualifiers=qualifiers,
                )
            )
    return found
