"""kube-fip-config, live: every change is checked and takes effect at once; a bad value keeps the last good one.

After a restart with a bad value, no good one is known: until it is corrected, no releases are changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from fipop.api import names
from fipop.api.objects import read_metadata
from fipop.errors import StartError
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, ObjectReference, reference_to
from fipop.kube.resources import CONFIG_MAPS
from fipop.runtime.configmap import ConfigMapFollower
from fipop.settings.options import (
    DEFAULTS,
    BadOption,
    Settings,
    parse_last_good,
    parse_settings,
    settings_data,
    warnings,
)

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
        defaults: Mapping[str, str],
        chance: Random | None = None,
    ) -> None:
        self._client = client
        self._events = events
        self._namespace = namespace
        self._follower = ConfigMapFollower(
            client=client,
            namespace=namespace,
            name=names.SETTINGS_CONFIG_MAP,
            take=self._take,
            defaults=defaults,
            chance=chance,
        )
        self._told: tuple[BadOption, ...] = ()
        self._warned: tuple[str, ...] = ()
        self._about: ObjectReference | None = None
        self.settings = parse_last_good({})
        self.bad_options: tuple[BadOption, ...] = ()
        self.annotations: Mapping[str, str] = {}
        self.listeners: list[Listener] = []

    @property
    def last_heard_at(self) -> float | None:
        """The monotonic time when the watch showed life last."""
        return self._follower.last_heard_at

    async def load(self) -> None:
        """Take the settings in before anything else starts; made from the defaults where there are none."""
        await self._follower.load()

    async def follow(self) -> None:
        """Take every change in, for ever. A deleted ConfigMap is made again, from the defaults."""
        await self._follower.follow()

    def complain(
        self, reason: str, message: str, *, is_warning: bool = True, is_repeated: bool = False
    ) -> None:
        """Record an event on the ConfigMap: an option cannot take effect, or something else that admins should know.

        One that `is_repeated` is written each time; any other once in an hour.
        """
        if self._about is not None:
            kind = EventType.WARNING if is_warning else EventType.NORMAL
            self._events.record(self._about, kind, reason, message, is_repeated=is_repeated)

    def _take(self, config_map: Mapping[str, Any] | None) -> None:
        assert config_map is not None, "a missing one is made"
        data = config_map.get("data")
        before = self.settings
        self.annotations = dict(config_map["metadata"].get("annotations") or {})
        self.settings, self.bad_options = parse_settings(data if isinstance(data, dict) else {}, before)
        self._report(config_map)
        if self.settings != before:
            logger.info("Settings changed", extra={"changed": _changed(before, self.settings)})
            for listener in self.listeners:
                listener(before, self.settings)

    def _report(self, config_map: Mapping[str, Any]) -> None:
        """Report bad values and unwise ones, once each."""
        if config_map["metadata"].get("uid"):
            self._about = reference_to(CONFIG_MAPS, read_metadata(config_map))
        for bad in self.bad_options:
            if bad not in self._told:
                message = f"Option {bad.option} {bad.reason}: it is {bad.value!r}."
                if bad.option in self.settings.unknown_options:
                    message += " Correct it: until then, fipop changes no releases in guest clusters."
                elif bad.option in settings_data(DEFAULTS):
                    message += " fipop keeps the last valid value."
                logger.error("Option is invalid", extra={"option": bad.option, "error": bad.reason})
                self.complain("BadOption", message)
        unwise = warnings(self.settings)
        for warning in unwise:
            if warning not in self._warned:
                logger.warning("Option has a risk", extra={"error": warning})
                self.complain("UnwiseOption", f"ConfigMap kube-fip-config has a risk: {warning}.")
        self._told, self._warned = self.bad_options, unwise


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


def _changed(before: Settings, after: Settings) -> list[str]:
    old, new = settings_data(before), settings_data(after)
    return sorted(option for option in new if old.get(option) != new[option])
