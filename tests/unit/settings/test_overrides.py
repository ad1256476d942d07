"""Overrides of chart values as administrators write them: what fits whom, and a sentence for what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.settings.overrides import Selector, merge_values, parse_overrides
from fipop.settings.yaml import RefusedError

SECRET = "hunter2"
GOOD = """\
- name: rack-a
  workspaces: [fleet-default]
  clusterSelector:
    matchLabels: {rack: a}
    matchExpressions:
      - {key: example.com/tier, operator: NotIn, values: [test]}
      - {key: retired, operator: DoesNotExist}
  chartVersion: 0.9.9
  values:
    env: {vip_interface: eth1}
- name: two
  clusters: [alpha, beta]
"""


def refused(text: str) -> str:
    with pytest.raises(RefusedError) as raised:
        parse_overrides(text)
    return str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "# none yet\n"])
def test_without_entries_there_are_no_overrides(text: str) -> None:
    assert parse_overrides(text).entries == ()


@pytest.mark.parametrize(
    ("workspace", "cluster", "labels", "fitting"),
    [
        ("fleet-default", "x", {"rack": "a"}, ["rack-a"]),
        ("fleet-default", "alpha", {"rack": "a"}, ["rack-a", "two"]),
        ("fleet-default", "beta", {"rack": "b"}, ["two"]),
        ("fleet-default", "x", {"rack": "a", "example.com/tier": "test"}, []),
        ("fleet-default", "x", {"rack": "a", "example.com/tier": "prod"}, ["rack-a"]),
        ("fleet-default", "x", {"rack": "a", "retired": ""}, []),
        ("fleet-other", "x", {"rack": "a"}, []),
    ],
)
def test_an_entry_fits_if_all_that_it_names_fits(
    workspace: str, cluster: str, labels: dict[str, str], fitting: list[str]
) -> None:
    entries = parse_overrides(GOOD).entries
    assert [each.name for each in entries if each.fits(workspace, cluster, labels)] == fitting


WRONG = {
    "a: 1": "must be a YAML list",
    "5": "must be a YAML list",
    "- name: a\n  values: &a [*a]": "must not have a YAML alias (line 2)",
    "- name: a\n  values: {a: " + "x" * 256 * 1024 + "}": "must have at most 65536 bytes",
    "- name: [": "must be YAML (line 2, column 1): did not find expected node content",
    "- one": "must have only valid entries: entry 1, line 1: must be a mapping",
    "- clusters: [alpha]": "must have only valid entries: entry 1, line 1: name must be set",
    "- {name: a, clusters: [one]}\n- {name: a, clusters: [two]}": (
        'must have only valid entries: entry "a", line 2: name must be unique'
    ),
    "\n- name: a": 'must have only valid entries: entry "a", line 2: must have workspaces, clusters or clusterSelector',
}
WRONG_LINES = {
    "workspaces: []": "line 5: workspaces must be a list of names, and must not be empty",
    "cluster: beta": (
        "line 5: cluster is not a known field: use name, workspaces, clusters, clusterSelector, chartVersion, "
        "chartDigest, values"
    ),
    "values: 1": "line 5: values must be a mapping",
    "values: {image: }": "line 5: values must keep the repository of the image",
    "values: {image: {repository: }}": "line 5: values must keep the repository of the image",
    "values: {image: kube-vip}": "line 5: values must keep the repository of the image",
    "chartVersion: v1": (
        "line 5: chartVersion must be a whole version such as 0.9.9, or empty for the newest"
    ),
    "chartDigest: sha256:" + "a" * 64: "line 3: must have a chartVersion beside chartDigest",
    "clusterSelector: rack": "line 5: clusterSelector must be a mapping",
    "clusterSelector:\n    matchExpressions: {rack: a}": (
        "line 6: clusterSelector.matchExpressions must be a list"
    ),
    "clusterSelector:\n    matchExpressions:\n    - rack": (
        "line 7: clusterSelector.matchExpressions.0 must be a mapping"
    ),
    "clusterSelector: {rack: a}": (
        "line 5: clusterSelector.rack is not a known field: use matchLabels, matchExpressions"
    ),
    "clusterSelector:\n    matchLabels:\n      rack: 5": (
        "line 7: clusterSelector.matchLabels.rack must be the value of a label, a text"
    ),
    "clusterSelector:\n    matchLabels:\n      a b: c": (
        "line 7: clusterSelector.matchLabels.a b must be the key of a label"
    ),
    "clusterSelector:\n    matchExpressions:\n    - {key: rack, operator: in, values: [a]}": (
        "line 7: clusterSelector.matchExpressions.0.operator must be "
        "'In', 'NotIn', 'Exists' or 'DoesNotExist'"
    ),
    "clusterSelector:\n    matchExpressions:\n    - {key: rack, operator: Exists, values: [a]}": (
        "line 7: clusterSelector.matchExpressions.0 must have values with In and NotIn, and none with Exists "
        "and DoesNotExist"
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_in_a_sentence(text: str) -> None:
    assert refused(text) == WRONG[text]


@pytest.mark.parametrize("line", WRONG_LINES)
def test_what_is_wrong_is_named_with_its_entry_and_line(line: str) -> None:
    text = f"- name: first\n  clusters: [alpha]\n- name: second\n  clusters: [beta]\n  {line}\n"
    assert refused(text) == f'must have only valid entries: entry "second", {WRONG_LINES[line]}'


@given(
    st.sampled_from(
        ["values", "clusters", "workspaces", "clusterSelector", "chartVersion", "chartDigest", "name"]
    )
)
def test_no_reason_quotes_a_value(field: str) -> None:
    text = f"- name: a\n  clusters: [alpha]\n  values: {{bgp_peers: {SECRET}}}\n- name: b\n  {field}: {{x: {SECRET}}}\n"
    assert SECRET not in refused(text)
    assert SECRET not in repr(parse_overrides(f"- name: a\n  clusters: [alpha]\n  values: {{p: {SECRET}}}\n"))


def test_an_empty_selector_selects_everything() -> None:
    assert Selector().matches({})
    assert parse_overrides("- {name: a, clusterSelector: {}}").entries[0].fits("any", "any", {})


def test_merging_changes_neither_side() -> None:
    below, above = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert merge_values(below, above) == {"a": {"b": 1, "c": 2}}
    assert (below, above) == ({"a": {"b": 1}}, {"a": {"c": 2}})
