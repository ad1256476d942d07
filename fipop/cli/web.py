"""`fipop web`: the web UI, on this machine or in a pod, with the reader's own rights."""

from __future__ import annotations

import asyncio
import errno
import logging

import click
from aiohttp.web import AppRunner, TCPSite

from fipop.cli.logs import configure_logging
from fipop.cli.process import run_until_asked
from fipop.cli.reading import EXIT_MISTAKE, ReadingOptions, access_options, fail
from fipop.errors import StartError
from fipop.report.page.app import Page
from fipop.report.page.snapshots import Snapshots
from fipop.report.reading import read_snapshot

logger = logging.getLogger(__name__)


@click.command(short_help="The web UI: ranges as maps, search, guest clusters.")
@access_options
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8090, show_default=True, help="Port; 0 means a free one."
)
@click.option("--log-format", type=click.Choice(["json", "text"]), default="text", show_default=True)
def web(*, reading: ReadingOptions, bind: str, port: int, log_format: str) -> None:
    """Serve the web UI until ctrl-C. It only reads, with your rights.

    Every user who can connect sees what you can see: it listens on this machine only, unless --bind changes that.
    """
    configure_logging(as_json=log_format == "json")
    try:
        asyncio.run(run_until_asked(_serve(reading, bind, port)))
    except StartError as error:
        fail(str(error), EXIT_MISTAKE)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        why = "it is in use by another program" if is_taken else str(error.strerror)
        fail(f"could not listen on port {port} of {bind}: {why}. Choose another one with --port or --bind")


async def _serve(reading: ReadingOptions, bind: str, port: int) -> None:
    async with reading.connect() as client:
        snapshots = Snapshots(lambda: read_snapshot(client, namespace=reading.operator_namespace))
        runner = AppRunner(Page(snapshots).build_app(), access_log=None, shutdown_timeout=1.0)
        try:
            await runner.setup()
            site = TCPSite(runner, bind, port)
            await site.start()
            shown = f"[{bind}]" if ":" in bind else bind
            snapshots.begin()
            click.echo(f"The web UI is at http://{shown}:{site.port}/ until ctrl-C")
            await asyncio.Event().wait()
        finally:
            await snapshots.close()
            await runner.cleanup()
