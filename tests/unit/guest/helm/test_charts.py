"""Which releases a guest is to have, with which values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.guest.helm.charts import (
    ChartIdentity,
    Role,
    build_values,
    digest,
    object_name_candidates,
    same_by_admin,
    wanted_releases,
    with_object_name,
)
from fipop.settings.options import DEFAULTS, parse_settings
from tests.unit.guest.conftest import CHART, wanted_release


def test_the_documented_defaults_give_both_releases_from_one_repository() -> None:
    kube_vip, provider = wanted_releases(DEFAULTS)
    assert [
        (one.name, one.namespace, str(one.source), one.source.version) for one in (kube_vip, provider)
    ] == [
        ("kube-vip", "kube-system", "https://kube-vip.io/helm-charts/kube-vip", ""),
        (
            "kube-vip-cloud-provider",
            "kube-system",
            "https://kube-vip.io/helm-charts/kube-vip-cloud-provider",
            "",
        ),
    ]
    assert kube_vip.values["env"] == {"vip_interface": "enp1s0", "prometheus_server": ":8080"}
    assert "configMapName" not in kube_vip.values
    assert provider.values["configMapName"] == "kubevip"


def test_a_reference_wins_over_the_repository_and_names_the_chart() -> None:
    settings, _ = parse_settings(
        {"kubevipChartRef": "oci://registry.example/mirror/vip", "kubevipChartVersion": "1.2.3"}, DEFAULTS
    )
    kube_vip, provider = wanted_releases(settings)
    assert (kube_vip.source.name, kube_vip.source.version, kube_vip.source.repo_url) == ("vip", "1.2.3", "")
    assert provider.source.repo_url == "https://kube-vip.io/helm-charts"


@pytest.mark.parametrize(
    ("admin", "env"),
    [
        ({"config": {"vip_interface": "eth1"}}, {"vip_interface": "eth1"}),
        ({"config": {"vip_interface": "eth1"}, "env": None}, {"vip_interface": "eth1"}),
        ({"config": {"vip_interface": "eth1"}, "env": {"vip_interface": "eth2"}}, {"vip_interface": "eth2"}),
        ({"config": {"vip_interface": ""}, "env": {"a": "b"}}, {"a": "b"}),
        (
            {"config": "x", "env": {"a": True, "b": 1, "c": 1.5, "d": None}},
            {"a": "true", "b": "1", "c": "1.5", "d": None},
        ),
        ({"env": {"lb_port": 6443, "vip_arp": False}}, {"lb_port": "6443", "vip_arp": "false"}),
    ],
)
def test_the_interface_is_copied_to_where_it_works_and_variables_are_texts(
    admin: dict[str, Any], env: dict[str, Any]
) -> None:
    assert build_values(Role.KUBE_VIP, admin)["env"] == env


@pytest.mark.parametrize("admin", [{}, {"env": ["a"]}, {"config": {"vip_interface": "eth1"}, "env": "text"}])
def test_values_that_are_no_environment_are_left_to_the_chart(admin: dict[str, Any]) -> None:
    assert build_values(Role.KUBE_VIP, admin).get("env") == admin.get("env")


def test_the_admins_own_word_stands() -> None:
    values = build_values(Role.CLOUD_PROVIDER, {"configMapName": "mine", "nameOverride": "other"})
    assert values == {"configMapName": "mine", "nameOverride": "other"}


def test_the_admins_values_are_not_changed_in_place() -> None:
    admin: dict[str, Any] = {"config": {"vip_interface": "eth1"}, "env": {"a": 1}}
    build_values(Role.KUBE_VIP, admin)
    assert admin == {"config": {"vip_interface": "eth1"}, "env": {"a": 1}}


def test_the_digest_changes_with_the_chart_and_the_values_and_with_nothing_else() -> None:
    values = {"a": 1, "b": {"c": [1, 2]}}
    plain = digest(CHART, values)
    assert len(plain) == 32
    assert digest(CHART, {"b": {"c": [1, 2]}, "a": 1}) == plain
    for other in (
        digest(CHART, values | {"a": 2}),
        digest(CHART, with_object_name(values, "x")),
        digest(ChartIdentity(name="kube-vip", version="0.11.1", content="c0ffee"), values),
        digest(ChartIdentity(name="kube-vip", version="0.11.0", content="decaf"), values),
    ):
        assert other != plain


def test_names_are_tried_from_the_releases_own_on_and_those_seen_taken_are_not() -> None:
    wanted = wanted_release()
    assert object_name_candidates(wanted, frozenset())[:3] == (
        "kube-vip",
        "kube-vip-fipop",
        "kube-vip-fipop-2",
    )
    assert object_name_candidates(wanted, frozenset({"kube-vip"}))[0] == "kube-vip-fipop"
    assert object_name_candidates(wanted_release(object_name="mine"), frozenset({"mine"})) == ("mine",)


def test_what_the_predecessor_deployed_is_the_same_but_for_what_we_add() -> None:
    wanted = build_values(Role.KUBE_VIP, {"config": {"vip_interface": "eth0"}, "env": {"port": 1}})
    deployed = {"config": {"vip_interface": "eth0"}, "env": {"port": 1}, "nameOverride": "kube-vip"}
    assert same_by_admin(Role.KUBE_VIP, deployed, wanted)
    assert not same_by_admin(Role.KUBE_VIP, deployed | {"image": {"tag": "v1"}}, wanted)
    assert same_by_admin(Role.CLOUD_PROVIDER, {"nameOverride": "x"}, build_values(Role.CLOUD_PROVIDER, {}))


@given(
    st.dictionaries(
        st.sampled_from(["config", "env", "image", "configMapName"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.sampled_from(["vip_interface", "x"]), inner, max_size=2)
            ),
            max_leaves=6,
        ),
    ),
    st.sampled_from(list(Role)),
)
def test_values_of_any_shape_are_completed_once_and_for_all(admin: dict[str, Any], role: Role) -> None:
    values = build_values(role, admin)
    assert build_values(role, values) == values
    assert same_by_admin(role, admin, values)
