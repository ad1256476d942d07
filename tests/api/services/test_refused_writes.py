"""A Service whose write a ValidatingAdmissionPolicy refuses: its condition and a Warning name the policy."""

from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest
import pytest_asyncio

from localfleet.errors import ApiError
from localfleet.waiting import eventually
from tests.api.services.shop import A, Shop

pytestmark = pytest.mark.xdist_group("management")

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
WORDS = "Addresses are pinned."
RETRIED_SECONDS = 90.0
"""The waits between two attempts double, from half a second on."""


@pytest_asyncio.fixture
async def policy(shop: Shop) -> AsyncIterator[str]:
    """A policy at work in the namespace, which lets no Service have an address; its name."""
    name = f"pinned-{shop.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["services"]}
    expression = f"!has(object.metadata.annotations) || !('{A}' in object.metadata.annotations)"
    bodies = {
        "validatingadmissionpolicies": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": WORDS}],
        },
        "validatingadmissionpolicybindings": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": shop.namespace}}
            },
        },
    }
    for plural, spec in bodies.items():
        await shop.client.create(f"{ADMISSION}/{plural}", {"metadata": {"name": name}, "spec": spec})
    await shop.open("probe", type="ClusterIP")

    async def is_at_work() -> bool:
        try:
            await shop.client.patch(
                f"{shop.path('probe')}?dryRun=All", {"metadata": {"annotations": {A: "192.0.2.1"}}}
            )
        except ApiError as error:
            return error.status == HTTPStatus.UNPROCESSABLE_ENTITY
        return False

    await eventually(is_at_work, seconds=30, what="the admission policy")
    yield name
    for plural in reversed(bodies):
        if await shop.client.find(f"{ADMISSION}/{plural}/{name}") is not None:
            await shop.client.delete(f"{ADMISSION}/{plural}/{name}")


async def test_a_service_that_a_policy_refuses_to_have_written_names_the_policy_until_it_is_served(
    shop: Shop, policy: str
) -> None:
    await shop.offer(9)
    await shop.open("web")
    cause = (
        f"fipop could not replace Service {shop.namespace}/web: 422 Invalid by ValidatingAdmissionPolicy {policy}. "
        "Exempt fipop from it."
    )
    assert await shop.waits("web", "WriteRefused") == cause
    assert await shop.warned("SyncLoadBalancerFailed", cause) == cause
    await shop.client.delete(f"{ADMISSION}/validatingadmissionpolicybindings/{policy}")
    await shop.has("web", f"{shop.net}.1", seconds=RETRIED_SECONDS)
