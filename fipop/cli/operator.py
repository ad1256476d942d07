"""`fipop operator`: the role that runs in the management cluster."""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import os
import tempfile
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any

import click

from fipop.api import names
from fipop.cli.go_flags import check_namespace
from fipop.cli.logs import configure_logging, set_log_level
from fipop.cli.process import build_identity, ending_on_failure, run_until_asked, take_signals
from fipop.helm.process import LocalHelm, find_helm
from fipop.interfaces import SystemClock
from fipop.kube.config import configure_from_kubeconfig, configure_in_cluster
from fipop.kube.guests import GuestServers
from fipop.kube.server import HttpServer
from fipop.operator.app import OperatorOptions, build_operator
from fipop.runtime.watching import build_settings, watch

FAILURE = "Operator failed"

GC_THRESHOLDS = (20_000, 20, 20)
"""Little of what a request leaves holds itself: to look for it as often as usual costs 4 % of the processor."""

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(name="operator", short_help="The role that runs in the management cluster.")
@click.option(
    "--kubeconfig",
    type=_FILE,
    help="Kubeconfig of the management cluster; default: the ServiceAccount of the pod.",
)
@click.option(
    "--namespace",
    default=names.OPERATOR_NAMESPACE,
    envvar="POD_NAMESPACE",
    show_default=True,
    callback=check_namespace,
    help="Namespace of kube-fip-config and of the Lease.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    default=8081,
    show_default=True,
    help="Port of /livez, /readyz and /metrics.",
)
@click.option(
    "--settings-defaults",
    type=_FOLDER,
    help="Folder with one file for each option; a missing kube-fip-config is created from it.",
)
@click.option(
    "--crds",
    type=_FOLDER,
    help="Folder with the CRDs of fipop; the operator updates those of the cluster from it.",
)
@click.option(
    "--no-crd-update",
    is_flag=True,
    help="Do not update CRDs; the operator is not ready if they are older than those of --crds.",
)
@click.option(
    "--no-leader-election",
    is_flag=True,
    help="Work without the Lease. Safe, but several replicas do the same work.",
)
@click.option(
    "--resync-seconds",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Seconds between comparisons with fresh lists, which find what watches missed.",
)
@click.option("--helm", envvar="FIPOP_HELM", help="The helm program, 3.13 or later; default: that on PATH.")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
def operator(
    *,
    kubeconfig: Path | None,
    helm: str | None,
    no_crd_update: bool,
    no_leader_election: bool,
    log_format: str,
    **others: Any,
) -> None:
    """Assign floating IPs to the guest clusters of this Rancher, and manage kube-vip in them.

    It runs until SIGTERM or ctrl-C, and waits for an API server that does not answer.
    All other options are in the ConfigMap kube-fip-config and take effect without a restart.
    """
    configure_logging(as_json=log_format == "json")
    with ending_on_failure(FAILURE):
        options = OperatorOptions(
            identity=build_identity(),
            version=importlib.metadata.version("fipop"),
            update_crds=not no_crd_update,
            leader_election=not no_leader_election,
            # In its pod a process that is started again has the same number.
            work_folder=Path(tempfile.gettempdir(), f"fipop-{os.getpid()}"),
            **others,
        )
        asyncio.run(_run(options, kubeconfig, helm))


async def _run(options: OperatorOptions, kubeconfig: Path | None, helm: str | None) -> None:
    random, guests = SystemRandom(), GuestServers()
    configuration = await configure_from_kubeconfig(kubeconfig) if kubeconfig else configure_in_cluster()

    stopping = asyncio.Event()
    operator = build_operator(
        options,
        api=lambda: HttpServer(configuration),
        guests=guests,
        watch=partial(
            watch, configuration, settings=build_settings(random), started=partial(take_signals, stopping)
        ),
        helm=LocalHelm(find_helm(helm), guests),
        clock=SystemClock(),
        random=random,
        set_log_level=set_log_level,
    )
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        await run_until_asked(operator.run(), stopping, failure=FAILURE)
    finally:
        await guests.close()
