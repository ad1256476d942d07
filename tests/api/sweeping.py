"""A guest that tests share, made empty for the next one."""

import asyncio

from localfleet.client import ApiClient, Json
from localfleet.rancher_steps import delete
from localfleet.waiting import eventually

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_HELM_MADE = (
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/api/v1/serviceaccounts",
    f"{_RBAC}/clusterroles",
    f"{_RBAC}/clusterrolebindings",
)
_SERVICES = "/api/v1/services"
TIMES = 5
_BY_OTHERS = "app.kubernetes.io/managed-by=Helm"


def is_load_balancer(service: Json) -> bool:
    """Whether it asks for an address. API servers before 1.31 cannot select Services by their type."""
    kind: str = service["spec"]["type"]
    return kind == "LoadBalancer"


async def sweep(client: ApiClient) -> None:
    """Take out of a guest what passes, helm, and Services with addresses left there."""
    found = [("/api/v1/secrets", {"labelSelector": "owner=helm"})]
    found += [(collection, {"labelSelector": _BY_OTHERS}) for collection in _HELM_MADE]
    found += [("/api/v1/configmaps", {"fieldSelector": "metadata.name=kubevip"})]
    found += [(_SERVICES, {})]

    async def delete_all(collection: str, query: dict[str, str]) -> int:
        count = 0
        for item in await client.items(collection, **query):
            if collection == _SERVICES and not is_load_balancer(item):
                continue
            namespace = item["metadata"].get("namespace")
            root, _, plural = collection.rpartition("/")
            place = f"{root}/namespaces/{namespace}/{plural}" if namespace else collection
            await delete(client, f"{place}/{item['metadata']['name']}")
            count += 1
        return count

    # A helm process that ends late may put things there once more. Another guest of this API may do so for ever.
    for _ in range(TIMES):
        if not sum(await asyncio.gather(*(delete_all(*one) for one in found))):
            break

    async def is_empty() -> bool:
        return not await client.items("/api/v1/pods")

    await eventually(is_empty, seconds=30, what="the guest to be empty")
