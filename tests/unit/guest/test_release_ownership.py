"""Which releases of a guest are fipop's: the namespace decides, not what a release says of itself."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from fipop.guest.decisions import is_renamed
from fipop.guest.helm.charts import ChartIdentity, Role
from fipop.guest.helm.releases import (
    ReleaseDescription,
    ReleaseState,
    build_labels,
    build_states,
    parse_record,
)
from fipop.guest.release_ownership import (
    Ownership,
    ReleaseScope,
    build_scope,
    find_candidates,
    find_managed,
    is_removable,
    judge_ownership,
)
from fipop.settings.options import DEFAULTS
from tests.unit.guest.conftest import release_secret, wanted_release

CHART = ChartIdentity(name="kube-vip", version="0.11.0", content="x")
OPTIONS = replace(DEFAULTS, kubevip_namespace="networking", kubevip_release_namespaces=("vips",))
WANTED = wanted_release(namespace="networking")
REPORTED = ("former", "kube-vip")
SCOPE = build_scope(OPTIONS, frozenset({REPORTED}))
NAMESPACES = ("networking", "kube-system", "vips", "former", "tenant")
COUNTING = NAMESPACES[:-1]


def ours(role: Role = Role.KUBE_VIP) -> dict[str, str]:
    return build_labels(role, "d" * 32, CHART, object_name="kube-vip-fipop", revision=1)


def states_of(*secrets: dict[str, Any]) -> dict[tuple[str, str], ReleaseState]:
    return build_states(record for secret in secrets if (record := parse_record(secret)) is not None)


def release(name: str = "kube-vip", namespace: str = "networking", **secret: Any) -> ReleaseState:
    (state,) = states_of(release_secret(name, namespace=namespace, **secret)).values()
    return state


def told(state: ReleaseState, *, chart: str = "kube-vip", **values: Any) -> ReleaseState:
    """A release as helm tells of it."""
    description = ReleaseDescription(chart_name=chart, chart_version="0.11.0", values=values)
    return replace(state, description=description)


def scope_of(*namespaces: str) -> ReleaseScope:
    return ReleaseScope(namespaces=frozenset(namespaces))


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_our_labels_count_in_namespaces_of_the_options_and_of_the_status_and_block_in_any_other(
    namespace: str,
) -> None:
    state = release("vip", namespace, labels=ours())
    expected = Ownership.OURS if namespace in COUNTING else Ownership.FOREIGN
    assert judge_ownership(state, WANTED, SCOPE) is expected
    assert (
        judge_ownership(release("vip", namespace, labels=ours(), status="failed"), WANTED, SCOPE) is expected
    )
    gone = release("vip", namespace, labels=ours(), status="uninstalled")
    assert judge_ownership(gone, WANTED, SCOPE) is Ownership.OTHER


def test_a_release_of_the_other_role_blocks_too_where_our_labels_do_not_count() -> None:
    provider = ours(Role.CLOUD_PROVIDER)
    assert judge_ownership(release("p", "tenant", labels=provider), WANTED, SCOPE) is Ownership.FOREIGN
    assert judge_ownership(release("p", labels=provider), WANTED, SCOPE) is Ownership.OTHER
    assert judge_ownership(release("kube-vip", labels=provider), WANTED, SCOPE) is Ownership.TAKEN


MARKED, UNMARKED = {"nameOverride": "kube-vip"}, {"env": {"cp_enable": "true"}}


@pytest.mark.parametrize(
    ("namespace", "values", "expected"),
    [
        ("networking", MARKED, Ownership.ADOPTED),
        ("former", MARKED, Ownership.ADOPTED),
        ("kube-system", MARKED, Ownership.OTHER),
        ("vips", MARKED, Ownership.OTHER),
        ("tenant", MARKED, Ownership.OTHER),
        ("networking", UNMARKED, Ownership.TAKEN),
        ("networking", {"nameOverride": "control-plane"}, Ownership.TAKEN),
        ("former", UNMARKED, Ownership.OTHER),
        ("kube-system", UNMARKED, Ownership.OTHER),
        ("tenant", UNMARKED, Ownership.OTHER),
    ],
)
def test_without_labels_only_the_mark_of_kube_fip_operator_counts_and_only_where_it_installed(
    namespace: str, values: dict[str, Any], expected: Ownership
) -> None:
    state = release("kube-vip", namespace)
    assert judge_ownership(told(state, **values), WANTED, SCOPE) is expected
    asks = namespace in {"networking", "former"}
    assert judge_ownership(state, WANTED, SCOPE) is (Ownership.UNKNOWN if asks else Ownership.OTHER)


def test_a_release_without_labels_under_another_name_is_adopted_by_its_mark_or_left_alone() -> None:
    assert judge_ownership(told(release("vip"), nameOverride="vip"), WANTED, SCOPE) is Ownership.ADOPTED
    assert judge_ownership(told(release("vip"), nameOverride="kube-vip"), WANTED, SCOPE) is Ownership.OTHER
    other_chart = told(release("vip"), chart="nginx", nameOverride="vip")
    assert judge_ownership(other_chart, WANTED, SCOPE) is Ownership.OTHER
    taken = told(release(), chart="nginx", nameOverride="kube-vip")
    assert judge_ownership(taken, WANTED, SCOPE) is Ownership.TAKEN


def test_only_what_fipop_made_and_its_status_names_may_be_removed() -> None:
    by_us, without_digest = ours(), {"kubefip.k8s.binbash.org/role": "kube-vip"}
    removable = {
        (labels is by_us, key)
        for labels, key in itertools.product(
            (by_us, without_digest, {}), itertools.product(NAMESPACES, ["kube-vip", "vip"])
        )
        if is_removable(told(release(key[1], key[0], labels=labels), nameOverride=key[1]), WANTED, SCOPE)
    }
    assert removable == {(True, REPORTED)}


def test_a_release_with_our_label_is_found_under_any_name_and_the_wanted_name_first() -> None:
    states = states_of(
        release_secret("a", labels=ours()),
        release_secret("kube-vip", labels=ours()),
        release_secret("kube-vip", namespace="a-tenant", labels=ours()),
        release_secret("provider", labels=ours(Role.CLOUD_PROVIDER)),
    )
    scope = scope_of("kube-system")
    found = find_managed(states, wanted_release(), scope)
    assert found is not None
    assert found.latest.key == ("kube-system", "kube-vip")
    renamed = find_managed(states, wanted_release(name="new"), scope)
    assert renamed is not None
    assert is_renamed(renamed, wanted_release(name="new"))
    assert find_managed(states_of(release_secret()), wanted_release(), scope) is None
    forged = states_of(release_secret(namespace="a-tenant", labels=ours()))
    assert find_managed(forged, wanted_release(), scope) is None


def test_an_uninstalled_release_is_none() -> None:
    states = states_of(release_secret(status="uninstalled", labels=ours()))
    assert find_managed(states, wanted_release(), scope_of("kube-system")) is None
    gone = states_of(release_secret(status="uninstalled"))
    assert find_candidates(gone, wanted_release(), scope_of("kube-system"), ()) == ()


def test_candidates_have_the_wanted_name_or_run_the_program() -> None:
    states = states_of(
        release_secret("kube-vip", namespace="apps"),
        release_secret("kube-vip", namespace="former"),
        release_secret("kube-vip"),
        release_secret("vip"),
        release_secret("rke2-canal"),
        release_secret("labelled", labels=ours()),
    )
    scope = ReleaseScope(namespaces=frozenset({"kube-system"}), reported=frozenset({REPORTED}))
    running = [("kube-system", "vip"), ("kube-system", "labelled"), ("apps", "kube-vip")]
    found = find_candidates(states, wanted_release(), scope, running)
    assert [state.latest.key for state in found] == [
        ("kube-system", "kube-vip"),
        ("former", "kube-vip"),
        ("kube-system", "vip"),
    ]


def test_no_more_releases_are_looked_into_than_helm_can_be_asked_about() -> None:
    states = states_of(*(release_secret(f"vip-{number}") for number in range(1000)))
    assert len(find_candidates(states, wanted_release(), scope_of("kube-system"), tuple(states))) == 4
