"""Write the addresses of the project, which project.toml has, into chart, package and pages, or compare them.

    python -m scripts.project_sites             one line for each file that differs; fails if there is any
    python -m scripts.project_sites --update    write the files
    python -m scripts.project_sites --complete  the same as the first, and fails while a site is empty

An address is between the lines `begin project: NAME` and `end project: NAME` of a file, which are comments, or it is
one of VALUES. While a site is empty, nothing names it: a block is empty, or describes the way without the site. Other
addresses that look like the project's own are faults.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.prose_links import PROGRAM

ROOT = Path(__file__).parents[1]
UPDATE = "python -m scripts.project_sites --update"
PAGES = (
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "docs/how-to/install.md",
    "docs/how-to/upgrade.md",
    "docs/reference/support-policy.md",
)
FILES = ("Chart.yaml", "values.yaml", "pyproject.toml", *PAGES)
"""The files that name a site."""
OWN_REGISTRY = "registry.example/platform"
"""Stands in the pages for the reader's registry while there is no public one."""
_MARK = re.compile(
    r"(?P<begin>^(?P<indent> *)(?:<!--|#) begin project: (?P<name>[\w-]+)(?: -->)?\n)"
    r"(?P<body>.*?)(?P<end>^ *(?:<!--|#) end project: (?P=name)(?: -->)?$)",
    re.MULTILINE | re.DOTALL,
)
_EXAMPLE = re.compile(r"(^|\.)(example|example\.(com|net|org)|localhost|invalid)$")
_REGISTRY = re.compile(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)+")
_ADDRESS = re.compile(r"\b(?:https?|oci)://(?P<host>[\w-]+(?:\.[\w-]+)+)[^\s\"'`<>)|\]]*")


