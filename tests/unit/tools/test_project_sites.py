"""The addresses of the project are in project.toml alone, and what names one is made from there."""

import dataclasses
import tomllib
from pathlib import Path

import pytest
import yaml

from scripts.project_sites import (
    FILES,
    PAGES,
    ROOT,
    Sites,
    SitesError,
    find_claims,
    main,
    make_files,
    read_sites,
)
from scripts.prose import find_long_sentences, find_words
from scripts.prose_texts import read_markdown

NONE = Sites()
ALL = Sites(
    homepage="https://fipop.test",
    source="https://forge.test/fipop/fipop",
    pages="https://forge.test/fipop/fipop/blob/main",
    issues="https://forge.test/fipop/fipop/issues",
    private="https://forge.test/fipop/fipop/security/new",
    registry="registry.test/fipop",
)
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in FILES}


def made(sites: Sites) -> dict[str, str]:
    return make_files(TEXTS, sites)


def test_chart_package_and_pages_are_as_project_toml_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0, capsys.readouterr().out


def test_a_site_that_exists_reaches_the_chart() -> None:
    chart = yaml.safe_load(made(ALL)["Chart.yaml"])
    assert chart["home"] == ALL.homepage
    assert chart["sources"] == [ALL.source]
    assert chart["maintainers"] == [{"name": "The fipop authors", "url": ALL.homepage}]
    links = yaml.safe_load(chart["annotations"]["artifacthub.io/links"])
    assert {each["name"]: each["url"] for each in links} == {
        "support": ALL.issues,
        "Documentation": f"{ALL.pages}/docs/index.md",
        "Security policy": f"{ALL.pages}/SECURITY.md",
    }
    [image] = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    assert image["image"] == f"registry.test/fipop/fipop:{chart['appVersion']}"
    values = yaml.safe_load(made(ALL)["values.yaml"])
    assert values["image"]["repository"] == "registry.test/fipop/fipop"
    assert values["prometheusRule"]["runbookUrlBase"] == f"{ALL.pages}/docs/runbooks/alerts.md"


def test_a_site_that_exists_reaches_the_package() -> None:
    urls = tomllib.loads(made(ALL)["pyproject.toml"])["project"]["urls"]
    assert urls == {
        "Homepage": ALL.homepage,
        "Source": ALL.source,
        "Documentation": f"{ALL.pages}/docs/index.md",
        "Changelog": f"{ALL.pages}/CHANGELOG.md",
        "Issues": ALL.issues,
    }


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("README.md", "oci://registry.test/fipop/charts/fipop"),
        ("docs/how-to/install.md", "oci://registry.test/fipop/charts/fipop"),
        ("docs/how-to/upgrade.md", "oci://registry.test/fipop/charts/fipop"),
        ("SECURITY.md", ALL.private),
        ("CONTRIBUTING.md", ALL.source),
        ("CONTRIBUTING.md", ALL.issues),
    ],
)
def test_a_site_that_exists_reaches_the_page(file: str, wanted: str) -> None:
    assert wanted in made(ALL)[file]
    assert wanted not in made(NONE)[file]


def test_an_empty_site_is_named_nowhere() -> None:
    files = made(NONE)
    chart = yaml.safe_load(files["Chart.yaml"])
    assert {"home", "sources"} & set(chart) == set()
    assert {"artifacthub.io/links", "artifacthub.io/images"} & set(chart["annotations"]) == set()
    assert chart["maintainers"] == [{"name": "The fipop authors"}]
    assert "urls" not in tomllib.loads(files["pyproject.toml"])["project"]
    values = yaml.safe_load(files["values.yaml"])
    assert (values["image"]["repository"], values["prometheusRule"]["runbookUrlBase"]) == ("fipop", "")


def test_what_is_made_once_is_made_the_same_again_and_can_be_taken_back() -> None:
    assert make_files(made(ALL), ALL) == made(ALL)
    assert make_files(made(ALL), NONE) == made(NONE)


