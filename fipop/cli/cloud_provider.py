"""`fipop cloud-provider`: the role that runs in a guest, also by the names of the programs whose place it takes."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any

import click
from kubernetes.aio.client.configuration import Configuration

from fipop.api.names import parse_go_bool
from fipop.api.service import split_classes
from fipop.cli.go_flags import GoDuration, GoInt, go_flag
from fipop.cli.logs import configure_logging
from fipop.cli.process import build_identity, ending_on_failure, run_until_asked
from fipop.cloudprovider.app import build_provider, release_services
from fipop.cloudprovider.keepalived import KeepalivedOptions, Method, parse_network
from fipop.cloudprovider.options import KubevipOptions, LeaseOptions, ProviderOptions
from fipop.errors import StartError
from fipop.interfaces import SystemClock
from fipop.kube.config import configure_from_kubeconfig, configure_in_cluster
from fipop.kube.server import HttpServer
from fipop.runtime.leader_election import LeaseTimes

logger = logging.getLogger(__name__)

FAILURE = "Cloud provider failed"

KUBEVIP_MODE, KEEPALIVED_MODE = "kubevip", "keepalived"
DEBUG_VERBOSITY = 4
"""From this verbosity on, kube-vip-cloud-provider logs details for its developers."""

_PORTS = {KUBEVIP_MODE: 10258, KEEPALIVED_MODE: 10252}
_LEASES = {KUBEVIP_MODE: "kube-vip-cloud-controller", KEEPALIVED_MODE: "keepalived-cloud-provider"}
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    name="cloud-provider",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    short_help="The role in a guest cluster that serves its Services.",
)
@click.option(
    "--mode",
    type=click.Choice([KUBEVIP_MODE, KEEPALIVED_MODE]),
    default=KUBEVIP_MODE,
    show_default=True,
    help="The cloud provider that it replaces: kube-vip-cloud-provider or keepalived-cloud-provider.",
)
@click.option(
    "--kubeconfig", type=_FILE, help="Kubeconfig of the cluster; default: the ServiceAccount of the pod."
)
@click.option("--master", help="Address of the API server, instead of that in the kubeconfig.")
@go_flag("--OutSideCluster", "outside", help="Use the kubeconfig of kubectl.")
@go_flag("--leader-elect", default=True, show_default=True, help="Work only with the Lease.")
@click.option("--leader-elect-resource-name", "lease_name", help="The Lease; default: that of the mode.")
@click.option(
    "--leader-elect-resource-namespace", "lease_namespace", default="kube-system", show_default=True
)
@click.option(
    "--leader-elect-lease-duration", "lease_duration", type=GoDuration(), default="15s", show_default=True
)
@click.option(
    "--leader-elect-renew-deadline", "renew_deadline", type=GoDuration(), default="10s", show_default=True
)
@click.option(
    "--leader-elect-retry-period", "retry_period", type=GoDuration(), default="2s", show_default=True
)
@click.option("--bind-address", default=None, help="Address to listen on; default: all.")
@click.option(
    "--secure-port",
    "--port",
    "port",
    type=click.IntRange(0, 65535),
    help="Port of /healthz and /metrics (HTTP).",
)
@click.option(
    "--concurrent-service-syncs",
    "syncs",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Number of Services that are written at the same time.",
)
@go_flag(
    "--delete-stale-leases",
    default=False,
    help="Delete Leases of kube-vip for Services that are gone; needs a role that allows it.",
)
@click.option(
    "--release-services",
    is_flag=True,
    help="Take the finalizer off all Services with an address annotation, print each, and end.",
)
@click.option(
    "-v", "--v", "verbosity", type=GoInt(), default=0, help="Verbosity of the log; 4 and above means debug."
)
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@click.pass_context
def cloud_provider(
    ctx: click.Context, /, *, mode: str, verbosity: int, log_format: str, **flags: Any
) -> None:
    """Assign addresses to Services of type LoadBalancer, from the kubevip ConfigMap or for keepalived.

    It runs in the cluster of these Services, until SIGTERM or ctrl-C, and has the flags and the environment variables
    of kube-vip-cloud-provider. It ignores other flags of a cloud controller manager.
    """
    # To release Services is a command of a terminal, whatever the role logs in its pod.
    configure_logging(as_json=log_format == "json" and not flags["release_services"])
    if verbosity >= DEBUG_VERBOSITY:
        logging.getLogger("fipop").setLevel(logging.DEBUG)
    if ctx.args:
        logger.warning("Ignored flags", extra={"flags": " ".join(ctx.args)})
    with ending_on_failure(FAILURE):
        asyncio.run(_run(read_options(mode, flags, os.environ), flags))


async def _run(options: ProviderOptions, flags: Mapping[str, Any]) -> None:
    configuration = await _configure(flags)
    api, clock, random = partial(HttpServer, configuration), SystemClock(), SystemRandom()
    if flags["release_services"]:
        await release_services(options, api=api, clock=clock, random=random, show=click.echo)
        return
    provider = build_provider(options, api=api, clock=clock, random=random)
    await run_until_asked(provider.run(), failure=FAILURE)


def read_options(mode: str, flags: Mapping[str, Any], environment: Mapping[str, str]) -> ProviderOptions:
    """Build the options from the command line and the environment. Raises StartError."""
    port, lease_name = flags["port"], flags["lease_name"] or _LEASES[mode]
    lease = LeaseOptions(name=lease_name, namespace=flags["lease_namespace"])
    return ProviderOptions(
        identity=build_identity(),
        version=importlib.metadata.version("fipop"),
        lease=lease if flags["leader_elect"] else None,
        lease_times=_read_lease_times(flags),
        mode=_read_kubevip(environment) if mode == KUBEVIP_MODE else _read_keepalived(environment),
        host=flags["bind_address"],
        port=_PORTS[mode] if port is None else port,
        writes_at_once=flags["syncs"],
        delete_stale_leases=flags["delete_stale_leases"],
    )


async def _configure(flags: Mapping[str, Any]) -> Configuration:
    if flags["kubeconfig"] or flags["outside"]:
        configuration = await configure_from_kubeconfig(flags["kubeconfig"])
    else:
        configuration = configure_in_cluster()
    configuration.host = flags["master"] or configuration.host
    return configuration


def _read_lease_times(flags: Mapping[str, Any]) -> LeaseTimes:
    try:
        return LeaseTimes(
            duration_seconds=int(flags["lease_duration"]),
            renew_deadline_seconds=flags["renew_deadline"],
            renew_seconds=flags["retry_period"],
            retry_seconds=flags["retry_period"],
        )
    except ValueError as error:
        problem = "must be longer than --leader-elect-renew-deadline, and that longer than --leader-elect-retry-period"
        raise StartError(what="--leader-elect-lease-duration", problem=problem) from error


def _read_kubevip(environment: Mapping[str, str]) -> KubevipOptions:
    return KubevipOptions(
        namespace=environment.get("KUBEVIP_NAMESPACE") or "kube-system",
        config_map=environment.get("KUBEVIP_CONFIG_MAP") or "kubevip",
        classes=_read_classes(environment),
    )


def _read_keepalived(environment: Mapping[str, str]) -> KeepalivedOptions:
    cidr = environment.get("KEEPALIVED_SERVICE_CIDR", "").strip()
    method = environment.get("KEEPALIVED_DEFAULT_FORWARD_METHOD", "").strip() or Method.NAT
    try:
        network = parse_network(cidr) if cidr else None
    except ValueError as error:
        raise StartError(what="KEEPALIVED_SERVICE_CIDR", problem=f"must be a network: {error}") from error
    if method not in set(Method):
        raise StartError(
            what="KEEPALIVED_DEFAULT_FORWARD_METHOD",
            problem=f'must be one of {", ".join(Method)}: it is "{method}"',
        )
    return KeepalivedOptions(
        namespace=environment.get("KEEPALIVED_NAMESPACE") or "kube-system",
        config_map=environment.get("KEEPALIVED_CONFIG_MAP") or "vip-configmap",
        network=network,
        default_method=Method(method),
    )


def _read_classes(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the classes whose Services are served; "" stands for Services without one."""
    text = environment.get("KUBEVIP_ENABLE_LOADBALANCERCLASS") or "false"
    is_wanted = parse_go_bool(text)
    if is_wanted is None:
        problem = f'is invalid: it must be true or false, and is "{text[:64]}"'
        raise StartError(what="KUBEVIP_ENABLE_LOADBALANCERCLASS", problem=problem)
    names = environment.get("KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME", "")
    return split_classes(names) if is_wanted else frozenset({""})


def keepalived_cloud_provider() -> None:
    """Run as `keepalived-cloud-provider`."""
    cloud_provider(["--mode", KEEPALIVED_MODE, *sys.argv[1:]], prog_name="keepalived-cloud-provider")