class SitesError(Exception):
    """project.toml, or a file that names a site, is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """The addresses of the project; an empty one does not exist."""

    homepage: str = ""
    source: str = ""
    pages: str = ""
    issues: str = ""
    private: str = ""
    registry: str = ""

    def page(self, path: str) -> str:
        """Return where a file of the repository can be read, empty if nowhere."""
        return f"{self.pages}/{path}" if self.pages else ""


def read_sites(content: Mapping[str, Any]) -> Sites:
    """Return the sites of project.toml. Raises SitesError for one that cannot be an address of the project."""
    sites = content.get("sites", {})
    names = [each.name for each in dataclasses.fields(Sites)]
    for name in names:
        if name not in sites:
            raise SitesError(f"project.toml: sites.{name} is missing")
    for name, value in sites.items():
        problem = _judge(name, value) if name in names else f"is not a site: {', '.join(names)}"
        if problem:
            raise SitesError(f"project.toml: sites.{name} {problem}")
    return Sites(**sites)


def _judge(name: str, value: object) -> str:
    if not isinstance(value, str):
        return "must be a text"
    if not value:
        return ""
    if name == "registry":
        if not _REGISTRY.fullmatch(value):
            return f"must be a host and a path in small letters, not {value}"
    elif name == "private" and not value.startswith(("https://", "mailto:")):
        return f"must begin with https:// or mailto:, not {value}"
    elif name != "private" and not value.startswith("https://"):
        return f"must begin with https://, not {value}"
    if value.endswith("/"):
        return "must not end with /"
    host = re.sub(r"^(https://|mailto:[^@]*@)", "", value).partition("/")[0].partition(":")[0]
    return f"is an example: {host} does not exist" if _EXAMPLE.search(host) else ""


def make_files(texts: Mapping[str, str], sites: Sites) -> dict[str, str]:
    """Return the files with the sites in them. Raises SitesError for a block that nothing makes."""
    blocks = build_blocks(sites)
    files = {name: _replace(text, blocks) for name, text in texts.items()}
    values = files["values.yaml"]
    values = _set_value(
        values, "image", "repository", f"{sites.registry}/fipop" if sites.registry else "fipop"
    )
    runbooks = sites.page("docs/runbooks/alerts.md")
    files["values.yaml"] = _set_value(values, "prometheusRule", "runbookUrlBase", runbooks or '""')
    return files


def _replace(text: str, blocks: Mapping[str, str]) -> str:
    def replace(found: re.Match[str]) -> str:
        if found["name"] not in blocks:
            raise SitesError(f"nothing makes the block {found['name']}")
        lines = blocks[found["name"]].splitlines()
        if lines and "<!--" in found["begin"]:
            lines = ["", *lines, ""]
        body = "".join(f"{found['indent']}{line}".rstrip() + "\n" for line in lines)
        return f"{found['begin']}{body}{found['end']}"

    return _MARK.sub(replace, text)


def _set_value(text: str, section: str, key: str, value: str) -> str:
    pattern = re.compile(rf"(^{section}:\n(?:(?: .*)?\n)*?  {key}: ).*$", re.MULTILINE)
    if not pattern.search(text):
        raise SitesError(f"values.yaml has no {section}.{key}")
    return pattern.sub(lambda found: f"{found[1]}{value}", text)


def build_blocks(sites: Sites) -> dict[str, str]:
    """Return the text of each block by its name."""
    chart = _load_chart()
    registry = sites.registry or OWN_REGISTRY
    source = f"oci://{registry}/charts/{chart['name']} --version {chart['version']}"
    return {
        "urls": _build_urls(sites),
        "chart": _build_chart(sites),
        "annotations": _build_annotations(sites, chart),
        "registry": _describe_registry(sites),
        "install": _build_command("install", source, "--create-namespace"),
        "install-values": _build_command("install", source, "--create-namespace --values values.yaml"),
        "upgrade": _build_command("upgrade", source, "--values values.yaml"),
        "report": _describe_reports(sites),
        "contribute": _describe_contributions(sites),
        "releases": _describe_releases(sites),
    }


def _build_command(verb: str, source: str, options: str) -> str:
    return f"```console\n$ helm {verb} fipop {source} \\\n    --namespace kube-fip {options}\nSTATUS: deployed\n```"


def _build_urls(sites: Sites) -> str:
    urls = {
        "Homepage": sites.homepage,
        "Source": sites.source,
        "Documentation": sites.page("docs/index.md"),
        "Changelog": sites.page("CHANGELOG.md"),
        "Issues": sites.issues,
    }
    lines = [f'{name} = "{url}"' for name, url in urls.items() if url]
    return "\n".join(["[project.urls]", *lines]) if lines else ""


def _build_chart(sites: Sites) -> str:
    content: dict[str, Any] = {}
    if sites.homepage:
        content["home"] = sites.homepage
    if sites.source:
        content["sources"] = [sites.source]
    maintainers = [{"name": each["name"]} for each in _load_project()["authors"]]
    content["maintainers"] = [
        {**each, "url": sites.homepage} if sites.homepage else each for each in maintainers
    ]
    return _dump(content)


def _build_annotations(sites: Sites, chart: Mapping[str, Any]) -> str:
    """Return the annotations of Artifact Hub that the code, the CHANGELOG and the sites fill."""
    links = {
        "support": sites.issues,
        "Documentation": sites.page("docs/index.md"),
        "Security policy": sites.page("SECURITY.md"),
    }
    listed = [{"name": name, "url": url} for name, url in links.items() if url]
    image = f"{sites.registry}/fipop:{chart['appVersion']}"
    content = {
        "changes": [_read_change(str(chart["version"]))],
        "crds": [_describe_crd(path) for path in sorted((ROOT / "crds").glob("*.yaml"))],
        "crdsExamples": [
            yaml.safe_load((ROOT / "examples" / name).read_text(encoding="utf-8"))
            for name in ("range.yaml", "floatingip-dynamic.yaml")
        ],
        "links": listed,
        "images": [{"name": "fipop", "image": image}] if sites.registry else [],
    }
    return "\n".join(
        f"artifacthub.io/{name}: |\n" + "".join(f"  {line}\n" for line in _dump(value).splitlines()).rstrip()
        for name, value in content.items()
        if value
    )


def _describe_crd(path: Path) -> dict[str, str]:
    crd = yaml.safe_load(path.read_text(encoding="utf-8"))
    [version] = crd["spec"]["versions"]
    kind = crd["spec"]["names"]["kind"]
    return {
        "kind": kind,
        "version": version["name"],
        "name": crd["metadata"]["name"],
        "displayName": re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=IP)(?=R)", " ", kind),
        "description": version["schema"]["openAPIV3Schema"]["description"],
    }


def _read_change(version: str) -> str:
    """Return the first paragraph of a version's section in the CHANGELOG, in one line."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)}\b.*\n\n((?:.+\n)+)", text, re.MULTILINE)
    if not found:
        raise SitesError(f"CHANGELOG.md has no paragraph below the heading of {version}")
    return " ".join(found[1].split())