def test_the_chart_lists_the_kinds_that_it_installs() -> None:
    annotations = yaml.safe_load(TEXTS["Chart.yaml"])["annotations"]
    listed = yaml.safe_load(annotations["artifacthub.io/crds"])
    kinds = [yaml.safe_load(path.read_text())["spec"] for path in sorted((ROOT / "crds").iterdir())]
    assert [each["kind"] for each in listed] == [each["names"]["kind"] for each in kinds]
    assert all(each["version"] == "v1" and each["displayName"] and each["description"] for each in listed)


@pytest.mark.parametrize("sites", [NONE, ALL], ids=["none", "all"])
def test_the_texts_of_the_pages_keep_to_the_style(sites: Sites) -> None:
    files = make_files(TEXTS, sites)
    passages = [each for name in PAGES for each in read_markdown(files[name], name)]
    faults = [fault for each in passages for fault in (*find_words(each), *find_long_sentences(each))]
    assert [str(each) for each in faults] == []


@pytest.mark.parametrize(
    ("site", "value", "reason"),
    [
        ("homepage", "http://fipop.test", "must begin with https://"),
        ("source", "forge.test/fipop", "must begin with https://"),
        ("pages", "https://forge.test/fipop/", "must not end with /"),
        ("private", "security@fipop.test", "must begin with https:// or mailto:"),
        ("registry", "oci://registry.test/fipop", "must be a host and a path"),
        ("registry", "Registry.test/Fipop", "must be a host and a path"),
        ("homepage", "https://fipop.example", "is an example"),
        ("registry", "registry.example/platform", "is an example"),
        ("source", "https://git.example.com/fipop", "is an example"),
        ("home", "https://fipop.test", "is not a site"),
        ("issues", 1, "must be a text"),
    ],
)
def test_a_site_that_cannot_be_one_is_refused(site: str, value: object, reason: str) -> None:
    content = {**dataclasses.asdict(NONE), site: value}
    with pytest.raises(SitesError, match=rf"project\.toml: sites\.{site} .*{reason}"):
        read_sites({"sites": content})


def test_a_missing_site_is_refused() -> None:
    with pytest.raises(SitesError, match=r"sites\.registry is missing"):
        read_sites({"sites": {k: v for k, v in dataclasses.asdict(NONE).items() if k != "registry"}})


@pytest.mark.parametrize(
    "text",
    [
        "https://fipop.example/docs",
        "https://fipop.io",
        "https://forge.test/fipop/other",
        "oci://ghcr.test/fipop/charts/fipop",
    ],
)
def test_an_address_of_the_project_that_is_not_in_project_toml_is_found(text: str) -> None:
    assert list(find_claims(f"a\nRead {text}.\n", NONE)) == [(2, text)]


@pytest.mark.parametrize(
    "text",
    [
        "https://wiki.example/fipop",
        "oci://registry.example/platform/charts/fipop",
        "http://localhost:1/fipop",
        "oci://REGISTRY/charts/fipop",
    ],
)
def test_an_example_or_a_known_site_claims_nothing(text: str) -> None:
    assert list(find_claims(f"{text} https://forge.test/fipop/fipop/issues", ALL)) == []


def test_what_a_public_release_lacks_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    sites = read_sites(tomllib.loads((ROOT / "project.toml").read_text()))
    empty = [name for name, value in dataclasses.asdict(sites).items() if not value]
    assert main(["--complete"]) == (1 if empty else 0)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        f"sites.{name}" for name in empty
    ]


def test_a_file_that_differs_and_a_mark_that_nothing_makes_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in TEXTS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("repository: fipop", "repository: other"))
    for name in ("project.toml", "CHANGELOG.md"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    assert main([], root=tmp_path) == 1
    assert "values.yaml differs from project.toml" in capsys.readouterr().out
    assert main(["--update"], root=tmp_path) == 0
    assert (tmp_path / "values.yaml").read_text() == TEXTS["values.yaml"]
    with pytest.raises(SitesError, match="nothing makes the block other"):
        make_files(
            {**TEXTS, "README.md": "<!-- begin project: other -->\n<!-- end project: other -->\n"}, ALL
        )


@pytest.mark.parametrize("content", ["[sites", None], ids=["no TOML", "no file"])
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: str | None) -> None:
    if content:
        (tmp_path / "project.toml").write_text(content)
    with pytest.raises(SitesError, match=r"could not read project\.toml: .+"):
        main([], root=tmp_path)
