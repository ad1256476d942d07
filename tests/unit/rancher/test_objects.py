"""What is read of Rancher's objects."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.rancher.credentials import parse_credential
from fipop.rancher.objects import (
    ObjectRef,
    credential_ref,
    object_ref,
    parse_harvester_networks,
    parse_management_cluster,
    parse_namespace,
    parse_provisioning_cluster,
)
from tests.unit.rancher.examples import Examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


def replaced(obj: Any, path: tuple[str | int, ...], value: object) -> Any:
    """Give the object with the value at the path; it must be there."""
    if not path:
        return value
    return {
        **obj,
        path[0]: replaced(obj[path[0]], path[1:], value),
    } if isinstance(obj, dict) else [
        replaced(item, path[1:], value) if index == path[0] else item for index, item in enumerate(obj)
    ]  # fmt: skip


def paths(obj: Any) -> list[tuple[str | int, ...]]:
    """Give the path of every part of an object."""
    parts = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
    return [(), *((key, *rest) for key, item in parts for rest in paths(item))]


class TestProvisioningCluster:
    def test_what_decides_something_is_read(self, examples: Examples) -> None:
        cluster = parse_provisioning_cluster(examples.cluster)

        assert (cluster.namespace, cluster.name, cluster.cluster_name) == (
            "fleet-default",
            "demo",
            "c-m-4xk8q2vz",
        )
        assert cluster.uid == "00000000-0000-0000-0000-000000000001"
        assert cluster.resource_version == 4711
        assert cluster.created == datetime(2026, 8, 20, 8, tzinfo=UTC)
        assert cluster.credential == "cattle-global-data:cc-7zqhx"
        assert cluster.labels == {"kube-vip": "true", "environment": "test"}
        assert cluster.opted_in
        assert cluster.wants_floating_ip
        assert not cluster.paused
        assert not cluster.is_deleting
        assert not cluster.is_imported

    def test_the_control_plane_pool_speaks_for_the_guest_wherever_it_stands(self, examples: Examples) -> None:
        pool = parse_provisioning_cluster(examples.cluster).harvester_pool

        assert pool is not None
        assert pool.config_name == "nc-demo-pool1-x2k8v"

    def test_without_a_control_plane_pool_on_harvester_the_first_one_there_speaks(
        self, examples: Examples
    ) -> None:
        obj = examples.cluster
        obj["spec"]["rkeConfig"]["machinePools"][1]["machineConfigRef"]["kind"] = "VmwarevsphereConfig"

        pool = parse_provisioning_cluster(obj).harvester_pool

        assert pool is not None
        assert pool.config_name == "nc-demo-workers-k9d2m"

    def test_a_mirror_of_an_older_cluster_is_imported_and_has_no_pool(self, examples: Examples) -> None:
        cluster = parse_provisioning_cluster(examples.mirror)

        assert cluster.is_imported
        assert cluster.harvester_pool is None
        assert not cluster.opted_in

    def test_a_custom_cluster_without_machine_pools_is_not_imported(self, examples: Examples) -> None:
        obj = examples.cluster
        obj["spec"]["rkeConfig"] = {}

        cluster = parse_provisioning_cluster(obj)

        assert not cluster.is_imported
        assert cluster.harvester_pool is None

    def test_machines_that_rancher_did_not_make_live_on_without_it(self, examples: Examples) -> None:
        custom = examples.cluster
        custom["spec"]["rkeConfig"]["machinePools"] = []

        assert not parse_provisioning_cluster(examples.cluster).lives_on
        assert parse_provisioning_cluster(examples.mirror).lives_on
        assert parse_provisioning_cluster(custom).lives_on

    @pytest.mark.parametrize(
        ("text", "opted_in"), [("1", True), ("TRUE", True), ("f", False), ("yes", False), ("", False)]
    )
    def test_the_label_is_a_go_boolean(self, examples: Examples, text: str, opted_in: bool) -> None:
        obj = examples.cluster
        obj["metadata"]["labels"]["kube-vip"] = text

        assert parse_provisioning_cluster(obj).opted_in is opted_in

    def test_annotations_pause_a_guest_and_keep_a_floating_ip_away(self, examples: Examples) -> None:
        obj = examples.cluster
        obj["metadata"]["annotations"] = {
            "kubefip.k8s.binbash.org/paused": "true",
            "kubefip.k8s.binbash.org/floating-ip": "false",
        }

        cluster = parse_provisioning_cluster(obj)

        assert cluster.paused
        assert not cluster.wants_floating_ip

    def test_what_rancher_refreshes_changes_nothing(self, examples: Examples) -> None:
        before = examples.cluster
        after = examples.cluster
        after["metadata"]["resourceVersion"] = "4999"
        after["metadata"]["managedFields"] = [{"manager": "rancher"}]
        after["metadata"]["annotations"]["field.cattle.io/seen"] = "now"
        after["status"]["conditions"][1]["lastUpdateTime"] = "2026-08-20T09:00:00Z"
        after["status"]["ready"] = False

        assert parse_provisioning_cluster(after) == parse_provisioning_cluster(before)

    def test_a_deletion_is_a_change(self, examples: Examples) -> None:
        obj = examples.cluster
        obj["metadata"]["deletionTimestamp"] = "2026-08-21T08:00:00Z"

        assert parse_provisioning_cluster(obj) != parse_provisioning_cluster(examples.cluster)
        assert parse_provisioning_cluster(obj).is_deleting


class TestManagementCluster:
    def test_what_decides_something_is_read(self, examples: Examples) -> None:
        cluster = parse_management_cluster(examples.management)

        assert (cluster.name, cluster.display_name, cluster.workspace) == (
            "c-m-4xk8q2vz",
            "demo",
            "fleet-default",
        )
        assert cluster.provider == "rke2"
        assert cluster.connected
        assert not cluster.is_harvester
        assert not cluster.is_internal
        assert not cluster.is_deleting

    def test_the_refresh_of_connected_every_15_seconds_changes_nothing(self, examples: Examples) -> None:
        after = examples.management
        after["metadata"]["resourceVersion"] = "5000"
        after["metadata"]["generation"] = 17
        after["status"]["conditions"][1]["lastUpdateTime"] = "2026-08-20T08:05:15Z"

        assert parse_management_cluster(after) == parse_management_cluster(examples.management)

    @pytest.mark.parametrize("status", ["False", "Unknown", True, None])
    def test_only_connected_true_is_connected(self, examples: Examples, status: object) -> None:
        obj = examples.management
        obj["status"]["conditions"][1]["status"] = status

        assert not parse_management_cluster(obj).connected

    def test_harvester_is_known_by_its_status_or_its_label(self, examples: Examples) -> None:
        by_status, by_label = examples.harvester, examples.harvester
        del by_status["metadata"]["labels"]
        del by_label["status"]["provider"]

        assert parse_management_cluster(by_status).is_harvester
        assert parse_management_cluster(by_label).is_harvester

    def test_the_local_cluster_is_known_by_its_name_or_its_spec(self, examples: Examples) -> None:
        by_name, by_spec = examples.management, examples.management
        by_name["metadata"]["name"] = "local"
        by_spec["spec"]["internal"] = True

        assert parse_management_cluster(by_name).is_internal
        assert parse_management_cluster(by_spec).is_internal


def test_a_namespace_is_terminating_by_its_time_of_deletion_or_its_phase(examples: Examples) -> None:
    by_time, by_phase = examples.namespace, examples.namespace
    by_time["metadata"]["deletionTimestamp"] = "2026-08-21T08:00:00Z"
    by_phase["status"]["phase"] = "Terminating"

    assert not parse_namespace(examples.namespace).terminating
    assert parse_namespace(by_time).terminating
    assert parse_namespace(by_phase).terminating


class TestHarvesterNetworks:
    @pytest.mark.parametrize(
        ("fields", "networks"),
        [
            (
                {"networkInfo": '{"interfaces":[{"networkName":"default/vlan10","macAddress":""}]}'},
                ("default/vlan10",),
            ),
            ({"networkInfo": '{"interfaces":[{"networkName":"vlan10"}]}'}, ("vlan10",)),
            (
                {
                    "networkInfo": '{"interfaces":[{"networkName":"a/x"},{"networkName":"b/y"},{"networkName":"a/x"}]}'
                },
                ("a/x", "b/y"),
            ),
            ({"networkInfo": '{"interfaces":[]}', "networkName": ""}, ()),
            ({"networkInfo": '{"interfaces":null}'}, ()),
            ({"networkInfo": "{}"}, ()),
            ({"networkInfo": '{"interfaces":[{"networkName":""},7,{"networkName":3}]}'}, ()),
            ({"networkInfo": "", "networkName": "default/vlan10"}, ("default/vlan10",)),
            ({"networkName": "vlan10"}, ("vlan10",)),
            ({"networkInfo": '{"interfaces":[{"networkName":"new"}]}', "networkName": "old"}, ("new",)),
            ({"networkName": ""}, ()),
            ({"networkName": 7, "networkInfo": 7}, ()),
            ({}, ()),
        ],
    )
    def test_every_way_to_write_them_is_read(
        self, fields: dict[str, object], networks: tuple[str, ...]
    ) -> None:
        assert parse_harvester_networks(fields) == networks

    @pytest.mark.parametrize(
        "text",
        ["{", "[]", "null", '{"interfaces":{}}', '{"interfaces":"x"}', "[" * 50_000, "x" * 70_000, "\ud800"],
    )
    def test_what_cannot_be_read_is_told_without_quoting_it(self, text: str) -> None:
        problem = parse_harvester_networks({"networkInfo": text})

        assert isinstance(problem, str)
        assert len(problem) < 50

    @given(st.text(max_size=200) | JSON.map(json.dumps))
    def test_garbage_is_networks_or_a_problem(self, text: str) -> None:
        networks = parse_harvester_networks({"networkInfo": text})

        assert isinstance(networks, str) or all(isinstance(name, str) and name for name in networks)


@pytest.mark.parametrize(
    ("credential", "ref"),
    [
        ("cattle-global-data:cc-7zqhx", ObjectRef(namespace="cattle-global-data", name="cc-7zqhx")),
        ("my-secret", ObjectRef(namespace="fleet-default", name="my-secret")),
        ("other:cc-7zqhx", None),
        ("cattle-global-data:", None),
        ("cattle-global-data:a:b", None),
        ("cattle-global-data:../../kube-system/secrets/x", None),
        ("a/b", None),
        ("", None),
    ],
)
def test_a_credential_is_in_the_shared_namespace_or_beside_the_cluster(
    credential: str, ref: ObjectRef | None
) -> None:
    assert credential_ref(credential, "fleet-default") == ref


def test_a_name_that_no_object_can_have_is_no_reference() -> None:
    assert object_ref("fleet-default", "nc-demo") == ObjectRef(namespace="fleet-default", name="nc-demo")
    for name in ("", "..", "a/b", "A", "a%2f", "x" * 254):
        assert object_ref("fleet-default", name) is None


@given(st.data(), JSON)
def test_a_part_of_another_type_never_fails_a_projection(data: st.DataObject, value: object) -> None:
    examples = Examples()
    for obj, parse in (
        (examples.cluster, parse_provisioning_cluster),
        (examples.management, parse_management_cluster),
        (examples.namespace, parse_namespace),
        (examples.machine_config, parse_harvester_networks),
        (examples.credential, parse_credential),
    ):
        # The API server checks the metadata of every kind.
        path = data.draw(st.sampled_from([each for each in paths(obj)[1:] if each[0] != "metadata"]))
        assert parse(replaced(obj, path, value)) == parse(replaced(obj, path, value))