def _describe_registry(sites: Sites) -> str:
    if sites.registry:
        return f"The image and the chart are in `{sites.registry}`."
    return (
        f"There is no public registry of fipop yet. In this page, `{OWN_REGISTRY}` is your own registry, to which\n"
        "`make release` pushes the image and the chart. If you make no release, install from a checkout."
    )


def _describe_reports(sites: Sites) -> str:
    if sites.private:
        shown = sites.private.removeprefix("mailto:")
        return (
            f"Send your report to <{shown}>.\n"
            "Only the maintainers can read it. Do not open an issue or a pull request."
        )
    return (
        "There is no public address for reports yet. Send your report in private to the team that provided you with\n"
        "fipop, and do not publish it."
    )


def _describe_contributions(sites: Sites) -> str:
    if not sites.source and not sites.issues:
        return (
            "There is no public repository of fipop yet. Send reports and patches (`git format-patch`) to the team\n"
            "that provided you with fipop."
        )
    lines = []
    if sites.source:
        lines.append(f"- Changes: open a pull request at <{sites.source}>.")
    if sites.issues:
        lines.append(
            f"- Bugs, wishes and questions: open an issue at <{sites.issues}>. Search the existing ones first."
        )
    return "\n".join(lines)


def _describe_releases(sites: Sites) -> str:
    if sites.registry:
        return f"Releases are in the registry `{sites.registry}`."
    return "There is no release of fipop yet. This policy applies from the first one on."


def _dump(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=110, allow_unicode=True).rstrip()


def _load_chart() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "Chart.yaml").read_text(encoding="utf-8"))
    return found


def _load_project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def _load_sites(path: Path) -> Sites:
    try:
        return read_sites(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SitesError(f"could not read {path.name}: {error}") from error


def find_claims(text: str, sites: Sites) -> Iterator[tuple[int, str]]:
    """Return the addresses with the project's name that are neither examples nor sites, each with its line."""
    known = tuple(each for each in dataclasses.asdict(sites).values() if each)
    for number, line in enumerate(text.splitlines(), start=1):
        for found in _ADDRESS.finditer(line):
            address = found[0].rstrip(".,;:")
            is_example = _EXAMPLE.search(found["host"]) and "fipop" not in found["host"]
            is_known = address.removeprefix("oci://").startswith(known) if known else False
            if "fipop" in address and not is_example and not is_known:
                yield number, address


def find_problems(
    root: Path, sites: Sites, made: Mapping[str, str], texts: Mapping[str, str]
) -> Iterator[str]:
    """Return a line for each file that differs from project.toml or claims an address that is not there."""
    for name, text in made.items():
        if text != texts[name]:
            yield f"{name} differs from project.toml; run: {UPDATE}"
    patterns = (*PROGRAM, *FILES, "*.md", "docs/**/*.md")
    for path in sorted({path for pattern in patterns for path in root.glob(pattern) if path.is_file()}):
        if path.suffix not in {".png", ".ico"}:
            for number, address in find_claims(path.read_text(encoding="utf-8"), sites):
                name = path.relative_to(root).as_posix()
                yield f"{name}:{number}: {address} is not an address of project.toml"


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Compare or write the files. Return the exit code."""
    parser = argparse.ArgumentParser(description="Hold the addresses of the project to project.toml.")
    parser.add_argument("--update", action="store_true", help="write the files that name a site")
    parser.add_argument("--complete", action="store_true", help="fail while a site is empty")
    wish = parser.parse_args(arguments)
    sites = _load_sites(root / "project.toml")
    texts = {name: (root / name).read_text(encoding="utf-8") for name in FILES}
    made = make_files(texts, sites)
    if wish.update:
        for name, text in made.items():
            if text != texts[name]:
                (root / name).write_text(text, encoding="utf-8")
                print(f"wrote {name}")
        texts = made
    problems = list(find_problems(root, sites, made, texts))
    if wish.complete:
        problems += [
            f"project.toml: sites.{name} is empty"
            for name, value in dataclasses.asdict(sites).items()
            if not value
        ]
    for each in problems:
        print(each)
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SitesError as error:
        sys.exit(f"Error: {error}")
