"""kube-fip-config, live: every change is checked and takes effect at once; a bad value keeps the last good one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from fipop.api import names
from fipop.errors import ApiAlreadyExistsError, FipopError, StartError
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, ObjectReference, reference_to
from fipop.kube.resources import CONFIG_MAPS
from fipop.kube.watch import ObjectWatch
from fipop.settings.options import DEFAULTS, BadOption, Settings, parse_settings, settings_data, warnings

logger = logging.getLogger(__name__)

CREATE_RETRY_SECONDS = 5.0

Listener = Callable[[Settings, Settings], None]


class Configuration:
    """The settings in force. `listeners` hear of every change, with the settings before and after."""

    def __init__(
        self, *, client: KubeClient, events: EventRecorder, namespace: str, defaults: Mapping[str, str]
    ) -> None:
        self._client = client
        self._events = events
        self._namespace = namespace
        self._defaults = defaults
        self._watch = ObjectWatch(client, CONFIG_MAPS, names.SETTINGS_CONFIG_MAP, namespace=namespace)
        self._told: tuple[BadOption, ...] = ()
        self._warned: tuple[str, ...] = ()
        self._about: ObjectReference | None = None
        self.settings = DEFAULTS
        self.bad_options: tuple[BadOption, ...] = ()
        self.annotations: Mapping[str, str] = {}
        self.listeners: list[Listener] = []

    @property
    def last_heard_at(self) -> float | None:
        """The monotonic time when the watch showed life last."""
        return self._watch.last_heard_at

    async def load(self) -> None:
        """Take the settings in before anything else starts; made from the defaults where there are none."""
        found = await self._client.get(CONFIG_MAPS, names.SETTINGS_CONFIG_MAP, namespace=self._namespace)
        self._take(found if found is not None else await self._create())

    async def follow(self) -> None:
        """Take every change in, for ever. A deleted ConfigMap is made again, from the defaults."""
        # To make it may be refused for hours (a quota, a policy). The watch is read on meanwhile: it shows no life
        # else, and liveness would end a process that works, for one that cannot start.
        making: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group, aclosing(self._watch.versions()) as versions:
            async for version in versions:
                if making is not None:
                    # Ended before the version is taken, so that what was made never replaces what is newer.
                    making.cancel()
                    await asyncio.wait({making})
                making = group.create_task(self._make_again()) if version is None else None
                if version is not None:
                    self._take(version)

    async def _make_again(self) -> None:
        """Make the ConfigMap; the watch tells only once that it is gone, so a failure is tried again here."""
        while True:
            try:
                made = await self._create()
            except FipopError as error:
                logger.warning("settings cannot be made", extra={"error": str(error)})
                await asyncio.sleep(CREATE_RETRY_SECONDS)
            else:
                return self._take(made)

    async def _create(self) -> dict[str, Any]:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": names.SETTINGS_CONFIG_MAP, "namespace": self._namespace},
            "data": dict(self._defaults),
        }
        try:
            made = await self._client.create(CONFIG_MAPS, body)
        except ApiAlreadyExistsError:
            found = await self._client.get(CONFIG_MAPS, names.SETTINGS_CONFIG_MAP, namespace=self._namespace)
            return found if found is not None else body
        logger.info("settings made from the defaults", extra={"config_map": names.SETTINGS_CONFIG_MAP})
        return made

    def complain(self, reason: str, message: str) -> None:
        """Tell people, by an event on the ConfigMap, that it asks for what cannot be had."""
        if self._about is not None:
            self._events.record(self._about, EventType.WARNING, reason, message)

    def _take(self, config_map: Mapping[str, Any]) -> None:
        data = config_map.get("data")
        before = self.settings
        self.annotations = dict(config_map["metadata"].get("annotations") or {})
        self.settings, self.bad_options = parse_settings(data if isinstance(data, dict) else {}, before)
        self._report(config_map)
        if self.settings != before:
            logger.info("settings changed", extra={"changed": _changed(before, self.settings)})
            for listener in self.listeners:
                listener(before, self.settings)

    def _report(self, config_map: Mapping[str, Any]) -> None:
        """Tell bad values and unwise ones, once each."""
        if config_map["metadata"].get("uid"):
            self._about = reference_to(CONFIG_MAPS, dict(config_map))
        for bad in self.bad_options:
            if bad not in self._told:
                message = f"{bad.option}: {bad.value!r} {bad.reason}"
                if bad.option in settings_data(DEFAULTS):
                    message += "; the last good value stays"
                logger.error("bad option", extra={"option": bad.option, "error": bad.reason})
                self.complain("BadOption", message)
        unwise = warnings(self.settings)
        for warning in unwise:
            if warning not in self._warned:
                logger.warning("unwise option", extra={"error": warning})
                self.complain("UnwiseOption", warning)
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
