"""kube-fip-config, live: it is read every 5 s, for health and for the options; a bad value keeps the last good one.

After a restart with a bad value, no good one is known: until it is corrected, no releases are changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from fipop.api import names
from fipop.api.objects import read_metadata
from fipop.api.options import find_binary, read_texts
from fipop.errors import WRITE_REFUSED, ApiError, ConflictError, FipopError, StartError
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, ObjectReference, reference_to
from fipop.kube.resources import CONFIG_MAPS
from fipop.settings.options import (
    DEFAULTS,
    NOTHING_KNOWN,
    BadOption,
    Settings,
    find_changed,
    find_unknown,
    parse_settings,
    settings_data,
    warnings,
)
from fipop.texts import sentence

logger = logging.getLogger(__name__)

Listener = Callable[[Settings, Settings], None]


class Configuration:
    """The settings in force. `listeners` hear of every change, with the settings before and after."""

    def __init__(
        self,
        *,
        client: KubeClient,
        events: EventRecorder,
        namespace: str,
        defaults: Path | None,
    ) -> None:
        """`defaults` is the folder that a missing ConfigMap is made from. Raises StartError if it cannot be read."""
        read_defaults(defaults)
        self._client = client
        self._events = events
        self._namespace = namespace
        self._defaults = defaults
        self._seen: object = None
        self._why_missing = ""
        self._told: tuple[BadOption, ...] = ()
        self._warned: tuple[str, ...] = ()
        self._about: ObjectReference | None = None
        self.settings = NOTHING_KNOWN
        self.bad_options: tuple[BadOption, ...] = ()
        self.annotations: Mapping[str, str] = {}
        self.listeners: list[Listener] = []

    async def load(self) -> None:
        """Take the settings in before anything else starts. Raises: ApiError."""
        self._take(await self._read() or await self._create())

    async def poll(self) -> None:
        """Take a change in, and create a deleted ConfigMap again. Raises ApiError if it cannot be read."""
        found = await self._read()
        if found is None:
            try:
                found = await self._create()
            except FipopError as error:
                # A quota or a policy may refuse it for hours; the options in force stay.
                if str(error) != self._why_missing:
                    logger.warning("Could not create ConfigMap", extra={"error": str(error)})
                self._why_missing = str(error)
                if isinstance(error, ApiError) and error.is_refusal:
                    self.complain(WRITE_REFUSED, error.explain())
                return
        self._why_missing = ""
        self._take(found)

    def complain(
        self, reason: str, message: str, *, is_warning: bool = True, is_repeated: bool = False
    ) -> None:
        """Record an event on the ConfigMap: an option cannot take effect, or something else that admins should know.

        One that `is_repeated` is written each time; any other once in an hour.
        """
        if self._about is not None:
            kind = EventType.WARNING if is_warning else EventType.NORMAL
            self._events.record(self._about, kind, reason, message, is_repeated=is_repeated)

    async def _read(self) -> Json | None:
        return await self._client.get(CONFIG_MAPS, names.SETTINGS_CONFIG_MAP, namespace=self._namespace)

    async def _create(self) -> Json:
        # Read again: an upgrade of the chart changes the mounted files under a running process.
        data = await asyncio.to_thread(read_defaults, self._defaults)
        body = {
            "metadata": {"name": names.SETTINGS_CONFIG_MAP, "namespace": self._namespace},
            "data": data,
        }
        try:
            made = await self._client.create(CONFIG_MAPS, body)
        except ConflictError:
            # Another replica was faster.
            found = await self._read()
            if found is None:
                raise
            return found
        logger.info("Created ConfigMap from the defaults", extra={"config_map": names.SETTINGS_CONFIG_MAP})
        return made

    def _take(self, config_map: Json) -> None:
        metadata = config_map["metadata"]
        version = metadata.get("uid"), metadata.get("resourceVersion")
        if version == self._seen:
            return
        self._seen = version
        data = read_texts(config_map)
        before = self.settings
        self.annotations = dict(metadata.get("annotations") or {})
        self.settings, self.bad_options = parse_settings(data, before)
        self._about = reference_to(CONFIG_MAPS, read_metadata(config_map))
        self._report((*warnings(self.settings), *find_unknown(data), *find_binary(config_map)))
        if self.settings != before:
            logger.info("Settings changed", extra={"changed": find_changed(before, self.settings)})
            for listener in self.listeners:
                listener(before, self.settings)

    def _report(self, unwise: tuple[str, ...]) -> None:
        """Report bad values and unwise ones, once each."""
        for bad in self.bad_options:
            if bad not in self._told:
                message = f"{sentence(str(bad))} {self._describe_effect(bad.option)}"
                fields = {"option": bad.option, "value": bad.value, "error": bad.reason}
                logger.error("Option is invalid", extra=fields)
                self.complain("BadOption", message)
        for warning in unwise:
            if warning not in self._warned:
                logger.warning("Option has a risk", extra={"error": warning})
                self.complain("UnwiseOption", f"ConfigMap kube-fip-config has a risk: {warning}.")
        self._told, self._warned = self.bad_options, unwise

    def _describe_effect(self, option: str) -> str:
        """Return what a bad value of an option causes."""
        settings = self.settings
        if option not in settings.unknown_options:
            return "fipop keeps the last valid value."
        if option in settings.unknown_release_options:
            return "Correct it: until then, fipop changes no releases in guest clusters."
        if option in settings.unknown_rollout_options:
            return "Correct it: until then, rollouts stand still."
        if option == "createFloatingIPs":
            return "Correct it: until then, fipop creates no floating IPs."
        return "fipop uses the default."


def read_defaults(folder: Path | None) -> dict[str, str]:
    """Read what a missing kube-fip-config is made from: a mounted folder with one file for each option.

    Without a folder the documented built-in defaults. StartError where it cannot be read.
    """
    if folder is None:
        return settings_data(DEFAULTS)
    try:
        # A mounted ConfigMap has hidden entries beside its files.
        files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        return {path.name: path.read_text(encoding="utf-8") for path in files}
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(
            what=f"settings defaults {folder}", problem="cannot be read as text files"
        ) from error
