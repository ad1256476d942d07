"""What Rancher's controllers do for one guest, step by step, and how they take it away again."""

import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from localfleet import rancher_objects as objects
from localfleet.client import ApiClient
from localfleet.errors import ApiError
from localfleet.proxy import RancherProxy
from localfleet.rancher_objects import Manifest
from localfleet.rancher_plan import Guest, GuestKind, GuestPlan, Step

PROVISIONING = "/apis/provisioning.cattle.io/v1/namespaces/{namespace}/clusters"
MANAGEMENT = "/apis/management.cattle.io/v3/clusters"
MACHINE_CONFIGS = "/apis/rke-machine-config.cattle.io/v1/namespaces/{namespace}/harvesterconfigs"
SECRETS = "/api/v1/namespaces/{namespace}/secrets"
NAMESPACES = "/api/v1/namespaces"


class GuestSteps:
    """Takes steps for guests in one management cluster and behind one proxy."""

    def __init__(self, client: ApiClient, proxy: RancherProxy) -> None:
        """Prepare; `client` must be an administrator."""
        self._client = client
        self._proxy = proxy
        self._actions: Mapping[Step, Callable[[Guest], Awaitable[None]]] = {
            Step.HARVESTER_CONFIG: self._make_configs,
            Step.CREDENTIAL: self._make_credential,
            Step.PROVISIONING: self._make_provisioning,
            Step.MANAGEMENT: self._make_management,
            Step.NAMESPACE: self._make_namespace,
            Step.LINK: self._write_provisioning_status,
            Step.CONNECTED: self._connect,
            Step.KUBECONFIG: self._make_secret,
            Step.TOKEN: self._bind_token,
        }

    async def take(self, guest: Guest, step: Step) -> None:
        """Take one step."""
        guest.done.add(step)
        await self._actions[step](guest)
        guest.changed_at = time.monotonic()

    async def remove(self, guest: Guest) -> None:
        """Take a guest away in Rancher's order; the namespace is left to the namespace controller."""
        namespace = guest.plan.namespace
        provisioning = f"{PROVISIONING.format(namespace=namespace)}/{guest.plan.provisioning_name}"
        management = f"{MANAGEMENT}/{guest.cluster_id}"
        guest.is_connected = False
        await delete(self._client, provisioning)
        await delete(self._client, management)
        self._proxy.remove_guest(guest.cluster_id)
        self._proxy.revoke_token(guest.token)
        await _release(self._client, provisioning)
        await self.delete_secret(guest)
        for path in self._config_paths(guest.plan):
            await delete(self._client, path)
        await delete(self._client, f"{NAMESPACES}/{guest.cluster_id}")
        await _release(self._client, management)

    async def disconnect(self, guest: Guest) -> None:
        """Lose the guest's agent: the condition says so, and requests for it are 503."""
        guest.is_connected = False
        self._set_tunnel(guest)
        await self.ping(guest)
        guest.changed_at = time.monotonic()

    async def finish_boot(self, guest: Guest) -> None:
        """Have a guest's machines up: the condition says so, and its requests reach it."""
        guest.is_provisioned = True
        self._set_tunnel(guest)
        await self.ping(guest)

    async def ping(self, guest: Guest) -> None:
        """Write the `Connected` condition anew; a guest that is gone meanwhile is left alone."""
        conditions = objects.build_management_conditions(
            connected=guest.is_connected, provisioned=guest.is_provisioned, at=objects.timestamp()
        )
        try:
            await self._client.patch(
                f"{MANAGEMENT}/{guest.cluster_id}", {"status": {"conditions": conditions}}
            )
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def delete_secret(self, guest: Guest) -> None:
        """Delete the kubeconfig Secret."""
        await delete(self._client, _secret_path(guest.plan))

    async def register(self, plan: GuestPlan, management: Manifest) -> None:
        """Make what Rancher keeps of a cluster that is none of its guests."""
        path = PROVISIONING.format(namespace=plan.namespace)
        await ensure(self._client, MANAGEMENT, management)
        await ensure(self._client, path, objects.build_provisioning_cluster(plan))
        status = objects.build_provisioning_status(plan, connected=True, at=objects.timestamp())
        await self._client.patch(f"{path}/{plan.provisioning_name}/status", {"status": status})
        await ensure(self._client, NAMESPACES, objects.build_system_namespace(plan.cluster_id))

    async def _make_configs(self, guest: Guest) -> None:
        if guest.plan.kind is GuestKind.HARVESTER:
            path = MACHINE_CONFIGS.format(namespace=guest.plan.namespace)
            for config in objects.build_harvester_configs(guest.plan):
                await ensure(self._client, path, _owned(config, guest.owner))

    async def _make_credential(self, guest: Guest) -> None:
        credential = guest.plan.credential
        if credential is not None:
            path = SECRETS.format(namespace=credential.namespace)
            await ensure(self._client, path, objects.build_credential(credential))

    async def _make_provisioning(self, guest: Guest) -> None:
        path = PROVISIONING.format(namespace=guest.plan.namespace)
        made = await self._client.create(path, objects.build_provisioning_cluster(guest.plan))
        guest.owner = objects.build_owner_reference(made)
        # What was there before it is tied to it now: nobody can know the uid of an owner that does not exist.
        owned = self._config_paths(guest.plan) if Step.HARVESTER_CONFIG in guest.done else []
        owned += [_secret_path(guest.plan)] if Step.KUBECONFIG in guest.done else []
        for path in owned:
            await self._client.patch(path, {"metadata": {"ownerReferences": [guest.owner]}})

    async def _make_management(self, guest: Guest) -> None:
        await self._client.create(MANAGEMENT, objects.build_management_cluster(guest.plan))

    async def _make_namespace(self, guest: Guest) -> None:
        await ensure(self._client, NAMESPACES, objects.build_system_namespace(guest.cluster_id))

    async def _connect(self, guest: Guest) -> None:
        guest.is_connected = True
        self._set_tunnel(guest)
        await self.ping(guest)
        if Step.LINK in guest.done:
            await self._write_provisioning_status(guest)

    async def _make_secret(self, guest: Guest) -> None:
        secret = objects.build_kubeconfig_secret(
            guest.plan,
            server=self._proxy.url_of(guest.cluster_id),
            ca_pem=self._proxy.ca_pem,
            token=guest.token,
        )
        await ensure(
            self._client, SECRETS.format(namespace=guest.plan.namespace), _owned(secret, guest.owner)
        )

    async def _bind_token(self, guest: Guest) -> None:
        self._proxy.bind_token(guest.token, guest.cluster_id)

    async def _write_provisioning_status(self, guest: Guest) -> None:
        path = f"{PROVISIONING.format(namespace=guest.plan.namespace)}/{guest.plan.provisioning_name}/status"
        status = objects.build_provisioning_status(
            guest.plan, connected=guest.is_connected, at=objects.timestamp()
        )
        await self._client.patch(path, {"status": status})

    def _set_tunnel(self, guest: Guest) -> None:
        route = self._proxy.guests.get(guest.cluster_id)
        if route is not None:
            route.connected = guest.is_connected
            route.provisioned = guest.is_provisioned

    def _config_paths(self, plan: GuestPlan) -> list[str]:
        if plan.kind is not GuestKind.HARVESTER:
            return []
        collection = MACHINE_CONFIGS.format(namespace=plan.namespace)
        return [f"{collection}/{one['metadata']['name']}" for one in objects.build_harvester_configs(plan)]


async def ensure(client: ApiClient, collection: str, manifest: Manifest) -> None:
    """Create an object; one that is there already is left as it is."""
    try:
        await client.create(collection, manifest)
    except ApiError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise


async def delete(client: ApiClient, path: str) -> None:
    """Delete an object that may be gone already."""
    try:
        await client.delete(path)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


async def _release(client: ApiClient, path: str) -> None:
    """Take the finalizers from an object, which lets it go."""
    try:
        await client.patch(path, {"metadata": {"finalizers": None}})
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


def _secret_path(plan: GuestPlan) -> str:
    return f"{SECRETS.format(namespace=plan.namespace)}/{plan.kubeconfig_secret}"


def _owned(manifest: Manifest, owner: Manifest | None) -> Manifest:
    if owner is not None:
        manifest["metadata"]["ownerReferences"] = [owner]
    return manifest
