"""`fipop operator`: the role that runs in the management cluster."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import signal
import socket
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import click

from fipop.api import names
from fipop.cli.logs import configure_logging, set_log_level
from fipop.control.leadership import LeaderWorkStuckError
from fipop.deadlines import STOP_SECONDS
from fipop.errors import FipopError
from fipop.kube.client import connection_from_kubeconfig, connection_in_cluster
from fipop.operator.app import Operator
from fipop.operator.options import OperatorOptions
from fipop.settings.values import SettingsError, parse_namespace

logger = logging.getLogger(__name__)

LOOKUP_THREADS = 64

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _check_namespace(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        return parse_namespace(value)
    except SettingsError as error:
        raise click.BadParameter(str(error)) from error


@click.command(name="operator", short_help="The role that runs in the management cluster.")
@click.option(
    "--kubeconfig", type=_FILE, help="Kubeconfig of the management cluster; default: the pod's own access."
)
@click.option(
    "--namespace",
    default=names.OPERATOR_NAMESPACE,
    envvar="POD_NAMESPACE",
    show_default=True,
    callback=_check_namespace,
    help="Namespace of kube-fip-config and of the Lease.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    default=8081,
    show_default=True,
    help="Port of /livez and /readyz.",
)
@click.option(
    "--settings-defaults",
    type=_FOLDER,
    help="Folder with one file for each option: what a missing kube-fip-config is made from.",
)
@click.option(
    "--crds",
    type=_FOLDER,
    help="Folder with fipop's CRDs; those of the cluster are brought up to date from it.",
)
@click.option(
    "--no-crd-update",
    is_flag=True,
    help="Leave the cluster's CRDs alone; not ready on older ones than those of --crds.",
)
@click.option(
    "--no-leader-election",
    is_flag=True,
    help="Work without the Lease. Safe, but two operators do everything twice.",
)
@click.option(
    "--allow-loopback-guests",
    is_flag=True,
    help="Allow kubeconfigs of guests that point at this machine, as a local fleet's do.",
)
@click.option(
    "--resync-seconds",
    type=click.FloatRange(min=1.0),
    default=300.0,
    show_default=True,
    help="How often everything is compared with fresh lists: what watches missed is found then.",
)
@click.option("--helm", envvar="FIPOP_HELM", help="The helm program; default: the one on PATH.")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
def operator(
    *,
    kubeconfig: Path | None,
    namespace: str,
    health_port: int,
    settings_defaults: Path | None,
    crds: Path | None,
    no_crd_update: bool,
    no_leader_election: bool,
    allow_loopback_guests: bool,
    resync_seconds: float,
    helm: str | None,
    log_format: str,
) -> None:
    """Give the guest clusters of this Rancher floating IPs, and keep kube-vip in them.

    It runs until it is asked to end (SIGTERM, ctrl-C), and waits for an API server that is away.
    Everything else is set, live, in the ConfigMap kube-fip-config.
    """
    configure_logging(as_json=log_format == "json")
    try:
        connection = connection_from_kubeconfig(kubeconfig) if kubeconfig else connection_in_cluster()
        options = OperatorOptions(
            connection=connection,
            # A pod that is restarted is another process: it must not believe the Lease of the former one its own.
            identity=f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}",
            version=importlib.metadata.version("fipop"),
            namespace=namespace,
            health_port=health_port,
            settings_defaults=settings_defaults,
            crds=crds,
            update_crds=not no_crd_update,
            leader_election=not no_leader_election,
            allow_loopback_guests=allow_loopback_guests,
            resync_seconds=resync_seconds,
            helm=helm,
        )
        asyncio.run(_run(options))
    except (FipopError, OSError) as error:
        logger.critical("the operator ends", extra={"error": str(error)})
        sys.exit(1)


async def _run(options: OperatorOptions) -> None:
    """Run until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    # Names are resolved here. A lookup that hangs cannot be cancelled: a few are not to keep the rest from theirs.
    loop.set_default_executor(ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="fipop"))
    app = Operator(options, set_log_level=set_log_level)
    running = asyncio.create_task(app.run())
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait({running, stop}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        stop.cancel()
        if isinstance(error := running.exception(), LeaderWorkStuckError):
            _end_at_once(error)
        _start_watchdog()
        running.result()
        return
    logger.info("stopping")
    _start_watchdog()
    running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        logger.info("stopped")
    except LeaderWorkStuckError as error:
        _end_at_once(error)
    # All is put away. Python would wait for threads without end now: a name may be looked up still.
    _exit(0)


def _end_at_once(error: LeaderWorkStuckError) -> NoReturn:
    """End without waiting for its task: another replica may lead any moment."""
    logger.critical("the operator ends at once", extra={"error": str(error)})
    _exit(1)


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _start_watchdog() -> threading.Timer:
    """End the process in STOP_SECONDS, come what may; a thread, since a loop that hangs could not end itself."""
    watchdog = threading.Timer(STOP_SECONDS, lambda: os._exit(1))
    watchdog.daemon = True
    watchdog.start()
    return watchdog
