"""From Rancher's links to a guest: in whatever order they come, and whatever is missing."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.errors import ForbiddenError, UnavailableError
from fipop.jsons import JsonView
from fipop.kube.resources import HARVESTER_CONFIGS, SECRETS, Resource
from fipop.rancher.discovery import discover_guest, retry_delay_seconds
from fipop.rancher.link_reader import LinkReader
from fipop.rancher.links import Links, NotAGuest, Waiting, choose_cluster
from fipop.rancher.matching import Guest
from fipop.rancher.objects import (
    ManagementCluster,
    ProvisioningCluster,
    parse_management_cluster,
    parse_namespace,
    parse_provisioning_cluster,
)
from tests.unit.rancher.examples import Examples, Object


class Rancher:
    """The management cluster of the examples, each part of which a test can bend or take away."""

    def __init__(self, examples: Examples) -> None:
        self.cluster = examples.cluster
        self.management: Object | None = examples.management
        self.namespace: Object | None = examples.namespace
        self.harvester: Object | None = examples.harvester
        self.machine_config = examples.machine_config
        self.credential = examples.credential
        self.objects: dict[tuple[str, str, str], Object] = {
            ("HarvesterConfig", "fleet-default", "nc-demo-pool1-x2k8v"): self.machine_config,
            ("Secret", "cattle-global-data", "cc-7zqhx"): self.credential,
        }
        self.refused: set[str] = set()
        self.asked: list[tuple[str, str, str]] = []
        self.known: Guest | None = None

    async def get(self, resource: Resource, name: str, *, namespace: str) -> JsonView | None:
        self.asked.append((resource.kind, namespace, name))
        if resource.kind in self.refused:
            raise ForbiddenError(f"get {resource.kind} {namespace}/{name}", status=403)
        return self.objects.get((resource.kind, namespace, name))

    @property
    def links(self) -> Links:
        return Links(
            cluster=parse_provisioning_cluster(self.cluster),
            management=parse_management_cluster(self.management) if self.management else None,
            namespace=parse_namespace(self.namespace) if self.namespace else None,
            find_management=self._find,
            known=self.known,
        )

    def _find(self, name: str) -> ManagementCluster | None:
        found = [
            each for each in (self.management, self.harvester) if each and each["metadata"]["name"] == name
        ]
        return parse_management_cluster(found[0]) if found else None

    async def guest(self) -> Guest:
        found = await discover_guest(LinkReader(self), self.links)
        assert isinstance(found, Guest), found
        return found

    async def waiting(self) -> Waiting:
        found = await discover_guest(LinkReader(self), self.links)
        assert isinstance(found, Waiting), found
        return found


@pytest.fixture
def rancher(examples: Examples) -> Rancher:
    return Rancher(examples)


async def test_all_links_give_a_guest_with_two_requests(rancher: Rancher) -> None:
    guest = await rancher.guest()
    assert guest == Guest(
        cluster=parse_provisioning_cluster(rancher.cluster),
        connected=True,
        deleting=False,
        harvester_cluster_name="harv1",
        networks=("default/vlan10",),
        display_name="demo",
    )
    assert (guest.id, guest.cluster_name, guest.on_harvester) == ("c-m-4xk8q2vz", "demo", True)
    assert rancher.asked == [
        (HARVESTER_CONFIGS.kind, "fleet-default", "nc-demo-pool1-x2k8v"),
        (SECRETS.kind, "cattle-global-data", "cc-7zqhx"),
    ]


async def test_a_pools_own_credential_wins_over_the_clusters(rancher: Rancher) -> None:
    rancher.cluster["spec"]["rkeConfig"]["machinePools"][1]["cloudCredentialSecretName"] = "own-secret"
    rancher.objects["Secret", "fleet-default", "own-secret"] = rancher.credential
    del rancher.objects["Secret", "cattle-global-data", "cc-7zqhx"]

    assert (await rancher.guest()).harvester_cluster_name == "harv1"


async def test_a_guest_that_is_not_on_harvester_needs_no_request(rancher: Rancher) -> None:
    for pool in rancher.cluster["spec"]["rkeConfig"]["machinePools"]:
        pool["machineConfigRef"]["kind"] = "VmwarevsphereConfig"

    guest = await rancher.guest()

    assert (guest.on_harvester, guest.harvester_cluster_name, guest.networks) == (False, None, ())
    assert rancher.asked == []


async def test_a_mirror_of_an_older_cluster_is_an_imported_guest(
    examples: Examples, rancher: Rancher
) -> None:
    rancher.cluster = examples.mirror
    rancher.management = examples.get("ManagementCluster", "", "c-k7p2d")
    rancher.namespace = {"metadata": {"name": "c-k7p2d"}}

    guest = await rancher.guest()

    assert (guest.id, guest.cluster_name, guest.cluster.is_imported) == ("c-k7p2d", "c-k7p2d", True)


async def test_an_id_of_any_form_makes_a_guest(rancher: Rancher) -> None:
    assert rancher.management is not None
    assert rancher.namespace is not None
    rancher.cluster["status"]["clusterName"] = "forced-name"
    rancher.management["metadata"]["name"] = "forced-name"
    rancher.namespace["metadata"]["name"] = "forced-name"

    assert (await rancher.guest()).id == "forced-name"


async def test_local_is_never_a_guest(rancher: Rancher) -> None:
    rancher.cluster["status"]["clusterName"] = "local"
    assert await discover_guest(LinkReader(rancher), rancher.links) == NotAGuest()

    assert rancher.management is not None
    rancher.cluster["status"]["clusterName"] = "c-m-4xk8q2vz"
    rancher.management["spec"]["internal"] = True
    assert await discover_guest(LinkReader(rancher), rancher.links) == NotAGuest()


async def test_what_is_watched_and_missing_is_waited_for_without_asking(rancher: Rancher) -> None:
    rancher.namespace = None
    waiting = await rancher.waiting()
    assert (waiting.message, waiting.needs_retry) == ("namespace c-m-4xk8q2vz does not exist", False)

    rancher.management = None
    waiting = await rancher.waiting()
    assert (waiting.message, waiting.needs_retry) == ("management Cluster c-m-4xk8q2vz does not exist", False)

    del rancher.cluster["status"]
    waiting = await rancher.waiting()
    assert "has not named" in waiting.message
    assert not waiting.needs_retry

    assert waiting.guest is None
    assert rancher.asked == []


@pytest.mark.parametrize("kind", ["HarvesterConfig", "Secret"])
async def test_what_is_only_got_and_missing_or_refused_is_asked_for_again(
    rancher: Rancher, kind: str
) -> None:
    rancher.refused = {kind}
    refused = await rancher.waiting()

    rancher.refused = set()
    rancher.objects = {key: obj for key, obj in rancher.objects.items() if key[0] != kind}
    missing = await rancher.waiting()

    assert (refused.needs_retry, missing.needs_retry) == (True, True)
    assert f"cannot read {kind} " in refused.message
    assert missing.message.startswith(f"{kind} ")


async def test_what_was_known_of_another_cluster_of_that_name_does_not_hold(rancher: Rancher) -> None:
    rancher.known = await rancher.guest()
    rancher.cluster["metadata"]["uid"] = "of-its-successor"
    rancher.objects = {}

    waiting = await rancher.waiting()
    assert "HarvesterConfig" in waiting.message
    assert not waiting.is_resolved


async def test_malformed_network_info_is_waited_for_and_not_quoted(rancher: Rancher) -> None:
    rancher.machine_config["networkInfo"] = "{hunter2"

    waiting = await rancher.waiting()

    assert waiting.needs_retry
    assert "is not JSON" in waiting.message
    assert "hunter2" not in waiting.message


@pytest.mark.parametrize("name", ["", "../secrets/x", "a/b"])
async def test_a_reference_that_no_object_can_have_makes_no_request(rancher: Rancher, name: str) -> None:
    rancher.cluster["spec"]["cloudCredentialSecretName"] = name
    waiting = await rancher.waiting()
    assert ("names no cloud credential" in waiting.message, waiting.needs_retry) == (True, False)

    rancher.cluster["spec"]["rkeConfig"]["machinePools"][1]["machineConfigRef"]["name"] = name
    waiting = await rancher.waiting()
    assert ("names no HarvesterConfig" in waiting.message, waiting.needs_retry) == (True, False)

    assert [kind for kind, _, _ in rancher.asked] == ["HarvesterConfig"]


async def test_an_external_harvester_has_no_name_and_its_guest_waits_for_nothing(rancher: Rancher) -> None:
    rancher.credential["data"] = {}

    guest = await rancher.guest()

    assert (guest.on_harvester, guest.harvester_cluster_name) == (True, None)
    assert guest.networks == ("default/vlan10",)


async def test_an_api_server_that_does_not_answer_is_an_error_and_not_a_missing_object(
    rancher: Rancher,
) -> None:
    class Away:
        async def get(self, resource: Resource, name: str, *, namespace: str) -> JsonView | None:
            raise UnavailableError(f"get {resource.kind} {namespace}/{name}")

    with pytest.raises(UnavailableError):
        await discover_guest(LinkReader(Away()), rancher.links)


def test_of_several_clusters_that_claim_a_guest_the_one_of_its_workspace_is_it(examples: Examples) -> None:
    management = parse_management_cluster(examples.management)
    real = parse_provisioning_cluster(examples.cluster)

    def like_it(year: int, **meta: Any) -> ProvisioningCluster:
        created = datetime(year, 1, 1, tzinfo=UTC)
        return replace(real, metadata=replace(real.metadata, creation_timestamp=created, **meta))

    older = like_it(2020, namespace="tenant")
    leftover = like_it(2019, name="before", deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    younger = like_it(2027, name="another")

    assert choose_cluster([older, leftover, younger, real], management) == real
    assert choose_cluster([older, leftover], management) == leftover
    assert choose_cluster([older], management) == older
    assert choose_cluster([older, real], None) == older
    assert choose_cluster([], management) is None


@pytest.mark.parametrize(
    ("age_seconds", "failures", "delay"),
    [
        (0, 0, 3),
        (599, 500, 3),
        (600, 0, 3),
        (600, 1, 6),
        (600, 3, 24),
        (600, 4, 30),
        (10**9, 10**6, 30),
        (-5, 0, 3),
    ],
)
def test_a_new_guest_is_asked_for_every_3_seconds_and_an_old_one_ever_more_rarely(
    age_seconds: float, failures: int, delay: float
) -> None:
    assert retry_delay_seconds(age_seconds, failures) == delay


@given(st.floats(allow_nan=False), st.integers())
def test_the_delay_is_always_between_3_and_30_seconds(age_seconds: float, failures: int) -> None:
    assert 3 <= retry_delay_seconds(age_seconds, failures) <= 30
